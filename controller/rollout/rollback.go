package rollout

import (
	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// startRollback turns the rollout round. It is legal from every state.
func (s *step) startRollback(reason string) {
	rollout := s.state.Rollout
	rollout.RollbackStartedAt = new(stamp(s.now))
	rollout.RollbackReason = reason
	keepFirstEnd(rollout)
	rollout.Outcome, rollout.FinishedAt = "", nil
}

// rollback brings the old version to full and drains the new one by what the old one has
// available. With one name for both it applies the old manifest in place.
func (s *step) rollback() {
	old, total := s.seen.Old, s.plan.Total
	full := old.whole(total)
	if !old.Deleting {
		s.out.act(s.plan.OldName, Action{Verb: Apply, Replicas: total})
	}
	gone := s.plan.SameName() || !s.seen.New.Exists
	if !gone {
		keep := max(0, total-old.counted())
		if full {
			keep = 0
		}
		s.out.act(s.plan.NewName, drain(s.seen.New, keep))
	}
	if full && gone && len(s.state.Retiring) == 0 {
		s.finish(v1alpha1.OutcomeRolledBack)
		s.out.Actions = nil
		s.say(v1alpha1.PhaseRolledBack, v1alpha1.ReasonRolledBack, "%s is back: %s", s.plan.OldName, s.state.Rollout.RollbackReason)
		return
	}
	s.say(v1alpha1.PhaseRollingBack, v1alpha1.ReasonRollbackStarted, "rolling back: %d of %d replicas of %s are available; %s",
		old.Available, total, s.plan.OldName, s.state.Rollout.RollbackReason)

	deadline := s.state.Rollout.RollbackStartedAt.Add(s.plan.ProgressDeadline)
	if left := deadline.Sub(s.now); left > 0 {
		s.requeue(left)
		return
	}
	s.out.Stalled = true
}

// keepFirstEnd remembers how an attempt that goes on had ended.
func keepFirstEnd(r *v1alpha1.RolloutStatus) {
	if r.Outcome != "" && r.FinishedAt != nil && r.EndedFirst == nil {
		r.EndedFirst = &v1alpha1.RolloutEnd{Outcome: r.Outcome, FinishedAt: *r.FinishedAt}
	}
}
