package trace

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Results of an attempt and of a batch besides those of v1alpha1.Outcome.
const (
	// resultFinished is of a batch that was available, passed and approved.
	resultFinished = "Finished"
	// resultSuperseded is of what was under way when another attempt began.
	resultSuperseded = "Superseded"
	// resultDeleted is of what was under way when the Canary was deleted.
	resultDeleted = "Deleted"
)

// kind of a span.
type kind int

const (
	kindRollout kind = iota
	kindBatch
	kindApply
	kindWait
	kindGate
	kindRollback
)

// piece is one span of an attempt. Batches count from 1, for the kinds that have one.
type piece struct {
	kind  kind
	batch int
}

// path is what the span's id is made of. It must stay as it is.
func (p piece) path() string {
	switch p.kind {
	case kindRollout:
		return "rollout"
	case kindRollback:
		return "rollback"
	case kindBatch:
		return fmt.Sprintf("batch/%d", p.batch)
	}
	leaf := map[kind]string{kindApply: "apply", kindWait: "wait", kindGate: "gate"}[p.kind]
	return fmt.Sprintf("batch/%d/%s", p.batch, leaf)
}

func (p piece) name() string {
	switch p.kind {
	case kindRollout:
		return SpanRollout
	case kindBatch:
		return fmt.Sprintf("%s %d", SpanBatch, p.batch)
	case kindApply:
		return SpanApply
	case kindWait:
		return SpanWait
	case kindGate:
		return SpanGate
	}
	return SpanRollback
}

// parent returns the piece above, and false for the one at the top.
func (p piece) parent() (piece, bool) {
	switch p.kind {
	case kindRollout:
		return piece{}, false
	case kindBatch, kindRollback:
		return piece{kind: kindRollout}, true
	}
	return piece{kind: kindBatch, batch: p.batch}, true
}

// end is how and when something ended; at is nil while it goes on.
type end struct {
	at     *metav1.Time
	result string
}

// attempt is one attempt at a release, as far as status tells. What it says of a piece
// that has ended must be the same in every later status of the attempt.
type attempt struct {
	canary *v1alpha1.Canary
	// trace and parent are ids; parent is empty unless a CI job's trace is continued.
	trace, parent []byte
	// over is the end from outside: superseded, or deleted with the Canary.
	over end
}

// newAttempt returns the attempt that c's status is about, and false when it is in no
// trace. Superseded is when another attempt took its place, or nil.
func newAttempt(c *v1alpha1.Canary, superseded *metav1.Time) (attempt, bool) {
	if c == nil || c.Status.Rollout == nil {
		return attempt{}, false
	}
	a := attempt{canary: c}
	var ok bool
	if a.trace, ok = decodeID(c.Status.Rollout.TraceID, traceIDSize); !ok {
		return attempt{}, false
	}
	if parent, ok := decodeID(c.Status.Rollout.ParentSpanID, spanIDSize); ok {
		a.parent = parent
	}
	switch {
	case superseded != nil:
		a.over = end{superseded, resultSuperseded}
	case c.DeletionTimestamp != nil:
		a.over = end{c.DeletionTimestamp, resultDeleted}
	}
	return a, true
}

func (a attempt) rollout() *v1alpha1.RolloutStatus { return a.canary.Status.Rollout }

// attemptID tells the attempts of a Canary apart. It leaves out the retry annotation,
// which may change while an attempt is under way and then does not begin another.
type attemptID struct {
	rollout string
	started int64
}

func idOf(r *v1alpha1.RolloutStatus) attemptID { return attemptID{r.ID, r.StartedAt.Unix()} }

func (a attempt) id() attemptID { return idOf(a.rollout()) }

// span is a piece of an attempt.
type span struct {
	of    attemptID
	piece piece
}

func sameAttempt(a, b *v1alpha1.RolloutStatus) bool {
	return a != nil && b != nil && idOf(a) == idOf(b)
}

