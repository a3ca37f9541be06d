package rollout

import (
	"fmt"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// forward moves replicas from the old version to the new one, a batch at a time.
func (s *step) forward(evidence Evidence) {
	batch := &s.state.Batches[s.state.CurrentBatch-1]
	last := int(s.state.CurrentBatch) == len(s.plan.Targets)
	released := last && batch.FinishedAt != nil
	if released {
		s.removeOld()
		return
	}
	batch.Target = s.plan.Targets[s.state.CurrentBatch-1]
	inPlace := s.moveTo(batch.Target)
	if batch.AppliedAt == nil && (inPlace || s.applied(batch.Target)) {
		batch.AppliedAt = new(stamp(s.now))
	}
	if inPlace && batch.AvailableAt == nil {
		batch.AvailableAt = new(stamp(s.now))
		if s.plan.Gated {
			// What the gate said was not about this batch as it stands now.
			evidence = Evidence{Action: GateHold, Message: "its evidence begins now"}
		}
	}
	s.clockPause(batch)
	if s.overdue(batch) {
		s.finish(v1alpha1.OutcomeFailed)
		s.out.Actions, s.out.Stalled = nil, true
		s.say(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded,
			"batch %d was not available within %s: %d of %d replicas of %s are",
			s.state.CurrentBatch, s.plan.ProgressDeadline, s.seen.New.Updated, batch.Target, s.plan.NewName)
		return
	}
	if batch.AvailableAt != nil {
		batch.Verdict, s.out.Verdict = evidence.Verdict, evidence.Verdict
	}
	s.clockBreakage(batch, inPlace)
	switch {
	case batch.AvailableAt != nil && evidence.Action == GateRollback:
		// Harm is harm, whether or not every replica is still there.
		s.failGate(evidence.Message)
	case !inPlace:
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonWaitingForReplicas,
			"batch %d: %d of %d replicas of %s are available", s.state.CurrentBatch, s.seen.New.Updated, batch.Target, s.plan.NewName)
		s.noteHold()
	case evidence.Action == GatePause:
		s.say(v1alpha1.PhaseAwaitingApproval, v1alpha1.ReasonGatePaused, "batch %d waits for a person: %s", s.state.CurrentBatch, evidence.Message)
	case evidence.Action != GatePromote:
		s.say(v1alpha1.PhaseAnalyzing, v1alpha1.ReasonAnalyzing, "batch %d is available and held: %s", s.state.CurrentBatch, evidence.Message)
		s.noteHold()
	case s.plan.Paused:
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonPaused, "batch %d is available; spec.paused holds the next step", s.state.CurrentBatch)
	case !s.plan.approved(s.state.CurrentBatch):
		s.say(v1alpha1.PhaseAwaitingApproval, v1alpha1.ReasonAwaitingApproval,
			"batch %d is available; set spec.info.currentBatch to %d or more to go on", s.state.CurrentBatch, s.state.CurrentBatch+1)
	default:
		s.finishBatch(batch, last)
	}
}

// applied says that the Deployments have been asked for what the batch wants: the new one
// at its target. What the old one gives up follows what becomes available.
func (s *step) applied(target int32) bool {
	return s.seen.New.Exists && s.seen.New.Current && s.seen.New.Replicas == target
}

// clockBreakage keeps since when a batch that was available is not any more. Its evidence
// and its start stay what they are; longer than the progress deadline shows as Stalled.
func (s *step) clockBreakage(batch *v1alpha1.BatchStatus, inPlace bool) {
	switch {
	case inPlace || batch.AvailableAt == nil:
		batch.BrokenAt = nil
		return
	case batch.BrokenAt == nil:
		batch.BrokenAt = new(stamp(s.now))
	}
	if left := batch.BrokenAt.Add(s.plan.ProgressDeadline).Sub(s.now); left > 0 {
		s.requeue(left)
		return
	}
	s.out.Stalled = true
}

// finishBatch ends a batch and begins the next. What the next one does waits for the next
// decision, so that it is written in status before anything is done about it.
func (s *step) finishBatch(batch *v1alpha1.BatchStatus, last bool) {
	batch.FinishedAt = new(stamp(s.now))
	if last {
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonBatchFinished, "all batches are finished")
		return
	}
	s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonBatchFinished, "batch %d is finished", s.state.CurrentBatch)
	s.state.CurrentBatch++
	s.state.Batches = append(s.state.Batches, v1alpha1.BatchStatus{
		Target: s.plan.Targets[s.state.CurrentBatch-1], StartedAt: stamp(s.now),
	})
}

