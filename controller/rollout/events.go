package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Event is something that happened to a rollout.
type Event struct {
	// Type is Normal or Warning.
	Type    string
	Reason  v1alpha1.Reason
	Message string
}

// Events returns what happened between two statuses, in order. Since it depends on
// nothing else, a change that is in the status already is never told twice.
func Events(before, after *v1alpha1.CanaryStatus) []Event {
	var events []Event
	say := func(kind string, reason v1alpha1.Reason, format string, args ...any) {
		events = append(events, Event{Type: kind, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if after.Phase == v1alpha1.PhaseInvalid {
		if before.Phase != v1alpha1.PhaseInvalid || before.Message != after.Message {
			say(corev1.EventTypeWarning, reasonOf(after, v1alpha1.ConditionStalled), "%s", after.Message)
		}
		return events
	}
	was, is := rolloutOf(before), rolloutOf(after)
	batchesBefore, becameAvailable := before.Batches, false
	if was.ID != is.ID || !was.StartedAt.Equal(&is.StartedAt) {
		reason := v1alpha1.ReasonRolloutStarted
		if was.ID != "" {
			reason = v1alpha1.ReasonRolloutRestarted
		}
		if after.New != nil {
			say(corev1.EventTypeNormal, reason, "rollout %s of %s started, %d replicas", is.ID, after.New.Name, after.TotalReplicas)
		}
		was, batchesBefore = v1alpha1.RolloutStatus{}, nil
	}
	for n, batch := range after.Batches {
		var earlier v1alpha1.BatchStatus
		if n < len(batchesBefore) {
			earlier = batchesBefore[n]
		} else if is.RollbackStartedAt == nil {
			say(corev1.EventTypeNormal, v1alpha1.ReasonBatchStarted, "batch %d started: %d of %d replicas", n+1, batch.Target, after.TotalReplicas)
		}
		if earlier.AvailableAt == nil && batch.AvailableAt != nil {
			becameAvailable = true
			say(corev1.EventTypeNormal, v1alpha1.ReasonBatchAvailable, "batch %d is available: %d replicas", n+1, batch.Target)
		}
		if earlier.FinishedAt == nil && batch.FinishedAt != nil {
			say(corev1.EventTypeNormal, v1alpha1.ReasonBatchFinished, "batch %d is finished", n+1)
		}
	}
	for _, decision := range newDecisions(before, after) {
		kind, reason := decisionEvent(decision)
		say(kind, reason, "batch %d: %s", decision.Batch, decision.Evidence)
	}
	// A pod that dies and comes back while a person is waited for asks for nothing new.
	gatePaused := reasonOf(after, v1alpha1.ConditionPaused) == v1alpha1.ReasonGatePaused
	if after.Phase == v1alpha1.PhaseAwaitingApproval && !gatePaused && (becameAvailable || before.Phase == v1alpha1.PhaseAnalyzing) {
		say(corev1.EventTypeNormal, v1alpha1.ReasonAwaitingApproval, "%s", after.Message)
	}
	if isPaused := paused(after); paused(before) != isPaused {
		if isPaused {
			say(corev1.EventTypeNormal, v1alpha1.ReasonPaused, "paused by spec.paused")
		} else {
			say(corev1.EventTypeNormal, v1alpha1.ReasonResumed, "no longer paused by spec.paused")
		}
	}
	for _, name := range is.Autoscalers {
		if !slices.Contains(was.Autoscalers, name) {
			say(corev1.EventTypeNormal, v1alpha1.ReasonAutoscalerDetected,
				"HorizontalPodAutoscaler %s scales a Deployment of this rollout; the total follows it", name)
		}
	}
	if was.RollbackStartedAt == nil && is.RollbackStartedAt != nil {
		say(corev1.EventTypeWarning, v1alpha1.ReasonRollbackStarted, "rolling back: %s", is.RollbackReason)
	}
	if was.Outcome != is.Outcome {
		switch is.Outcome {
		case v1alpha1.OutcomeCompleted:
			say(corev1.EventTypeNormal, v1alpha1.ReasonCompleted, "%s", after.Message)
		case v1alpha1.OutcomeRolledBack:
			say(corev1.EventTypeWarning, v1alpha1.ReasonRolledBack, "%s", after.Message)
		case v1alpha1.OutcomeFailed:
			say(corev1.EventTypeWarning, reasonOf(after, v1alpha1.ConditionProgressing), "%s", after.Message)
		}
	}
	if stalledRollback(after) && !stalledRollback(before) {
		say(corev1.EventTypeWarning, v1alpha1.ReasonDeadlineExceeded, "the rollback is past its deadline: %s", after.Message)
	}
	return events
}

// newDecisions returns the gate's decisions that before does not know.
func newDecisions(before, after *v1alpha1.CanaryStatus) []v1alpha1.GateDecision {
	if after.Gate == nil {
		return nil
	}
	var known []v1alpha1.GateDecision
	if before.Gate != nil {
		known = before.Gate.Decisions
	}
	return slices.DeleteFunc(slices.Clone(after.Gate.Decisions), func(d v1alpha1.GateDecision) bool {
		return slices.ContainsFunc(known, func(k v1alpha1.GateDecision) bool {
			return k.Time.Equal(&d.Time) && k.Batch == d.Batch && k.Verdict == d.Verdict && k.Action == d.Action
		})
	})
}

// decisionEvent returns the type and the reason of a decision's event.
func decisionEvent(d v1alpha1.GateDecision) (string, v1alpha1.Reason) {
	switch {
	case d.Action == string(GatePause):
		return corev1.EventTypeWarning, v1alpha1.ReasonGatePaused
	case d.Action == GateOverride:
		return corev1.EventTypeNormal, v1alpha1.ReasonGateOverridden
	case d.Verdict == v1alpha1.VerdictFail || d.Verdict == v1alpha1.VerdictError:
		return corev1.EventTypeWarning, gateReason(d.Verdict)
	}
	return corev1.EventTypeNormal, gateReason(d.Verdict)
}

func rolloutOf(status *v1alpha1.CanaryStatus) v1alpha1.RolloutStatus {
	if status.Rollout == nil {
		return v1alpha1.RolloutStatus{}
	}
	return *status.Rollout
}

func reasonOf(status *v1alpha1.CanaryStatus, kind string) v1alpha1.Reason {
	if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
		return v1alpha1.Reason(c.Reason)
	}
	return ""
}

func paused(status *v1alpha1.CanaryStatus) bool {
	return reasonOf(status, v1alpha1.ConditionPaused) == v1alpha1.ReasonPaused
}

func stalledRollback(status *v1alpha1.CanaryStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStalled)
	return status.Phase == v1alpha1.PhaseRollingBack && c != nil && c.Status == metav1.ConditionTrue
}
