package pod

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is everything a pod's status is made from.
type view struct {
	pod      *corev1.Pod
	hostIP   string
	podIP    string
	started  time.Time
	inits    []*container
	mains    []*container
	terminal corev1.PodPhase // set once the pod is over
	reason   string          // of a terminal phase
	message  string
	previous corev1.PodStatus
	now      time.Time
}

// status makes the pod's status. Condition times carry over from the previous
// status while the condition's value stays.
func (v view) status() corev1.PodStatus {
	s := corev1.PodStatus{
		ObservedGeneration: v.pod.Generation,
		Phase:              v.phase(),
		Reason:             v.reason,
		Message:            v.message,
		QOSClass:           v.pod.Status.QOSClass,
		HostIP:             v.hostIP,
		HostIPs:            []corev1.HostIP{{IP: v.hostIP}},
	}
	if !v.started.IsZero() {
		t := metav1.NewTime(v.started)
		s.StartTime = &t
	}
	if v.podIP != "" {
		s.PodIP, s.PodIPs = v.podIP, []corev1.PodIP{{IP: v.podIP}}
	}
	for _, c := range v.inits {
		s.InitContainerStatuses = append(s.InitContainerStatuses, c.status())
	}
	for _, c := range v.mains {
		s.ContainerStatuses = append(s.ContainerStatuses, c.status())
	}
	s.Conditions = v.conditions(s.Phase)
	return s
}

func (v view) phase() corev1.PodPhase {
	if v.terminal != "" {
		return v.terminal
	}
	if !initialized(v.inits) {
		return corev1.PodPending
	}
	for _, c := range v.mains {
		if c.id == "" {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

// initialized reports whether the main containers may start.
func initialized(inits []*container) bool {
	for _, c := range inits {
		if c.sidecar && !c.started || !c.sidecar && !c.succeeded() {
			return false
		}
	}
	return true
}

func (v view) conditions(phase corev1.PodPhase) []corev1.PodCondition {
	over := phase == corev1.PodSucceeded
	boolean := func(kind corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: v.pod.Generation}
		if !ok {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
		return c
	}
	var notInit, notReady []string
	for _, c := range v.inits {
		if c.sidecar && !c.started || !c.sidecar && !c.succeeded() {
			notInit = append(notInit, c.spec.Name)
		}
		if c.sidecar && !c.ready {
			notReady = append(notReady, c.spec.Name)
		}
	}
	for _, c := range v.mains {
		if !c.ready {
			notReady = append(notReady, c.spec.Name)
		}
	}
	reason := "ContainersNotReady"
	message := fmt.Sprintf("containers with unready status: [%s]", strings.Join(notReady, " "))
	switch {
	case phase == corev1.PodSucceeded:
		reason, message = "PodCompleted", ""
	case phase == corev1.PodFailed:
		reason, message = "PodFailed", ""
	}
	ready := len(notReady) == 0 && phase == corev1.PodRunning
	initDone := boolean(corev1.PodInitialized, over || len(notInit) == 0, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(notInit, " ")))
	if over && initDone.Status == corev1.ConditionTrue {
		initDone.Reason = "PodCompleted"
	}
	result := []corev1.PodCondition{
		boolean(corev1.PodReadyToStartContainers, v.podIP != "" && v.terminal == "", "", ""),
		initDone,
		boolean(corev1.PodReady, ready && gatesOpen(v.pod), readyReason(ready, reason), readyMessage(ready, message)),
		boolean(corev1.ContainersReady, ready, reason, message),
		boolean(corev1.PodScheduled, true, "", ""),
	}
	for i := range result {
		result[i].LastTransitionTime = metav1.NewTime(v.now)
		for _, old := range v.previous.Conditions {
			if old.Type == result[i].Type && old.Status == result[i].Status {
				result[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return result
}

// gatesOpen reports whether every readiness gate's condition is true on the
// pod as the API server last gave it.
func gatesOpen(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		open := false
		for _, c := range pod.Status.Conditions {
			open = open || c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !open {
			return false
		}
	}
	return true
}

func readyReason(containersReady bool, reason string) string {
	if containersReady {
		return "ReadinessGatesNotReady"
	}
	return reason
}

func readyMessage(containersReady bool, message string) string {
	if containersReady {
		return "the status of a pod readiness gate is not True"
	}
	return message
}

func (c *container) status() corev1.ContainerStatus {
	started := c.phase == running && c.started
	s := corev1.ContainerStatus{
		Name:         c.spec.Name,
		Image:        c.spec.Image,
		ImageID:      c.imageID,
		ContainerID:  c.id,
		RestartCount: int32(max(c.run, 0)),
		Ready:        c.ready || c.init && !c.sidecar && c.succeeded(),
		Started:      &started,
	}
	if c.last != nil {
		s.LastTerminationState.Terminated = c.last
	}
	switch c.phase {
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.begun)}
	case terminated:
		s.State.Terminated = c.final
	default:
		reason := c.reason
		if reason == "" {
			reason = "ContainerCreating"
		}
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: c.message}
	}
	return s
}
