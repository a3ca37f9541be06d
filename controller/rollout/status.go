package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Status renders a decision as the status to write. Condition transition times are kept
// from previous where nothing changed, so an idle rollout has an unchanged status.
func Status(previous *v1alpha1.CanaryStatus, generation int64, plan Plan, seen Observed, d Decision, now time.Time) *v1alpha1.CanaryStatus {
	status := previous.DeepCopy()
	status.ObservedGeneration = generation
	status.Phase, status.Message, status.Verdict = d.Phase, Clip(d.Message), d.Verdict
	status.Rollout, status.Batches, status.CurrentBatch = d.State.Rollout, d.State.Batches, d.State.CurrentBatch
	status.Gate = d.Gate
	status.Retiring = slices.Sorted(slices.Values(d.State.Retiring))
	status.TotalReplicas = plan.Total
	status.Batch = ""
	if d.State.CurrentBatch > 0 {
		status.Batch = fmt.Sprintf("%d/%d", d.State.CurrentBatch, len(plan.Targets))
	}
	if d.State.Rollout != nil && d.State.Rollout.ID == plan.ID {
		status.New = workloadStatus(plan.NewName, seen.New)
		status.Old = nil
		if plan.OldName != "" {
			status.Old = workloadStatus(plan.OldName, seen.Old)
		}
	}
	status.Info = info(status, plan.SameName())
	setConditions(status, conditions(plan, seen, d), generation, now)
	return status
}

// InvalidStatus says that a Canary cannot be acted on. Everything that the rollout
// remembers stays, so that a corrected Canary goes on where it was.
func InvalidStatus(previous *v1alpha1.CanaryStatus, generation int64, reason v1alpha1.Reason, message string, now time.Time) *v1alpha1.CanaryStatus {
	message = Clip(message)
	status := previous.DeepCopy()
	status.ObservedGeneration = generation
	status.Phase, status.Message, status.Verdict = v1alpha1.PhaseInvalid, message, ""
	setConditions(status, []metav1.Condition{
		condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, reason, message),
		condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message),
	}, generation, now)
	return status
}

func workloadStatus(name string, w Workload) *v1alpha1.WorkloadStatus {
	return &v1alpha1.WorkloadStatus{Name: name, Replicas: w.Replicas, AvailableReplicas: w.Available}
}

// info renders the original form of the status, a map of strings.
func info(status *v1alpha1.CanaryStatus, sameName bool) map[string]string {
	values := map[string]string{}
	released := status.New
	if r := status.Rollout; r != nil && r.RollbackStartedAt != nil {
		values[v1alpha1.InfoRollbackStatus] = v1alpha1.InfoIng
		if r.Outcome == v1alpha1.OutcomeRolledBack {
			values[v1alpha1.InfoRollbackStatus] = v1alpha1.InfoFinished
		}
		if !sameName {
			released = status.Old
		}
	}
	if released != nil {
		values[v1alpha1.InfoAvailableReplicas] = strconv.Itoa(int(released.AvailableReplicas))
	}
	for n, batch := range status.Batches {
		value := v1alpha1.InfoIng
		if batch.FinishedAt != nil {
			value = v1alpha1.InfoFinished
		}
		values[fmt.Sprintf("batch%dStatus", n+1)] = value
	}
	return values
}

func conditions(plan Plan, seen Observed, d Decision) []metav1.Condition {
	progressing, paused, stalled := metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse
	switch d.Phase {
	case v1alpha1.PhaseProgressing, v1alpha1.PhaseAnalyzing, v1alpha1.PhaseRollingBack:
		progressing = metav1.ConditionTrue
	}
	pausedReason, pausedMessage := v1alpha1.ReasonAsExpected, "not paused"
	switch {
	case d.Phase == v1alpha1.PhaseAwaitingApproval:
		paused, pausedReason, pausedMessage = metav1.ConditionTrue, d.Reason, d.Message
	case plan.Paused:
		paused, pausedReason, pausedMessage = metav1.ConditionTrue, v1alpha1.ReasonPaused, "spec.paused is true"
	}
	stalledReason, stalledMessage := v1alpha1.ReasonAsExpected, "within its deadline"
	if d.Stalled {
		stalled, stalledReason, stalledMessage = metav1.ConditionTrue, v1alpha1.ReasonDeadlineExceeded, d.Message
		if d.Reason == v1alpha1.ReasonGateFailed {
			stalledReason = d.Reason
		}
	}
	available := seen.New.Available
	if plan.OldName != "" && !plan.SameName() {
		available += seen.Old.Available
	}
	for _, retiring := range seen.Retiring {
		available += retiring.Available
	}
	availability := condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonReplicasAvailable,
		fmt.Sprintf("at least %d replicas are available", plan.Total))
	if available < plan.Total {
		availability = condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonReplicasUnavailable,
			fmt.Sprintf("%d of %d replicas are available", available, plan.Total))
	}
	return []metav1.Condition{
		condition(v1alpha1.ConditionProgressing, progressing, d.Reason, d.Message),
		availability,
		condition(v1alpha1.ConditionPaused, paused, pausedReason, pausedMessage),
		gateCondition(plan, d),
		condition(v1alpha1.ConditionStalled, stalled, stalledReason, stalledMessage),
	}
}

// gateCondition says whether the gate has what it needs to judge, and what it judged.
func gateCondition(plan Plan, d Decision) metav1.Condition {
	status, reason, message := metav1.ConditionTrue, v1alpha1.ReasonNoGate, "spec.gate is not set"
	switch {
	case !plan.Gated:
	case d.Gate == nil || d.Gate.Verdict == "":
		status, reason, message = metav1.ConditionUnknown, v1alpha1.ReasonAnalyzing, "no batch has been judged yet"
	default:
		message, reason = d.Gate.Message, gateReason(d.Gate.Verdict)
		switch d.Gate.Verdict {
		case v1alpha1.VerdictNoData:
			status = metav1.ConditionUnknown
		case v1alpha1.VerdictError, v1alpha1.VerdictFail:
			status = metav1.ConditionFalse
		}
	}
	return condition(v1alpha1.ConditionGateHealthy, status, reason, message)
}

// gateReason names a verdict in conditions and events.
func gateReason(verdict v1alpha1.Verdict) v1alpha1.Reason {
	switch verdict {
	case v1alpha1.VerdictPass:
		return v1alpha1.ReasonGatePassed
	case v1alpha1.VerdictFail:
		return v1alpha1.ReasonGateFailed
	case v1alpha1.VerdictError:
		return v1alpha1.ReasonGateError
	}
	return v1alpha1.ReasonGateNoData
}

func condition(kind string, status metav1.ConditionStatus, reason v1alpha1.Reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: string(reason), Message: Clip(message)}
}

// maxMessage keeps messages, which may quote the author, far below the 32 KiB that the API
// server allows in a condition and the 1 KiB that it allows in an event.
const maxMessage = 1000

// Clip shortens a message to what conditions and events can hold.
func Clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}

func setConditions(status *v1alpha1.CanaryStatus, list []metav1.Condition, generation int64, now time.Time) {
	for _, c := range list {
		c.ObservedGeneration = generation
		c.LastTransitionTime = stamp(now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
}
