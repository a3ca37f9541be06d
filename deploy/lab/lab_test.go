package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is for a machine that does much else besides.
const patience = 90 * time.Second

// TestLab goes through what a lab does, each part against the same one.
func TestLab(t *testing.T) {
	base := t.TempDir()
	l := upLab(t, filepath.Join(base, "lab"), "--images", imageTable(t, base), "--nodes", "2",
		"--audit-log", filepath.Join(base, "audit.log"), "--max-restart-period", "2s")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *testLab)
	}{
		{"Nodes", testNodes},
		{"Deployment", testDeployment},
		{"Readiness", testReadiness},
		{"Liveness", testLiveness},
		{"CrashLoop", testCrashLoop},
		{"ImagePull", testImagePull},
		{"Termination", testTermination},
		{"Job", testJob},
		{"Volumes", testVolumes},
		{"ServiceAccount", testServiceAccount},
		{"Hollow", testHollow},
		{"RestartAPIServer", testRestartAPIServer},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, l) })
	}
	audit, err := os.ReadFile(filepath.Join(base, "audit.log"))
	if err != nil || !strings.Contains(string(audit), `"username":"lab-admin"`) || strings.Contains(string(audit), `"requestObject"`) {
		t.Errorf("the audit log lacks the administrator's requests or has bodies in it (%v)", err)
	}
}

func (l *testLab) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return l.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
}

// pods are the pods with the label app=name.
func (l *testLab) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := l.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func testNodes(t *testing.T, l *testLab) {
	eventually(t, patience, func(ctx context.Context) error {
		nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(nodes.Items) != 2 {
			return fmt.Errorf("%d nodes, want 2", len(nodes.Items))
		}
		for _, n := range nodes.Items {
			ready := false
			for _, c := range n.Status.Conditions {
				ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}
			if !ready || len(n.Spec.Taints) > 0 {
				return fmt.Errorf("node %s is not ready or tainted: %v", n.Name, n.Spec.Taints)
			}
		}
		return nil
	})
	if out := l.kubectl(t, "get", "--raw", "/metrics"); !strings.Contains(out, "apiserver_request_total") {
		t.Error("the administrator does not see the API server's metrics")
	}
	if out := l.run(t, "status"); !strings.Contains(out, "ready") {
		t.Errorf("lab status: %s", out)
	}
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  minReadySeconds: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: %[3]s
        env:
        - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: UNREADY_FILE, value: %[4]q}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, failureThreshold: 1}
        livenessProbe: {httpGet: {path: /live, port: 8080}, periodSeconds: 1, failureThreshold: 2}
        startupProbe: {tcpSocket: {port: 8080}, failureThreshold: 30}
