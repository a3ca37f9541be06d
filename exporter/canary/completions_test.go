package canary

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// at is a time so many seconds into the tests' rollout.
func at(seconds int) metav1.Time { return metav1.Unix(1_764_489_600+int64(seconds), 0) }

func at1(seconds int) *metav1.Time { t := at(seconds); return &t }

func status(r v1alpha1.RolloutStatus, batches ...v1alpha1.BatchStatus) *v1alpha1.CanaryStatus {
	return &v1alpha1.CanaryStatus{Rollout: &r, Batches: batches}
}

func TestCompletions(t *testing.T) {
	running := v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: at(0), TraceID: "t"}
	ended := func(o v1alpha1.Outcome, second int) v1alpha1.RolloutStatus {
		r := running
		r.Outcome, r.FinishedAt = o, at1(second)
		return r
	}
	rollingBack := running
	rollingBack.RollbackStartedAt = at1(100)
	rolledBack := rollingBack
	rolledBack.Outcome, rolledBack.FinishedAt = v1alpha1.OutcomeRolledBack, at1(130)
	next := v1alpha1.RolloutStatus{ID: "v1-b", StartedAt: at(500), TraceID: "u"}

	first := v1alpha1.BatchStatus{StartedAt: at(0)}
	firstAvailable := v1alpha1.BatchStatus{StartedAt: at(0), AvailableAt: at1(20)}
	// Available after 20 s, approved by a person an hour later.
	firstDone := v1alpha1.BatchStatus{StartedAt: at(0), AvailableAt: at1(20), FinishedAt: at1(3620)}
	second := v1alpha1.BatchStatus{StartedAt: at(3620)}
	// 80 s of which 50 s were paused.
	secondDone := v1alpha1.BatchStatus{StartedAt: at(3620), AvailableAt: at1(3700), FinishedAt: at1(3700), PausedSeconds: 50}
	pausing := v1alpha1.BatchStatus{StartedAt: at(0), PausedSeconds: 10, PausedAt: at1(60)}

	batch := func(n int, r Result, seconds int) Completion {
		return Completion{Kind: BatchCompleted, Result: r, Batch: n, Duration: time.Duration(seconds) * time.Second, TraceID: "t"}
	}
	rollout := func(r Result, seconds int) Completion {
		return Completion{Kind: RolloutCompleted, Result: r, Duration: time.Duration(seconds) * time.Second, TraceID: "t"}
	}
	for name, tc := range map[string]struct {
		before, after *v1alpha1.CanaryStatus
		want          []Completion
	}{
		"nothing at all":                  {nil, nil, nil},
		"not started":                     {nil, &v1alpha1.CanaryStatus{Phase: v1alpha1.PhasePending}, nil},
		"started":                         {nil, status(running, first), nil},
		"available is not finished":       {status(running, first), status(running, firstAvailable), nil},
		"a batch, without the approval":   {status(running, firstAvailable), status(running, firstDone, second), []Completion{batch(1, Finished, 20)}},
		"the next, without the pause":     {status(running, firstDone, second), status(running, firstDone, secondDone), []Completion{batch(2, Finished, 30)}},
		"completed":                       {status(running, firstDone, secondDone), status(ended(v1alpha1.OutcomeCompleted, 3702), firstDone, secondDone), []Completion{rollout(Completed, 50)}},
		"the same again":                  {status(ended(v1alpha1.OutcomeCompleted, 3702), firstDone, secondDone), status(ended(v1alpha1.OutcomeCompleted, 3702), firstDone, secondDone), nil},
		"batch and rollout in one write":  {status(running, first), status(ended(v1alpha1.OutcomeCompleted, 20), v1alpha1.BatchStatus{StartedAt: at(0), AvailableAt: at1(20), FinishedAt: at1(20)}), []Completion{batch(1, Finished, 20), rollout(Completed, 20)}},
		"completes at once":               {&v1alpha1.CanaryStatus{}, status(ended(v1alpha1.OutcomeCompleted, 0), v1alpha1.BatchStatus{StartedAt: at(0), AvailableAt: at1(0), FinishedAt: at1(0)}), []Completion{batch(1, Finished, 0), rollout(Completed, 0)}},
		"rollback starts":                 {status(running, first), status(rollingBack, first), []Completion{batch(1, RolledBack, 100)}},
		"rolled back":                     {status(rollingBack, first), status(rolledBack, first), []Completion{rollout(RolledBack, 130)}},
		"rolled back in one write":        {status(running, firstAvailable), status(rolledBack, firstAvailable), []Completion{batch(1, RolledBack, 20), rollout(RolledBack, 50)}},
		"gave up in a pause":              {status(running, pausing), status(rollingBack, pausing), []Completion{batch(1, RolledBack, 50)}},
		"failed":                          {status(running, first), status(ended(v1alpha1.OutcomeFailed, 600), first), []Completion{batch(1, Failed, 600), rollout(Failed, 600)}},
		"failed, now rolling back":        {status(ended(v1alpha1.OutcomeFailed, 60), first), status(rollingBack, first), nil},
		"failed, now there after all":     {status(ended(v1alpha1.OutcomeFailed, 60), first), status(ended(v1alpha1.OutcomeCompleted, 90), v1alpha1.BatchStatus{StartedAt: at(0), AvailableAt: at1(90), FinishedAt: at1(90)}), []Completion{rollout(Completed, 90)}},
		"completed, now rolling back":     {status(ended(v1alpha1.OutcomeCompleted, 20), firstDone), status(rollingBack, firstDone), nil},
		"superseded":                      {status(running, first), status(next, v1alpha1.BatchStatus{StartedAt: at(500)}), []Completion{batch(1, Superseded, 500), rollout(Superseded, 500)}},
		"the next after a completed one":  {status(ended(v1alpha1.OutcomeCompleted, 20), firstDone), status(next, v1alpha1.BatchStatus{StartedAt: at(500)}), nil},
		"the next after a failed one":     {status(ended(v1alpha1.OutcomeFailed, 20), first), status(next, v1alpha1.BatchStatus{StartedAt: at(500)}), nil},
		"retry noted while under way":     {status(running, first), status(v1alpha1.RolloutStatus{ID: "v1-a", Retry: "2", StartedAt: at(0)}, first), nil},
		"retried":                         {status(rolledBack, first), status(v1alpha1.RolloutStatus{ID: "v1-a", Retry: "2", StartedAt: at(200)}, v1alpha1.BatchStatus{StartedAt: at(200)}), nil},
		"begins as a rollback":            {nil, status(v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: at(0), RollbackStartedAt: at1(0)}, first), nil},
		"ends as it began, as a rollback": {status(v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: at(0), RollbackStartedAt: at1(0), TraceID: "t"}, first), status(v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: at(0), RollbackStartedAt: at1(0), Outcome: v1alpha1.OutcomeRolledBack, FinishedAt: at1(7), TraceID: "t"}, first), []Completion{rollout(RolledBack, 7)}},
		"invalid keeps the rollout":       {status(running, first), &v1alpha1.CanaryStatus{Phase: v1alpha1.PhaseInvalid, Rollout: &running, Batches: []v1alpha1.BatchStatus{first}}, nil},
		"deleted and created again":       {&v1alpha1.CanaryStatus{}, status(running, first), nil},
		"a clock that went back":          {status(running, first), status(running, v1alpha1.BatchStatus{StartedAt: at(0), AvailableAt: at1(-5), FinishedAt: at1(-5)}), []Completion{batch(1, Finished, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := tc.before.DeepCopy(), tc.after.DeepCopy()
			if diff := cmp.Diff(tc.want, Completions(tc.before, tc.after)); diff != "" {
				t.Error(diff)
			}
			if cmp.Diff(before, tc.before)+cmp.Diff(after, tc.after) != "" {
				t.Error("Completions changed a status")
			}
		})
	}
}