// first is how the attempt ended first. One that had ended and is rolled back later, or a
// NormalDeploy that becomes available after its deadline, has been told as ended by then.
func (a attempt) first() end {
	r := a.rollout()
	switch {
	case r.EndedFirst != nil:
		return end{&r.EndedFirst.FinishedAt, string(r.EndedFirst.Outcome)}
	case r.Outcome != "" && r.FinishedAt != nil:
		return end{r.FinishedAt, string(r.Outcome)}
	}
	return a.over
}

// forward is how the way forward ended: with the attempt, or with the start of its rollback.
func (a attempt) forward() end {
	if r := a.rollout(); r.EndedFirst == nil && r.RollbackStartedAt != nil {
		return end{r.RollbackStartedAt, string(v1alpha1.OutcomeRolledBack)}
	}
	return a.first()
}

// back is how the rollback ended; only meant for attempts that have one.
func (a attempt) back() end {
	if r := a.rollout(); r.Outcome == v1alpha1.OutcomeRolledBack && r.FinishedAt != nil {
		return end{r.FinishedAt, string(r.Outcome)}
	}
	return a.over
}

// batch is the course of one batch, up to the end of the way forward.
type batch struct {
	applied, available *metav1.Time
	end                end
}

// batch returns the course of batch n, from 1.
func (a attempt) batch(n int) batch {
	r, s := a.rollout(), a.canary.Status.Batches[n-1]
	b := batch{applied: s.AppliedAt, available: s.AvailableAt, end: a.forward()}
	finished := s.FinishedAt
	if r.EndedFirst != nil && r.EndedFirst.Outcome == v1alpha1.OutcomeFailed && r.RollbackStartedAt == nil {
		// A NormalDeploy that came to be available after all. Its batch had failed.
		b.available, finished = nil, nil
		if b.applied != nil && r.EndedFirst.FinishedAt.Before(b.applied) {
			b.applied = nil
		}
	}
	switch {
	case finished != nil:
		b.end = end{finished, resultFinished}
	case b.end.result == string(v1alpha1.OutcomeCompleted):
		b.end.result = resultFinished
	}
	return b
}

// neverRan says that an attempt began as a rollback, before its first batch did anything.
func (a attempt) neverRan(n int) bool {
	r, s := a.rollout(), &a.canary.Status.Batches[n-1]
	return n == 1 && r.RollbackStartedAt.Equal(&r.StartedAt) && s.AppliedAt == nil && s.AvailableAt == nil
}

// decisions returns those about batch n, and false unless status still has all of them
// that it ever had at once: it keeps the latest of the rollout, and what a span says must
// not depend on how many there were since.
func (a attempt) decisions(n int) ([]v1alpha1.GateDecision, bool) {
	gate := a.canary.Status.Gate
	if gate == nil {
		return nil, false
	}
	var list []v1alpha1.GateDecision
	for _, d := range gate.Decisions {
		if int(d.Batch) == n {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return nil, false
	}
	made := int(list[len(list)-1].Number)
	return list, len(list) >= min(made, keptDecisions)
}

// keptDecisions is how many decisions status.gate.decisions holds.
const keptDecisions = 30

// ended lists the pieces whose end is in status, those inside before what they are in.
func (a attempt) ended() []piece {
	var list []piece
	for n := 1; n <= len(a.canary.Status.Batches); n++ {
		if a.neverRan(n) {
			continue
		}
		b := a.batch(n)
		over := b.end.at != nil
		if b.applied != nil || over && b.available == nil {
			list = append(list, piece{kindApply, n})
		}
		if b.available != nil || over && b.applied != nil {
			list = append(list, piece{kindWait, n})
		}
		if !over {
			continue
		}
		if _, whole := a.decisions(n); whole && b.available != nil {
			list = append(list, piece{kindGate, n})
		}
		list = append(list, piece{kindBatch, n})
	}
	if a.rollout().RollbackStartedAt != nil && a.back().at != nil {
		list = append(list, piece{kind: kindRollback})
	}
	if a.first().at != nil {
		list = append(list, piece{kind: kindRollout})
	}
	return list
}
