package reconcile

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
	canaryfake "github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned/fake"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

// gatherFunc is a Gatherer.
type gatherFunc func(ctx context.Context, s gate.Situation) gate.Gathered

func (f gatherFunc) Gather(ctx context.Context, _ *v1alpha1.Gate, _ string, s gate.Situation, _ time.Time) gate.Gathered {
	return f(ctx, s)
}

var epoch = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// judging returns a controller, whose clock stands at now, and a Canary whose first batch
// of two became available at epoch. Its gate has one threshold that one look decides.
func judging(t *testing.T, now *time.Time, gatherer Gatherer) (*Controller, *v1alpha1.Canary, view) {
	t.Helper()
	canary, r := release(t, func(c *v1alpha1.Canary) {
		c.Spec.Info.PauseType = v1alpha1.PauseNone
		c.Spec.Gate = &v1alpha1.Gate{
			Interval: &metav1.Duration{Duration: 10 * time.Second},
			Checks:   []v1alpha1.GateCheck{{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: "up", Max: "1", Passes: 1, Failures: 1}}},
		}
	})
	plan := rollout.NewPlan(canary, r, 4)
	plan.Targets = []int32{1, 4}
	canary.Status = v1alpha1.CanaryStatus{
		CurrentBatch: 1,
		Rollout:      &v1alpha1.RolloutStatus{ID: plan.ID, StartedAt: metav1.NewTime(epoch)},
		Batches:      []v1alpha1.BatchStatus{{Target: 1, StartedAt: metav1.NewTime(epoch), AvailableAt: new(metav1.NewTime(epoch))}},
	}
	canaries := canaryfake.NewSimpleClientset(canary)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := New(ctx, Options{Kubernetes: emptyCluster(t), Canaries: canaries, Gatherer: gatherer, Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Start(ctx, nil) {
		t.Fatal("caches were not filled")
	}
	t.Cleanup(func() { c.events.Shutdown(); c.queue.ShutDown(); c.gates.ShutDown(); cancel(); c.Close() })
	return c, canary, view{plan: plan}
}

func value(v float64) gate.Gathered {
	return gate.Gathered{"p99": {{Value: gate.Sample{Value: v}}}}
}

func TestJudgeAsksOnceAndTakesTheAnswer(t *testing.T) {
	now, asked := epoch, 0
	c, canary, v := judging(t, &now, gatherFunc(func(_ context.Context, s gate.Situation) gate.Gathered {
		asked++
		s.RolloutID = ""
		if want := (gate.Situation{Namespace: "prod", Canary: "release", New: "new", Old: "old", Batch: 1, Batches: 2, WindowStart: epoch, OldReplicas: 3}); s != want {
			t.Errorf("asked about %+v, want %+v", s, want)
		}
		return value(0.5)
	}))
	evidence, status, again := c.judge(canary, v)
	if evidence.Action != rollout.GateHold || c.gates.Len() != 0 || again < 10*time.Second || again > 20*time.Second {
		t.Fatalf("at once: %+v, %d queued, again after %s", evidence, c.gates.Len(), again)
	}
	now = now.Add(again)
	canary.Status.Gate = status
	for range 2 {
		evidence, status, _ = c.judge(canary, v)
	}
	if evidence.Action != rollout.GateHold || c.gates.Len() != 1 {
		t.Fatalf("when due: %+v, %d queued", evidence, c.gates.Len())
	}
	if !c.gatherNext(t.Context()) || asked != 1 || c.queue.Len() != 1 {
		t.Fatalf("asked %d times, %d to sync", asked, c.queue.Len())
	}
	canary.Status.Gate = status
	for n := range 2 {
		// The second time is after a write of the status that failed.
		var judged *v1alpha1.GateStatus
		evidence, judged, again = c.judge(canary, v)
		if evidence.Action != rollout.GatePromote || evidence.Verdict != v1alpha1.VerdictPass || judged.Evaluations != 1 || again <= 9*time.Second || again > 10*time.Second {
			t.Errorf("time %d: %+v, %d evaluations, again after %s", n, evidence, judged.Evaluations, again)
		}
		status = judged
	}
	canary.Status.Gate = status
	if _, status, _ = c.judge(canary, v); status.Evaluations != 1 || asked != 1 {
		t.Errorf("%d evaluations of %d answers", status.Evaluations, asked)
	}
	if _, left := c.gatherings.Load(cache.MetaObjectToName(canary)); left {
		t.Error("evidence that is in status is still kept")
	}
}

func TestJudgeOnlyWhatIsAvailableAndUnderWay(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Canary, *view){
		"not available":     func(c *v1alpha1.Canary, _ *view) { c.Status.Batches[0].AvailableAt = nil },
		"finished":          func(c *v1alpha1.Canary, _ *view) { c.Status.Batches[0].FinishedAt = new(metav1.NewTime(epoch)) },
		"completed":         func(c *v1alpha1.Canary, _ *view) { c.Status.Rollout.Outcome = v1alpha1.OutcomeCompleted },
		"rolling back":      func(c *v1alpha1.Canary, _ *view) { c.Status.Rollout.RollbackStartedAt = new(metav1.NewTime(epoch)) },
		"another rollout":   func(c *v1alpha1.Canary, _ *view) { c.Status.Rollout.ID = "v1-other" },
		"no rollout":        func(c *v1alpha1.Canary, _ *view) { c.Status.Rollout = nil },
		"to be rolled back": func(_ *v1alpha1.Canary, v *view) { v.plan.Type = v1alpha1.CanaryRollback },
	} {
		now := epoch.Add(time.Minute)
		c, canary, v := judging(t, &now, nil)
		canary.Status.Gate = &v1alpha1.GateStatus{Batch: 1, Decisions: []v1alpha1.GateDecision{{Batch: 1}}}
		change(canary, &v)
		evidence, status, again := c.judge(canary, v)
		if evidence.Action != rollout.GateHold || evidence.Verdict != "" || c.gates.Len() != 0 || again != 0 || len(status.Decisions) != 1 {
			t.Errorf("%s: %+v, %d queued, again after %s, status %+v", name, evidence, c.gates.Len(), again, status)
		}
	}
}