// Any course of rollouts, written down one step at a time, with a restart or a
// change of leader (which repeat a write) anywhere, counts every attempt and
// every batch that ran once.
func TestCompletionsCountOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := &v1alpha1.CanaryStatus{}
		got := map[string]int{}
		want := map[string]int{}
		clock := 0
		write := func(next *v1alpha1.CanaryStatus) {
			for _, c := range Completions(written, next) {
				got[fmt.Sprint(c.Kind, c.Result)]++
			}
			// A new leader that reads what is written decides the same again.
			if again := Completions(next, next.DeepCopy()); len(again) != 0 {
				t.Fatalf("an unchanged status completes %v", again)
			}
			written = next
		}
		for attempt := range rapid.IntRange(1, 4).Draw(t, "attempts") {
			s := &v1alpha1.CanaryStatus{Rollout: &v1alpha1.RolloutStatus{ID: fmt.Sprint("v1-", attempt), StartedAt: at(clock)}}
			batches := rapid.IntRange(1, 4).Draw(t, "batches")
			ends := rapid.SampledFrom([]string{"complete", "roll back", "fail", "supersede"}).Draw(t, "end")
			giveUpIn := batches
			if ends != "complete" {
				giveUpIn = rapid.IntRange(0, batches-1).Draw(t, "in batch")
			}
			for n := range batches {
				s = s.DeepCopy()
				s.Batches = append(s.Batches, v1alpha1.BatchStatus{StartedAt: at(clock)})
				write(s)
				clock += rapid.IntRange(1, 1000).Draw(t, "seconds")
				if n == giveUpIn {
					break
				}
				s = s.DeepCopy()
				s.Batches[n].AvailableAt = at1(clock)
				if rapid.Bool().Draw(t, "write availability") {
					write(s)
					s = s.DeepCopy()
				}
				s.Batches[n].FinishedAt = at1(clock)
				write(s)
				want[fmt.Sprint(BatchCompleted, Finished)]++
			}
			s = s.DeepCopy()
			switch ends {
			case "complete":
				s.Rollout.Outcome, s.Rollout.FinishedAt = v1alpha1.OutcomeCompleted, at1(clock)
				write(s)
				want[fmt.Sprint(RolloutCompleted, Completed)]++
			case "roll back":
				s.Rollout.RollbackStartedAt = at1(clock)
				if rapid.Bool().Draw(t, "write start of rollback") {
					write(s)
					s = s.DeepCopy()
				}
				s.Rollout.Outcome, s.Rollout.FinishedAt = v1alpha1.OutcomeRolledBack, at1(clock+5)
				write(s)
				want[fmt.Sprint(BatchCompleted, RolledBack)]++
				want[fmt.Sprint(RolloutCompleted, RolledBack)]++
			case "fail":
				s.Rollout.Outcome, s.Rollout.FinishedAt = v1alpha1.OutcomeFailed, at1(clock)
				write(s)
				want[fmt.Sprint(BatchCompleted, Failed)]++
				want[fmt.Sprint(RolloutCompleted, Failed)]++
			case "supersede":
				write(&v1alpha1.CanaryStatus{Rollout: &v1alpha1.RolloutStatus{ID: "v1-next", StartedAt: at(clock)}})
				want[fmt.Sprint(BatchCompleted, Superseded)]++
				want[fmt.Sprint(RolloutCompleted, Superseded)]++
				// Deleted, and created again under the same name.
				written = &v1alpha1.CanaryStatus{}
			}
			clock++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
