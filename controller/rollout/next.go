package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Next decides what a rollout does. It is a function of its arguments alone and may be
// called again with the outcome of a half-done earlier decision: every action describes
// a wanted state, not a change.
//
// The gate's evidence matters only once the current batch is available. The deadline is
// judged before anything else can fail, and a rollback is legal from every state.
func Next(plan Plan, seen Observed, state State, evidence Evidence, now time.Time) Decision {
	s := step{plan: plan, seen: seen, state: state, now: now}
	if waits := s.begin(); waits {
		return s.out
	}
	s.retire()
	rollout := s.state.Rollout
	if plan.Type == v1alpha1.CanaryRollback && rollout.RollbackStartedAt == nil && rollout.Outcome != v1alpha1.OutcomeRolledBack {
		s.startRollback("requested by spec.info.type CanaryRollback")
	}
	switch {
	case rollout.Outcome == v1alpha1.OutcomeRolledBack:
		s.say(v1alpha1.PhaseRolledBack, v1alpha1.ReasonRolledBack,
			"rolled back: %s; a new version or another value of the annotation %s starts again", rollout.RollbackReason, v1alpha1.AnnotationRetry)
	case rollout.RollbackStartedAt != nil:
		s.rollback()
	case plan.Type == v1alpha1.NormalDeploy:
		s.normal()
	case rollout.Outcome == v1alpha1.OutcomeFailed:
		s.failed()
	case rollout.Outcome == v1alpha1.OutcomeCompleted:
		s.say(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted, "%s is released", plan.NewName)
	default:
		s.forward(evidence)
	}
	for name, workload := range map[string]Workload{plan.NewName: seen.New, plan.OldName: seen.Old} {
		if action := s.out.Actions[name]; action.Verb == Apply {
			action.Replicas = workload.steady(action.Replicas)
			s.out.act(name, action)
		}
	}
	s.out.State = s.state
	return s.out
}

// step is one decision being made.
type step struct {
	plan  Plan
	seen  Observed
	state State
	now   time.Time
	out   Decision
}

func (s *step) say(phase v1alpha1.Phase, reason v1alpha1.Reason, format string, args ...any) {
	s.out.Phase, s.out.Reason, s.out.Message = phase, reason, fmt.Sprintf(format, args...)
}

// failed says why nothing is done any more: a missed deadline, or, in a batch that had been
// available, the gate.
func (s *step) failed() {
	s.out.Stalled = true
	reason, why := v1alpha1.ReasonDeadlineExceeded, fmt.Sprintf("was not available within %s", s.plan.ProgressDeadline)
	if s.state.Batches[s.state.CurrentBatch-1].AvailableAt != nil {
		reason, why = v1alpha1.ReasonGateFailed, "was failed by the gate and there is no old version to go back to"
	}
	s.say(v1alpha1.PhaseFailed, reason, "batch %d %s; nothing is changed until it is rolled back, retried or replaced by a new version",
		s.state.CurrentBatch, why)
}

// begin starts a rollout when the id changed or a finished one is to be retried. It
// returns true when the decision is to wait.
func (s *step) begin() (waits bool) {
	old := s.state.Rollout
	if old != nil && old.ID == s.plan.ID && len(s.state.Batches) > 0 {
		retry := old.Retry != s.plan.Retry
		over := old.Outcome == v1alpha1.OutcomeRolledBack || old.Outcome == v1alpha1.OutcomeFailed
		if !retry || !over {
			// A rollout under way is not retried; what it is told now must not restart it later.
			old.Retry = s.plan.Retry
			return false
		}
	}
	if s.plan.Paused && s.plan.Type != v1alpha1.CanaryRollback {
		s.out.State = s.state
		s.say(v1alpha1.PhasePending, v1alpha1.ReasonPaused, "paused before the rollout started; spec.paused must be false")
		return true
	}
	if old != nil && old.ID != s.plan.ID && unfinished(old) {
		s.supersede(s.state.New)
	}
	s.state.Retiring = slices.DeleteFunc(s.state.Retiring, func(name string) bool {
		return name == s.plan.NewName || name == s.plan.OldName
	})
	s.state.Rollout = &v1alpha1.RolloutStatus{ID: s.plan.ID, Retry: s.plan.Retry, StartedAt: stamp(s.now)}
	s.state.New = s.plan.NewName
	s.state.CurrentBatch = 1
	s.state.Batches = []v1alpha1.BatchStatus{{Target: s.plan.Targets[0], StartedAt: stamp(s.now)}}
	return false
}

// unfinished says whether an attempt left its new Deployment half released. A completed
// one is the running version, a rolled-back one is gone.
func unfinished(r *v1alpha1.RolloutStatus) bool {
	return r.Outcome == "" || r.Outcome == v1alpha1.OutcomeFailed
}