func TestAPersonLetsABatchThrough(t *testing.T) {
	now := epoch.Add(time.Minute)
	c, canary, v := judging(t, &now, nil)
	for annotation, want := range map[string]rollout.GateAction{
		v.plan.ID + "/1": rollout.GatePromote, v.plan.ID + "/2": rollout.GateHold, "v1-other/1": rollout.GateHold, "true": rollout.GateHold,
	} {
		canary.Annotations = map[string]string{v1alpha1.AnnotationPromote: annotation}
		if evidence, _, _ := c.judge(canary, v); evidence.Action != want {
			t.Errorf("%q: %+v", annotation, evidence)
		}
	}
}

// TestAWordAboutAnEarlierAttemptIsNone: a retry has the same id.
func TestAWordAboutAnEarlierAttemptIsNone(t *testing.T) {
	now := epoch.Add(time.Minute)
	c, canary, v := judging(t, &now, nil)
	canary.Annotations = map[string]string{v1alpha1.AnnotationPromote: v.plan.ID + "/1"}
	canary.Status.Rollout.StalePromote = v.plan.ID + "/1"
	if evidence, _, _ := c.judge(canary, v); evidence.Action != rollout.GateHold {
		t.Errorf("%+v", evidence)
	}
}

// TestEvidenceThatCannotBeHadHolds: without a source, and with one that panics.
func TestEvidenceThatCannotBeHadHolds(t *testing.T) {
	for name, gatherer := range map[string]Gatherer{
		"no source": nil,
		"panic":     gatherFunc(func(context.Context, gate.Situation) gate.Gathered { panic("out of order") }),
	} {
		now := epoch.Add(time.Minute)
		c, canary, v := judging(t, &now, gatherer)
		c.judge(canary, v)
		c.gatherNext(t.Context())
		if evidence, _, _ := c.judge(canary, v); evidence.Action != rollout.GateHold || evidence.Verdict != v1alpha1.VerdictError {
			t.Errorf("%s: %+v", name, evidence)
		}
	}
}

