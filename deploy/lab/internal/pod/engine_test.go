package pod

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

// watcher keeps what an engine has reported.
type watcher struct {
	mu      sync.Mutex
	reports map[string][]corev1.PodStatus
}

func (w *watcher) report(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports[pod.Name] = append(w.reports[pod.Name], pod.Status)
}

func (w *watcher) last(name string) (corev1.PodStatus, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.reports[name]
	if len(r) == 0 {
		return corev1.PodStatus{}, 0
	}
	return r[len(r)-1], len(r)
}

// until polls until the last report about a pod passes.
func (w *watcher) until(t *testing.T, name string, ok func(corev1.PodStatus) bool) corev1.PodStatus {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		s, _ := w.last(name)
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("pod %s: last status %+v", name, s)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// newTestEngine is an engine without an API server. The test fails if it
// leaves a goroutine behind.
func newTestEngine(t *testing.T, images string) (*Engine, *watcher) {
	t.Helper()
	dir := t.TempDir()
	spawner, err := process.NewSpawner(dir)
	if err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(dir, "images.yaml")
	if err := os.WriteFile(table, []byte(images), 0o600); err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	e := NewEngine(Config{
		Client: fake.NewClientset(), Recorder: &record.FakeRecorder{}, Spawner: spawner,
		Dir: filepath.Join(dir, "pods"), Logs: filepath.Join(dir, "logs"), Images: table,
		Addresses: netip.MustParsePrefix("127.200.0.0/20"), Reserved: 16, Host: "127.200.0.1",
		MaxBackoff: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	w := &watcher{reports: map[string][]corev1.PodStatus{}}
	e.NotifyPods(t.Context(), w.report)
	t.Cleanup(func() {
		e.Close()
		// The thread that forks is kept for good.
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/canarycontroller/canary-controller/deploy/lab/internal/process.(*Spawner).thread"))
	})
	return e, w
}

func testPod(name, image string, policy corev1.RestartPolicy, env ...corev1.EnvVar) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name), Generation: 1},
		Spec: corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{
			{Name: "main", Image: image, Env: env},
		}},
	}
}

func create(t *testing.T, e *Engine, pod *corev1.Pod) {
	t.Helper()
	if err := e.CreatePod(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
}

func condition(s corev1.PodStatus, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func TestHollowPodIsReadyAtOnceWithOneReport(t *testing.T) {
	e, w := newTestEngine(t, "")
	create(t, e, testPod("a", "lab/hollow:1", corev1.RestartPolicyAlways))
	s, n := w.last("a")
	if n != 1 || s.Phase != corev1.PodRunning || condition(s, corev1.PodReady) != corev1.ConditionTrue || s.PodIP != "127.200.0.16" {
		t.Errorf("%d reports, the last %+v; want one that says running and ready at 127.200.0.16", n, s)
	}
	if s.ObservedGeneration != 1 || s.StartTime == nil || !*s.ContainerStatuses[0].Started {
		t.Errorf("status %+v lacks a generation, a start time or a started container", s)
	}
}

func TestHollowBehaviours(t *testing.T) {
	e, w := newTestEngine(t, "images: [{name: slow, hollow: true, env: {HOLLOW_READY_DELAY: 30ms}}]")
	env := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	create(t, e, testPod("slow", "slow", corev1.RestartPolicyAlways))
	if s, _ := w.last("slow"); condition(s, corev1.PodReady) != corev1.ConditionFalse {
		t.Error("ready before the delay")
	}
	w.until(t, "slow", func(s corev1.PodStatus) bool { return condition(s, corev1.PodReady) == corev1.ConditionTrue })

	create(t, e, testPod("done", "lab/hollow", corev1.RestartPolicyNever, env(envRun, "10ms")))
	w.until(t, "done", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodSucceeded })
	create(t, e, testPod("failed", "lab/hollow", corev1.RestartPolicyOnFailure, env(envRun, "10ms"), env(envExit, "3")))
	s := w.until(t, "failed", func(s corev1.PodStatus) bool {
		return len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].RestartCount >= 2
	})
	if last := s.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 3 {
		t.Errorf("last state %+v, want exit code 3", s.ContainerStatuses[0].LastTerminationState)
	}
	create(t, e, testPod("wrong", "lab/hollow", corev1.RestartPolicyAlways, env(envRun, "soon")))
	s, _ = w.last("wrong")
	if waits := s.ContainerStatuses[0].State.Waiting; waits == nil || waits.Reason != "CreateContainerConfigError" {
		t.Errorf("state %+v, want a configuration error", s.ContainerStatuses[0].State)
	}
	annotated := testPod("annotated", "lab/hollow", corev1.RestartPolicyAlways)
	annotated.Annotations = map[string]string{AnnotationPrefix + "hollow-never-ready": "true"}
	create(t, e, annotated)
	if s, _ := w.last("annotated"); s.Phase != corev1.PodRunning || condition(s, corev1.PodReady) != corev1.ConditionFalse {
		t.Errorf("status %+v, want running and not ready", s)
	}
}

// Ready goes false and true with the container, and the time of the change
// stays while the value does.
func TestConditionTimes(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &container{spec: &corev1.Container{Name: "main"}, phase: running, id: "x", ready: true, started: true}
	v := view{pod: testPod("a", "x", corev1.RestartPolicyAlways), podIP: "127.0.0.2", mains: []*container{c}, now: begin}
	at := func() time.Time {
		for _, k := range v.previous.Conditions {
			if k.Type == corev1.PodReady {
				return k.LastTransitionTime.Time
			}
		}
		return time.Time{}
	}
	for i, step := range []struct {
		ready bool
		want  time.Duration
	}{{true, 0}, {true, 0}, {false, 2 * time.Second}, {false, 2 * time.Second}, {true, 4 * time.Second}} {
		c.ready = step.ready
		v.now = begin.Add(time.Duration(i) * time.Second)
		v.previous = v.status()
		if got := at().Sub(begin); got != step.want {
			t.Fatalf("step %d: ready changed after %s, want %s", i, got, step.want)
		}
	}
}