`

func testDeployment(t *testing.T, l *testLab) {
	l.apply(t, fmt.Sprintf(deployment, "web", 3, "app:1", ""))
	l.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
	pods, err := l.pods(t.Context(), "web")
	if err != nil || len(pods) != 3 {
		t.Fatalf("%d pods, %v; want 3", len(pods), err)
	}
	seen := map[string]bool{}
	for _, p := range pods {
		if seen[p.Status.PodIP] || !strings.HasPrefix(p.Status.PodIP, "127.") {
			t.Errorf("pod %s has the address %s", p.Name, p.Status.PodIP)
		}
		seen[p.Status.PodIP] = true
		response, err := http.Get("http://" + p.Status.PodIP + ":8080/ready")
		if err != nil {
			t.Fatalf("asking pod %s: %v", p.Name, err)
		}
		_ = response.Body.Close()
		want := fmt.Sprintf("serving on %s:8080 as %s\n", p.Status.PodIP, p.Name)
		if got := l.kubectl(t, "logs", p.Name); got != want {
			t.Errorf("kubectl logs: %q, want %q", got, want)
		}
		if got := l.run(t, "logs", p.Name); got != want {
			t.Errorf("lab logs: %q, want %q", got, want)
		}
	}
	if out := l.kubectl(t, "describe", "pod", pods[0].Name); !strings.Contains(out, "Started") {
		t.Errorf("no event about the start in:\n%s", out)
	}
}

func testReadiness(t *testing.T, l *testLab) {
	unready := filepath.Join(t.TempDir(), "unready")
	l.apply(t, fmt.Sprintf(deployment, "toggled", 1, "app:1", unready))
	wait := func(ready bool) {
		eventually(t, patience, func(ctx context.Context) error {
			pods, err := l.pods(ctx, "toggled")
			if err != nil || len(pods) != 1 || isReady(&pods[0]) != ready {
				return fmt.Errorf("%d pods (%v), want one whose readiness is %v", len(pods), err, ready)
			}
			if n := pods[0].Status.ContainerStatuses[0].RestartCount; n != 0 {
				t.Fatalf("%d restarts", n)
			}
			return nil
		})
	}
	wait(true)
	if err := os.WriteFile(unready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wait(false)
	if err := os.Remove(unready); err != nil {
		t.Fatal(err)
	}
	wait(true)
}

func testLiveness(t *testing.T, l *testLab) {
	l.apply(t, fmt.Sprintf(deployment, "dying", 1, "dies:1", ""))
	eventually(t, patience, func(ctx context.Context) error {
		pods, err := l.pods(ctx, "dying")
		if err != nil || len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 {
			return fmt.Errorf("%d pods, %v", len(pods), err)
		}
		if n := pods[0].Status.ContainerStatuses[0].RestartCount; n < 1 {
			return fmt.Errorf("restarted %d times", n)
		}
		return nil
	})
	l.kubectl(t, "delete", "deployment", "dying", "--wait=false")
}

func single(name, image, rest string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - {name: main, image: %q%s}\n", name, image, rest)
}

// waiting polls until the pod's container waits for the reason.
func (l *testLab) waiting(t *testing.T, name, reason string) corev1.ContainerStatus {
	t.Helper()
	var found corev1.ContainerStatus
	eventually(t, patience, func(ctx context.Context) error {
		p, err := l.pod(ctx, name)
		if err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
				found = s
				return nil
			}
		}
		return fmt.Errorf("statuses %+v, want one that waits for %s", p.Status.ContainerStatuses, reason)
	})
	return found
}

func testCrashLoop(t *testing.T, l *testLab) {
	l.apply(t, single("crashing", "crash:1", ""))
	s := l.waiting(t, "crashing", "CrashLoopBackOff")
	if last := s.LastTerminationState.Terminated; last == nil || last.ExitCode != 7 || last.Reason != "Error" {
		t.Errorf("last state %+v, want exit code 7 and reason Error", s.LastTerminationState)
	}
	if want := "back-off 2s restarting failed container=main pod=crashing_default("; !strings.HasPrefix(s.State.Waiting.Message, want) {
		t.Errorf("message %q, want %q...", s.State.Waiting.Message, want)
	}
	eventually(t, patience, func(ctx context.Context) error {
		p, err := l.pod(ctx, "crashing")
		if err != nil || p.Status.ContainerStatuses[0].RestartCount < 2 {
			return fmt.Errorf("%v: restarted less than twice", err)
		}
		return nil
	})
	for _, out := range []string{l.kubectl(t, "logs", "crashing", "--previous"), l.run(t, "logs", "crashing", "--previous")} {
		if out != "crashing on purpose\n" {
			t.Errorf("the previous run's log: %q", out)
		}
	}
}

func testImagePull(t *testing.T, l *testLab) {
	l.apply(t, single("unpullable", "example.com/none:1", ""))
	s := l.waiting(t, "unpullable", "ErrImagePull")
	if !strings.Contains(s.State.Waiting.Message, "example.com/none:1") {
		t.Errorf("message %q does not name the image", s.State.Waiting.Message)
	}
	s = l.waiting(t, "unpullable", "ImagePullBackOff")
	if !strings.HasPrefix(s.State.Waiting.Message, `Back-off pulling image "example.com/none:1"`) {
		t.Errorf("message %q", s.State.Waiting.Message)
	}
	l.apply(t, single("misnamed", "BAD NAME", ""))
	l.waiting(t, "misnamed", "InvalidImageName")
	l.apply(t, single("unstartable", "sh", `, command: ["/does/not/exist"]`))
	s = l.waiting(t, "unstartable", "CrashLoopBackOff")
	if last := s.LastTerminationState.Terminated; last == nil || last.Reason != "StartError" || last.ExitCode != 128 {
		t.Errorf("last state %+v, want StartError", s.LastTerminationState)
	}
}

func testTermination(t *testing.T, l *testLab) {
	for name, tc := range map[string]struct {
		image    string
		min, max time.Duration
	}{
		"polite":   {"app:1", 0, 2500 * time.Millisecond},
		"stubborn": {"stubborn:1", 3 * time.Second, 20 * time.Second},
	} {
		l.apply(t, strings.Replace(single(name, tc.image, ", readinessProbe: {tcpSocket: {port: 8080}}"), "spec:\n", "spec:\n  terminationGracePeriodSeconds: 3\n", 1))
		var ip string
		eventually(t, patience, func(ctx context.Context) error {
			p, err := l.pod(ctx, name)
			if err != nil || !isReady(p) {
				return fmt.Errorf("%v: not ready", err)
			}
			ip = p.Status.PodIP
			return nil
		})
		begun := time.Now()
		if err := l.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, func(ctx context.Context) error {
			if _, err := l.pod(ctx, name); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%v: still there", err)
			}
			return nil
		})
		took := time.Since(begun)
		if _, err := http.Get("http://" + ip + ":8080/"); err == nil {
			t.Errorf("%s still serves after the API server forgot it", name)
		}
		if took < tc.min || took > tc.max {
			t.Errorf("%s took %s to end, want %s to %s", name, took, tc.min, tc.max)
		}
		if out := l.run(t, "logs", name); !strings.Contains(out, "got SIGTERM\n") {
			t.Errorf("%s got no SIGTERM: %q", name, out)
		}
	}
}

func testJob(t *testing.T, l *testLab) {
	l.apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: good}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: sh, command: [sh, -c, "exit 0"]}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: sh, command: [sh, -c, "exit 5"]}]}}}
`)
	l.kubectl(t, "wait", "job/good", "--for=condition=Complete", "--timeout=90s")
	l.kubectl(t, "wait", "job/bad", "--for=condition=Failed", "--timeout=90s")
}

