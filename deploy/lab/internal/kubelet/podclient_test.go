package kubelet

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// A status report replaces the kubelet's own conditions and no others.
func TestMergeConditions(t *testing.T) {
	c := func(kind corev1.PodConditionType, s corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: s}
	}
	ours := []corev1.PodCondition{c(corev1.PodReady, corev1.ConditionTrue), c("example.com/gate", corev1.ConditionFalse)}
	known := []corev1.PodCondition{c(corev1.PodReady, corev1.ConditionFalse), c("example.com/gate", corev1.ConditionTrue), c(corev1.DisruptionTarget, corev1.ConditionTrue)}
	want := []corev1.PodCondition{c(corev1.PodReady, corev1.ConditionTrue), c("example.com/gate", corev1.ConditionTrue), c(corev1.DisruptionTarget, corev1.ConditionTrue)}
	if got := mergeConditions(ours, known); !reflect.DeepEqual(got, want) {
		t.Errorf("merged %+v\nwant %+v", got, want)
	}
}

func TestQuietRecorder(t *testing.T) {
	events := record.NewFakeRecorder(8)
	q := quietRecorder{events}
	q.Event(&corev1.Pod{}, corev1.EventTypeNormal, "ProviderCreateSuccess", "x")
	q.Eventf(&corev1.Pod{}, corev1.EventTypeNormal, "ProviderDeleteSuccess", "x")
	q.Event(&corev1.Pod{}, corev1.EventTypeWarning, "ProviderCreateFailed", "x")
	if got, want := <-events.Events, "Warning ProviderCreateFailed x"; got != want || len(events.Events) > 0 {
		t.Errorf("events %q and %d more, want %q only", got, len(events.Events), want)
	}
}
