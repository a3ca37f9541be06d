package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Action is what the gate asks for.
type Action string

// The actions, as decisions in status name them.
const (
	// Hold keeps the batch as it is until there is a verdict.
	Hold Action = "Hold"
	// Promote lets the batch finish.
	Promote Action = "Promote"
	// Pause keeps the batch as it is until a person decides.
	Pause Action = "Pause"
	// Rollback goes back to the old version.
	Rollback Action = "Rollback"
	// Override lets the batch finish because a person says so.
	Override Action = "Override"
)

// Outcome is what to do about a batch now.
type Outcome struct {
	Verdict v1alpha1.Verdict
	Action  Action
	// Message says why in one sentence.
	Message string
	// HoldLeft is how long the batch may stay without a verdict still; 0 when it no longer may.
	HoldLeft time.Duration
}

// trustedFor is for how many intervals a verdict of health may be acted on. After that, as
// when no controller ran for a while, it takes another evaluation.
const trustedFor = 3

// lookedFor is for how long an evaluation counts as a look at a batch that is held. When it
// ends it is as old as its answers took: four timeouts, of a minute at most, where a server
// hangs.
const lookedFor = 5 * time.Minute

// Decide says what follows from the status. Override is a person's word that the batch
// may pass. The result is the status with the decision noted, if it is another than the
// last; it shares nothing with the arguments, which are only read.
//
// Harm acts first, then a pause in force stands until a person ends it, then health
// promotes, and what is neither is held until the deadline.
func Decide(spec *v1alpha1.Gate, status *v1alpha1.GateStatus, s Situation, override bool, now time.Time) (Outcome, *v1alpha1.GateStatus) {
	after := continued(status, s)
	o := outcome(defaulted(spec), after, s, override, now)
	if o.Action == Pause && after.PausedAt == nil {
		after.PausedAt = new(second(now))
	}
	note(after, o, now)
	return o, after
}

func outcome(spec *v1alpha1.Gate, status *v1alpha1.GateStatus, s Situation, override bool, now time.Time) Outcome {
	deadline := spec.HoldDeadline.Duration
	o := Outcome{
		Verdict: status.Verdict, Action: Hold, Message: status.Message,
		HoldLeft: max(0, heldSince(status, now).Add(deadline).Sub(now)),
	}
	lately := status.EvaluatedAt != nil && trusted(spec, status, now)
	looked := lately || status.EvaluatedAt != nil && !clockWentBack(status, now) && now.Sub(status.EvaluatedAt.Time) <= lookedFor
	switch {
	case status.EvaluatedAt == nil:
		o.Verdict, o.Message = v1alpha1.VerdictNoData, "not evaluated yet"
	case !evaluatedAs(spec, status):
		lately, looked = false, false
		o.Verdict, o.Message = v1alpha1.VerdictNoData, "the checks have changed and must be evaluated again"
	}
	switch {
	case override:
		o.Action = Override
		o.Message = "a person let the batch through; " + o.Message
	case o.Verdict == v1alpha1.VerdictFail:
		o.Action = act(spec.OnFail)
	case status.PausedAt != nil:
		o.Action = Pause
		o.Message = fmt.Sprintf("waiting for a person since %s; %s", status.PausedAt.UTC().Format(time.RFC3339), o.Message)
	case o.Verdict == v1alpha1.VerdictPass && lately:
		o.Action = Promote
	case o.HoldLeft == 0 && looked && !s.Held:
		// Neither because no controller was there to look, nor while a person holds it anyway.
		o.Action = act(spec.OnHold)
		o.Message = fmt.Sprintf("no verdict within %s; %s", deadline, o.Message)
	case o.Verdict == v1alpha1.VerdictPass:
		o.Message = "must be evaluated again, as the last time is too long ago; " + o.Message
	}
	return o
}

// heldSince is what the hold deadline counts from: the moment itself while the gate passes.
func heldSince(status *v1alpha1.GateStatus, now time.Time) time.Time {
	switch {
	case status.HeldSince != nil:
		return status.HeldSince.Time
	case status.Verdict == v1alpha1.VerdictPass:
		return now
	}
	return status.WindowStart.Time
}

// trusted says that the verdict is recent enough to promote by. The minute is for
// intervals of seconds, in which a slow sync must not make a verdict old.
func trusted(spec *v1alpha1.Gate, status *v1alpha1.GateStatus, now time.Time) bool {
	return !clockWentBack(status, now) && now.Sub(status.EvaluatedAt.Time) <= max(trustedFor*spec.Interval.Duration, time.Minute)
}

// clockWentBack says that the last evaluation was later than now, as when another controller,
// whose clock is ahead, made it. How long ago it was cannot be known. The second is for
// clocks that are being adjusted.
func clockWentBack(status *v1alpha1.GateStatus, now time.Time) bool {
	return status.EvaluatedAt.Sub(now) > time.Second
}

func act(configured v1alpha1.GateAction) Action {
	if configured == v1alpha1.GateRollback {
		return Rollback
	}
	return Pause
}

// note adds the decision to those in status when the verdict or the action has changed, or
// the batch. The oldest go first.
func note(status *v1alpha1.GateStatus, o Outcome, now time.Time) {
	if status.EvaluatedAt == nil && o.Action == Hold {
		// Nothing has been decided before the first evaluation.
		return
	}
	d := v1alpha1.GateDecision{
		Time: second(now), Batch: status.Batch, Verdict: o.Verdict, Action: string(o.Action), Evidence: o.Message, Number: 1,
	}
	if n := len(status.Decisions); n > 0 && status.Decisions[n-1].Batch == status.Batch {
		last := status.Decisions[n-1]
		if last.Verdict == d.Verdict && last.Action == d.Action {
			return
		}
		d.Number = last.Number + 1
	}
	if o.Action != Hold && status.EvaluatedAt != nil {
		for _, c := range status.Checks {
			d.Checks = append(d.Checks, v1alpha1.DecisionCheck{
				Name: c.Name, Verdict: c.Verdict, Value: c.Value, Limit: c.Limit, New: clone(c.New), Old: clone(c.Old),
			})
			if c.Verdict == v1alpha1.VerdictFail {
				d.TraceIDs = append(d.TraceIDs, c.TraceIDs...)
			}
		}
		slices.Sort(d.TraceIDs)
		d.TraceIDs = slices.Compact(d.TraceIDs)
		d.TraceIDs = d.TraceIDs[:min(len(d.TraceIDs), maxDecisionTraceIDs)]
	}
	decisions := append(status.Decisions, d)
	status.Decisions = slices.Clone(decisions[max(0, len(decisions)-maxDecisions):])
}
