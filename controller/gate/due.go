package gate

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Due is how long it is until the gate must be looked at again; 0 means that an evaluation
// is due now. It depends on nothing but its arguments, so that a controller that starts
// anew goes on in the rhythm of the one before and judges nothing twice within an interval.
//
// The first evaluation comes one to two intervals after the window starts, at a moment
// that differs from Canary to Canary and from batch to batch, so that many released at
// once do not ask Prometheus at once. It is never later than the hold deadline, at which
// Due also ends when the next evaluation is to come after it, for [Decide] to act.
func Due(spec *v1alpha1.Gate, status *v1alpha1.GateStatus, s Situation, now time.Time) time.Duration {
	spec = defaulted(spec)
	every := max(spec.Interval.Duration, time.Second)
	if !current(status, s) || status.EvaluatedAt == nil {
		deadline := s.WindowStart.Add(spec.HoldDeadline.Duration)
		first := s.WindowStart.Add(every + spread(s, every))
		if deadline.Before(first) {
			first = deadline
		}
		return max(0, first.Sub(now))
	}
	if clockWentBack(status, now) {
		return 0
	}
	if !evaluatedAs(spec, status) {
		// Not within the second of the one before, which status could not tell from it.
		return max(0, status.EvaluatedAt.Add(time.Second).Sub(now))
	}
	next, deadline := status.EvaluatedAt.Add(every), heldSince(status, now).Add(spec.HoldDeadline.Duration)
	if now.Before(deadline) && deadline.Before(next) {
		next = deadline
	}
	return max(0, next.Sub(now))
}

// spread is from 0 to below every, evenly over all Canaries and batches.
func spread(s Situation, every time.Duration) time.Duration {
	h := fnv.New64a()
	// A hash never fails to be written to.
	_, _ = fmt.Fprintf(h, "%s/%s/%d", s.Namespace, s.Canary, s.Batch)
	return time.Duration(h.Sum64() % uint64(every))
}