// A deleted pod's containers end, its address is free again, and a pod that
// takes its name in the meantime runs beside it.
func TestDeleteAndReplace(t *testing.T) {
	e, w := newTestEngine(t, "")
	old := testPod("a", "lab/hollow", corev1.RestartPolicyAlways, corev1.EnvVar{Name: envStopDelay, Value: "1h"})
	create(t, e, old)
	grace := int64(3600)
	now := metav1.Now()
	old = old.DeepCopy()
	old.DeletionTimestamp, old.DeletionGracePeriodSeconds = &now, &grace
	if err := e.DeletePod(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if s, _ := w.last("a"); condition(s, corev1.PodReady) != corev1.ConditionFalse {
		t.Error("a pod that ends is still ready")
	}
	next := testPod("a", "lab/hollow", corev1.RestartPolicyAlways)
	next.UID = "another"
	if err := e.UpdatePod(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if pods, err := e.GetPods(t.Context()); err != nil || len(pods) != 2 {
		t.Fatalf("%d pods, %v; want the old one and the new one", len(pods), err)
	}
	none := int64(0)
	old.DeletionGracePeriodSeconds = &none
	if err := e.DeletePod(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	e.Stopped(ctx, types.NamespacedName{Namespace: "ns", Name: "a"}, old.UID)
	if ctx.Err() != nil {
		t.Fatal("a pod without grace does not end")
	}
	got, err := e.GetPod(t.Context(), "ns", "a")
	if err != nil || got.UID != next.UID {
		t.Errorf("the name means %v, %v; want the new pod", got, err)
	}
}

func TestProcessPod(t *testing.T) {
	e, w := newTestEngine(t, "images: [{name: sh, executable: /bin/sh}]")
	pod := testPod("p", "sh", corev1.RestartPolicyNever)
	c := &pod.Spec.Containers[0]
	c.Command = []string{"sh", "-c", `echo "out $POD_IP"; echo why > /dev/termination-log; exit 4`}
	c.TerminationMessagePath = corev1.TerminationMessagePathDefault
	create(t, e, pod)
	s := w.until(t, "p", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodFailed })
	end := s.ContainerStatuses[0].State.Terminated
	if end == nil || end.ExitCode != 4 || end.Reason != "Error" || end.Message != "why\n" {
		t.Errorf("ended %+v, want exit code 4, reason Error and the message", end)
	}
	lines, err := tailLines(filepath.Join(LogDir(e.cfg.Logs, types.NamespacedName{Namespace: "ns", Name: "p"}, pod.UID), "main", "0.log"), -1)
	if err != nil || fmt.Sprint(lines) != "[out "+s.PodIP+"\n]" {
		t.Errorf("log %q, %v", lines, err)
	}
}

// Init containers run one after the other, and a failed one is run again
// before anything after it.
func TestInitContainers(t *testing.T) {
	e, w := newTestEngine(t, "images: [{name: sh, executable: /bin/sh}]")
	dir := t.TempDir()
	script := func(name, text string) corev1.Container {
		return corev1.Container{Name: name, Image: "sh", Command: []string{"sh", "-c", text}}
	}
	pod := testPod("p", "sh", corev1.RestartPolicyOnFailure)
	log := filepath.Join(dir, "log")
	pod.Spec.InitContainers = []corev1.Container{
		script("one", "echo one >> "+log),
		script("two", fmt.Sprintf("echo two >> %s; test -e %s/again || { touch %s/again; exit 1; }", log, dir, dir)),
	}
	pod.Spec.Containers = []corev1.Container{script("main", "echo main >> "+log)}
	create(t, e, pod)
	w.until(t, "p", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodSucceeded })
	text, err := os.ReadFile(log)
	if err != nil || string(text) != "one\ntwo\ntwo\nmain\n" {
		t.Errorf("ran %q, %v", text, err)
	}
}

// Thousands of hollow pods need no goroutine each.
func TestHollowPodsCostNoGoroutines(t *testing.T) {
	e, w := newTestEngine(t, "")
	before := goleak.IgnoreCurrent()
	for i := range 1000 {
		create(t, e, testPod(fmt.Sprintf("p%d", i), "lab/hollow", corev1.RestartPolicyAlways))
	}
	if s, _ := w.last("p999"); condition(s, corev1.PodReady) != corev1.ConditionTrue {
		t.Errorf("the last pod is not ready: %+v", s)
	}
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("testing.(*T).Run")); err != nil {
		t.Error(err)
	}
}

func BenchmarkHollowPod(b *testing.B) {
	e := NewEngine(Config{Client: fake.NewClientset(), Recorder: &record.FakeRecorder{}, Addresses: netip.MustParsePrefix("127.0.0.0/8"),
		Host: "127.0.0.1", MaxBackoff: DefaultMaxBackoff, Log: slog.New(slog.DiscardHandler)})
	defer e.Close()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := e.CreatePod(context.Background(), testPod(fmt.Sprint(i), "lab/hollow", corev1.RestartPolicyAlways)); err != nil {
			b.Fatal(err)
		}
	}
}
