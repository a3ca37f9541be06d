package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(app, name, ip string, phase corev1.PodPhase, ready corev1.ConditionStatus, ports ...corev1.ContainerPort) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bookinfo", Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}},
		Status: corev1.PodStatus{Phase: phase, PodIP: ip, Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready},
		}},
	}
}

func ending(p corev1.Pod) corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}

// pods in every state that matters.
func pods() []corev1.Pod {
	http := corev1.ContainerPort{Name: "http", ContainerPort: 9080}
	admin := corev1.ContainerPort{Name: "http-metrics", ContainerPort: 9090}
	return []corev1.Pod{
		pod("reviews", "reviews-v1-c", "127.10.0.9", corev1.PodRunning, corev1.ConditionTrue, http, admin),
		pod("reviews", "reviews-v1-b", "127.10.0.8", corev1.PodRunning, corev1.ConditionTrue, http, admin),
		ending(pod("reviews", "reviews-v1-a", "127.10.0.7", corev1.PodRunning, corev1.ConditionTrue, http, admin)),
		pod("reviews", "reviews-v2-a", "127.10.0.6", corev1.PodRunning, corev1.ConditionFalse, http, admin),
		pod("reviews", "reviews-v2-b", "", corev1.PodPending, corev1.ConditionFalse, http, admin),
		pod("details", "details-a", "127.10.0.5", corev1.PodRunning, corev1.ConditionTrue, http),
	}
}

func TestReadyPodsAreThoseThatTakeRequests(t *testing.T) {
	want := map[string][]string{"reviews": {"127.10.0.8:9080", "127.10.0.9:9080"}, "details": {"127.10.0.5:9080"}}
	if got := readyPods(pods()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Pods that are ending are scraped to the last: their requests count.
func TestTargetsAreWhateverRunsAndHasMetrics(t *testing.T) {
	group := func(name, address string) targetGroup {
		return targetGroup{Targets: []string{address}, Labels: map[string]string{"namespace": "bookinfo", "pod": name}}
	}
	want := []targetGroup{
		group("reviews-v1-a", "127.10.0.7:9090"), group("reviews-v1-b", "127.10.0.8:9090"),
		group("reviews-v1-c", "127.10.0.9:9090"), group("reviews-v2-a", "127.10.0.6:9090"),
	}
	if got := targetsOf(pods()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := targetsOf(nil); got == nil || len(got) != 0 {
		t.Errorf("without pods: %#v, want an empty list, which is a list in JSON too", got)
	}
}

func TestReplaceFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"a", "a", "b"} {
		if err := replaceFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("got %q (%v), want %q", got, err, text)
		}
	}
	old := time.Unix(1, 0)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(name, []byte("b")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || !info.ModTime().Equal(old) {
		t.Error("written although nothing has changed")
	}
}