func testHollow(t *testing.T, l *testLab) {
	const n = 200
	l.kubectl(t, "create", "deployment", "many", "--image=lab/hollow:1", fmt.Sprintf("--replicas=%d", n))
	l.kubectl(t, "rollout", "status", "deployment/many", "--timeout=90s")
	l.kubectl(t, "scale", "deployment/many", "--replicas=0")
	eventually(t, patience, func(ctx context.Context) error {
		pods, err := l.pods(ctx, "many")
		if err != nil || len(pods) > 0 {
			return fmt.Errorf("%d pods left, %v", len(pods), err)
		}
		return nil
	})
	l.apply(t, single("hollow-crash", "lab/hollow:1", ", env: [{name: HOLLOW_CRASH, value: '1'}]"))
	l.waiting(t, "hollow-crash", "CrashLoopBackOff")
	l.apply(t, single("hollow-never", "lab/hollow:1", ", env: [{name: HOLLOW_NEVER_READY, value: '1'}]"))
	eventually(t, patience, func(ctx context.Context) error {
		p, err := l.pod(ctx, "hollow-never")
		if err != nil || p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%v: not running", err)
		}
		if isReady(p) {
			t.Fatal("ready all the same")
		}
		return nil
	})
}

func testRestartAPIServer(t *testing.T, l *testLab) {
	before, err := l.pods(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, kill := range []string{"--kill=false", "--kill=true"} {
		l.run(t, "restart", "apiserver", kill)
		after, err := l.pods(t.Context(), "web")
		if err != nil || len(after) != len(before) {
			t.Fatalf("%d pods after the restart, %v; want %d", len(after), err, len(before))
		}
		for i := range after {
			if after[i].UID != before[i].UID || after[i].Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("pod %s did not live through the restart", after[i].Name)
			}
		}
		l.kubectl(t, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", len(before)+1))
		l.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
		before, err = l.pods(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
	}
}