// TestEvidenceOfAnotherBatchIsDropped: it was asked for before the rollout went on.
func TestEvidenceOfAnotherBatchIsDropped(t *testing.T) {
	now := epoch.Add(time.Minute)
	c, canary, v := judging(t, &now, gatherFunc(func(context.Context, gate.Situation) gate.Gathered { return value(0.5) }))
	c.judge(canary, v)
	c.gatherNext(t.Context())
	canary.Status.Batches = append(canary.Status.Batches, v1alpha1.BatchStatus{Target: 4, AvailableAt: new(metav1.NewTime(now))})
	canary.Status.CurrentBatch = 2
	if evidence, status, _ := c.judge(canary, v); evidence.Action != rollout.GateHold || status.Evaluations != 0 {
		t.Errorf("%+v with %d evaluations", evidence, status.Evaluations)
	}
}

func TestEvidenceCutShortSaysNothing(t *testing.T) {
	now := epoch.Add(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	c, canary, v := judging(t, &now, gatherFunc(func(context.Context, gate.Situation) gate.Gathered { cancel(); return value(7) }))
	c.judge(canary, v)
	c.gatherNext(ctx)
	if evidence, status, _ := c.judge(canary, v); evidence.Verdict == v1alpha1.VerdictFail || status.Evaluations != 0 {
		t.Errorf("%+v with %d evaluations", evidence, status.Evaluations)
	}
}

// TestEvidenceOfOtherChecksIsDropped: the author changed them while they were asked about.
func TestEvidenceOfOtherChecksIsDropped(t *testing.T) {
	now := epoch.Add(time.Minute)
	c, canary, v := judging(t, &now, gatherFunc(func(context.Context, gate.Situation) gate.Gathered { return value(0.5) }))
	c.judge(canary, v)
	c.gatherNext(t.Context())
	canary.Spec.Gate.Checks[0].Threshold.Query = "down"
	if evidence, status, _ := c.judge(canary, v); evidence.Action != rollout.GateHold || status.Evaluations != 0 || c.gates.Len() != 1 {
		t.Errorf("%+v with %d evaluations, %d queued", evidence, status.Evaluations, c.gates.Len())
	}
	canary.Spec.Gate, v.plan.Gated = nil, false
	c.judge(canary, v)
	if _, left := c.gatherings.Load(cache.MetaObjectToName(canary)); left {
		t.Error("what was asked for a gate that is gone is still kept")
	}
}

// TestAClockThatGoesBack: another controller's clock was an hour ahead of this one's.
func TestAClockThatGoesBack(t *testing.T) {
	now := epoch.Add(time.Minute)
	c, canary, v := judging(t, &now, gatherFunc(func(context.Context, gate.Situation) gate.Gathered { return value(0.5) }))
	canary.Status.Gate = gate.Evaluate(canary.Spec.Gate, nil, gate.Situation{Batch: 1, WindowStart: epoch}, value(0.5), now.Add(time.Hour))
	if evidence, _, _ := c.judge(canary, v); evidence.Action != rollout.GateHold || c.gates.Len() != 1 {
		t.Fatalf("%+v, %d queued", evidence, c.gates.Len())
	}
	c.gatherNext(t.Context())
	evidence, status, _ := c.judge(canary, v)
	if evidence.Action != rollout.GatePromote || !status.EvaluatedAt.Time.Equal(now) {
		t.Errorf("%+v, evaluated at %s", evidence, status.EvaluatedAt)
	}
	canary.Status.Gate = status
	c.judge(canary, v)
	if _, left := c.gatherings.Load(cache.MetaObjectToName(canary)); left {
		t.Error("evidence that is in status is still kept")
	}
}