// moveTo sets the actions that bring the new version to target and the old one to what
// is left, and says whether that is where they are. Capacity is never given up before
// its replacement is available:
//
//	old = total - min(available of new, target), and 0 or no less than its autoscaler allows
//	new = target, or, while it stands above target, no less than total - available of old
func (s *step) moveTo(target int32) (inPlace bool) {
	seen, plan := s.seen, s.plan
	hasOld := plan.OldName != ""

	newReplicas := target
	if seen.New.Replicas > target {
		newReplicas = max(target, min(seen.New.Replicas, plan.Total-seen.Old.counted()))
	}
	switch {
	case seen.New.Deleting:
	case hasOld && seen.New.Exists && newReplicas > target:
		// Its pod template stays as it is until it has no more replicas than the batch allows,
		// so that no more than a batch of it changes at once.
		if newReplicas < seen.New.Replicas {
			s.out.act(plan.NewName, Action{Verb: Scale, Replicas: newReplicas})
		}
	default:
		s.out.act(plan.NewName, Action{Verb: Apply, Replicas: newReplicas})
	}

	oldTarget := plan.Total - target
	if oldTarget > 0 {
		oldTarget = max(oldTarget, plan.OldFloor)
	}
	oldInPlace := true
	if hasOld {
		oldInPlace = oldTarget == 0 && (!seen.Old.Exists || seen.Old.Deleting) ||
			seen.Old.Exists && seen.Old.Settled && seen.Old.Replicas == oldTarget
	}
	if hasOld && !seen.Old.Deleting {
		oldReplicas := max(oldTarget, plan.Total-min(seen.New.Updated, target))
		if oldReplicas > 0 {
			oldReplicas = max(oldReplicas, plan.OldFloor)
		}
		if !seen.New.Settled {
			// What the new one's status says may be of an earlier spec: good enough to keep old
			// pods, not to give them up.
			oldReplicas = max(oldReplicas, seen.Old.Replicas)
		}
		if seen.Old.Exists || oldReplicas > 0 {
			s.out.act(plan.OldName, Action{Verb: Apply, Replicas: oldReplicas})
		}
	}
	return seen.New.whole(target) && seen.New.Replicas == target && oldInPlace
}

// approved says whether a person has let the rollout go on from the current batch.
func (p *Plan) approved(current int32) bool {
	if int(current) >= len(p.Targets) || p.Total == 0 {
		return true
	}
	switch p.Pause {
	case v1alpha1.PauseNone:
		return true
	case v1alpha1.PauseEach:
		return p.Approved > current
	default:
		return current != 1 || p.Approved > current
	}
}

// Held says that a person holds the rollout in a batch: paused, or not yet approved.
func (p *Plan) Held(batch int32) bool { return p.Paused || !p.approved(batch) }

// removeOld ends the last batch: the old version goes, and with it the rollout is complete.
func (s *step) removeOld() {
	old := s.seen.Old
	if s.plan.OldName != "" && (old.Exists || old.Deleting) {
		s.out.act(s.plan.NewName, Action{Verb: Apply, Replicas: s.plan.Total})
		s.out.act(s.plan.OldName, drain(old, 0))
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonBatchFinished, "all batches are finished; removing %s", s.plan.OldName)
		s.clockRemoval()
		return
	}
	if len(s.state.Retiring) > 0 {
		s.say(v1alpha1.PhaseProgressing, v1alpha1.ReasonBatchFinished, "all batches are finished; removing superseded Deployments")
		s.clockRemoval()
		return
	}
	s.finish(v1alpha1.OutcomeCompleted)
	s.say(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted, "%s is released", s.plan.NewName)
}

// clockRemoval shows a removal that takes longer than the progress deadline, such as one
// that somebody's finalizer holds up, as Stalled.
func (s *step) clockRemoval() {
	finished := s.state.Batches[s.state.CurrentBatch-1].FinishedAt
	if left := finished.Add(s.plan.ProgressDeadline).Sub(s.now); left > 0 {
		s.requeue(left)
		return
	}
	s.out.Stalled = true
}

// failGate answers evidence of harm: back to the old version, or, when there is none,
// a stop for a person.
func (s *step) failGate(evidence string) {
	if s.plan.OldName == "" {
		s.finish(v1alpha1.OutcomeFailed)
		s.out.Actions, s.out.Stalled = nil, true
		s.say(v1alpha1.PhaseFailed, v1alpha1.ReasonGateFailed, "the gate failed batch %d and there is no old version to go back to: %s", s.state.CurrentBatch, evidence)
		return
	}
	s.startRollback(fmt.Sprintf("the gate failed batch %d: %s", s.state.CurrentBatch, evidence))
	s.out.Actions = nil
	s.say(v1alpha1.PhaseRollingBack, v1alpha1.ReasonRollbackStarted, "rolling back: %s", s.state.Rollout.RollbackReason)
}

// noteHold says so when spec.paused is set while the batch waits for something else too.
func (s *step) noteHold() {
	if s.plan.Paused {
		s.out.Reason = v1alpha1.ReasonPaused
		s.out.Message += "; spec.paused holds the next step"
	}
}
