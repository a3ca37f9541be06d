package canary

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Kind is what completed.
type Kind int

// The kinds.
const (
	// BatchCompleted is the end of one batch.
	BatchCompleted Kind = iota
	// RolloutCompleted is the end of one attempt at a release.
	RolloutCompleted
)

// Result is how a batch or a rollout ended.
type Result string

// The results. Finished is of batches only and Completed of rollouts only.
const (
	Finished   Result = "Finished"
	Completed  Result = Result(v1alpha1.OutcomeCompleted)
	RolledBack Result = Result(v1alpha1.OutcomeRolledBack)
	Failed     Result = Result(v1alpha1.OutcomeFailed)
	// Superseded is the end of an attempt that was under way when the Canary
	// was changed and a new attempt began.
	Superseded Result = "Superseded"
)

// Completion is a batch or a rollout that a status change completed.
type Completion struct {
	Kind   Kind
	Result Result
	// Batch is the batch's number from 1; 0 for a rollout.
	Batch int
	// Duration is the time taken to make progress, without people: a batch
	// from its start until its replicas were available or it was given up, less
	// the time it was paused; a rollout the sum of its batches, and of its
	// rollback from its start to its end.
	Duration time.Duration
	// TraceID of the rollout, or "".
	TraceID string
}

// Completions derives from a change of a Canary's status what it completed.
// Before and after must be the status that a successful write replaced and the
// one that it wrote; either may be nil.
//
// Applied to every write of an attempt, each of its batches yields one
// Completion and the attempt one for each outcome it had: mostly one, and a
// second when it is rolled back after it had completed or failed. Writes that
// repeat a status yield none.
func Completions(before, after *v1alpha1.CanaryStatus) []Completion {
	if after == nil || after.Rollout == nil {
		return nil
	}
	var out []Completion
	if before == nil || before.Rollout == nil {
		return appendCompletions(out, &v1alpha1.CanaryStatus{}, after)
	}
	if sameAttempt(before.Rollout, after.Rollout) {
		return appendCompletions(out, before, after)
	}
	if before.Rollout.Outcome == "" {
		ended := *before
		rollout := *before.Rollout
		rollout.Outcome = v1alpha1.Outcome(Superseded)
		rollout.FinishedAt = &after.Rollout.StartedAt
		ended.Rollout = &rollout
		out = appendCompletions(out, before, &ended)
	}
	return appendCompletions(out, &v1alpha1.CanaryStatus{}, after)
}

// sameAttempt ignores the retry annotation, which may change while an attempt is
// under way and then does not start another.
func sameAttempt(a, b *v1alpha1.RolloutStatus) bool {
	return a.ID == b.ID && a.StartedAt.Equal(&b.StartedAt)
}

// appendCompletions compares two statuses of one attempt; before may be empty.
func appendCompletions(out []Completion, before, after *v1alpha1.CanaryStatus) []Completion {
	for i := range after.Batches {
		b := &after.Batches[i]
		result := batchResult(after, b)
		if result == "" {
			continue
		}
		if before.Rollout == nil && result == RolledBack {
			// The attempt began as a rollback; its batch never ran.
			continue
		}
		if i < len(before.Batches) && before.Rollout != nil && batchResult(before, &before.Batches[i]) != "" {
			// It had ended already, be it in another way.
			continue
		}
		out = append(out, Completion{
			Kind: BatchCompleted, Result: result, Batch: i + 1,
			Duration: progress(after.Rollout, b), TraceID: after.Rollout.TraceID,
		})
	}
	earlier := v1alpha1.Outcome("")
	if before.Rollout != nil {
		earlier = before.Rollout.Outcome
	}
	if now := after.Rollout.Outcome; now != "" && now != earlier {
		out = append(out, Completion{
			Kind: RolloutCompleted, Result: Result(now),
			Duration: rolloutProgress(after), TraceID: after.Rollout.TraceID,
		})
	}
	return out
}

// batchResult is how a batch ended, or "" while it goes on.
func batchResult(s *v1alpha1.CanaryStatus, b *v1alpha1.BatchStatus) Result {
	switch r := s.Rollout; {
	case b.FinishedAt != nil:
		return Finished
	case r.RollbackStartedAt != nil:
		return RolledBack
	case r.Outcome == v1alpha1.OutcomeCompleted:
		// A rollout does not complete before its batches do; be consistent if
		// it should.
		return Finished
	default:
		return Result(r.Outcome)
	}
}

// progress is the time a batch made progress.
func progress(r *v1alpha1.RolloutStatus, b *v1alpha1.BatchStatus) time.Duration {
	paused := time.Duration(b.PausedSeconds) * time.Second
	end := firstTime(b.AvailableAt, b.FinishedAt, r.RollbackStartedAt, r.FinishedAt)
	if end == nil {
		return 0
	}
	if b.AvailableAt == nil && b.PausedAt != nil && b.PausedAt.Before(end) {
		// It ended in the middle of a pause.
		end = b.PausedAt
	}
	return max(0, end.Sub(b.StartedAt.Time)-paused)
}

// rolloutProgress is the time an attempt made progress.
func rolloutProgress(s *v1alpha1.CanaryStatus) time.Duration {
	var sum time.Duration
	r := s.Rollout
	rolledBack := r.RollbackStartedAt != nil
	if rolledBack && r.FinishedAt != nil {
		sum += max(0, r.FinishedAt.Sub(r.RollbackStartedAt.Time))
	}
	for i := range s.Batches {
		b := &s.Batches[i]
		if rolledBack && b.StartedAt.Equal(&r.StartedAt) && r.RollbackStartedAt.Equal(&r.StartedAt) {
			// The attempt began as a rollback; its batch never ran.
			continue
		}
		sum += progress(r, b)
	}
	return sum
}

func firstTime(times ...*metav1.Time) *metav1.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return nil
}