func (s *step) supersede(name string) {
	if name != "" && !slices.Contains(s.state.Retiring, name) {
		s.state.Retiring = append(s.state.Retiring, name)
	}
}

// retire drains superseded Deployments by what the others have available, and deletes
// them when nothing depends on them any more.
func (s *step) retire() {
	available := s.seen.New.counted()
	if !s.plan.SameName() {
		available += s.seen.Old.counted()
	}
	needed := max(0, s.plan.Total-available)
	var left []string
	for _, name := range s.state.Retiring {
		workload := s.seen.Retiring[name]
		if !workload.Exists {
			continue
		}
		left = append(left, name)
		keep := min(workload.Replicas, needed)
		needed -= keep
		s.out.act(name, drain(workload, keep))
	}
	s.state.Retiring = left
}

// drain returns the action that leaves a workload with at most keep replicas, and with
// none that are not available: they serve nobody, and may hold what others need to start.
func drain(workload Workload, keep int32) Action {
	if workload.Settled {
		keep = min(keep, workload.Available)
	}
	switch {
	case workload.Deleting || !workload.Exists:
		return Action{}
	case keep == 0:
		return Action{Verb: Delete}
	case keep < workload.Replicas:
		return Action{Verb: Scale, Replicas: keep}
	}
	return Action{}
}

// finish records how the attempt ended. It is called once for each end.
func (s *step) finish(outcome v1alpha1.Outcome) {
	keepFirstEnd(s.state.Rollout)
	s.state.Rollout.Outcome = outcome
	s.state.Rollout.FinishedAt = new(stamp(s.now))
}

// normal applies the new Deployment and keeps it as its manifest says for as long as the
// Canary says NormalDeploy; only the phase remembers whether it has been available once.
func (s *step) normal() {
	batch, rollout := &s.state.Batches[0], s.state.Rollout
	if batch.FinishedAt == nil {
		batch.Target = s.plan.Total
	}
	if !s.plan.Paused {
		s.out.act(s.plan.NewName, Action{Verb: Apply, Replicas: s.plan.Total})
	}
	s.clockPause(batch)
	if batch.AppliedAt == nil && rollout.Outcome == "" && s.applied(s.plan.Total) {
		batch.AppliedAt = new(stamp(s.now))
	}
	available := s.seen.New.whole(s.plan.Total)
	switch {
	case rollout.Outcome == v1alpha1.OutcomeCompleted:
	case available && !s.plan.Paused && len(s.state.Retiring) == 0:
		batch.AvailableAt, batch.FinishedAt = new(stamp(s.now)), new(stamp(s.now))
		batch.Verdict = v1alpha1.VerdictPass
		s.finish(v1alpha1.OutcomeCompleted)
	case rollout.Outcome == "" && s.overdue(batch):
		s.finish(v1alpha1.OutcomeFailed)
	}
	switch {
	case rollout.Outcome == v1alpha1.OutcomeCompleted:
		s.say(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted, "%s is released", s.plan.NewName)
	case rollout.Outcome == v1alpha1.OutcomeFailed:
		s.out.Stalled = true
		s.say(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded,
			"%s was not available within %s; it is still being applied", s.plan.NewName, s.plan.ProgressDeadline)
	case s.plan.Paused:
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonPaused, "paused by spec.paused; %s is not being applied", s.plan.NewName)
	default:
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonWaitingForReplicas,
			"%d of %d replicas of %s are available", s.seen.New.Updated, s.plan.Total, s.plan.NewName)
	}
}

// clockPause keeps the time that a batch stood paused before it was available, which its
// deadline and its duration do not count.
func (s *step) clockPause(batch *v1alpha1.BatchStatus) {
	counts := s.plan.Paused && batch.AvailableAt == nil
	switch {
	case counts && batch.PausedAt == nil:
		batch.PausedAt = new(stamp(s.now))
	case !counts && batch.PausedAt != nil:
		batch.PausedSeconds += int64(s.now.Sub(batch.PausedAt.Time) / time.Second)
		batch.PausedAt = nil
	}
}

// overdue says whether a batch has missed its deadline, and otherwise asks to be called
// again when it will. The deadline counts from the batch's start whatever its pods do.
func (s *step) overdue(batch *v1alpha1.BatchStatus) bool {
	if s.plan.Paused || batch.AvailableAt != nil {
		return false
	}
	deadline := batch.StartedAt.Add(s.plan.ProgressDeadline + time.Duration(batch.PausedSeconds)*time.Second)
	if left := deadline.Sub(s.now); left > 0 {
		s.requeue(left)
		return false
	}
	return true
}

func (s *step) requeue(after time.Duration) {
	if s.out.RequeueAfter == 0 || after < s.out.RequeueAfter {
		s.out.RequeueAfter = after
	}
}
