package goal

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func at(phase v1alpha1.Phase, batch int32, edits ...func(*v1alpha1.Canary)) *v1alpha1.Canary {
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	c.Status = v1alpha1.CanaryStatus{ObservedGeneration: 2, Phase: phase, CurrentBatch: batch, Rollout: &v1alpha1.RolloutStatus{ID: "a", Retry: "1"}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func TestCheck(t *testing.T) {
	unseen := func(c *v1alpha1.Canary) { c.Generation++ }
	gatePaused := func(c *v1alpha1.Canary) {
		c.Status.Gate = &v1alpha1.GateStatus{Batch: c.Status.CurrentBatch, PausedAt: &metav1.Time{}}
	}
	completed := Goal{Phases: []v1alpha1.Phase{v1alpha1.PhaseCompleted}}
	approve2 := Goal{Settled: true, Batch: 2, RolloutID: "a"}
	override1 := Goal{Settled: true, Batch: 2, Ignore: 1}
	retry := Goal{Settled: true, Retry: "2"}
	for name, tc := range map[string]struct {
		goal Goal
		c    *v1alpha1.Canary
		want State
	}{
		"reached":                        {completed, at(v1alpha1.PhaseCompleted, 4), Reached},
		"reached by an earlier spec":     {completed, at(v1alpha1.PhaseCompleted, 4, unseen), Going},
		"on its way":                     {completed, at(v1alpha1.PhaseProgressing, 2), Going},
		"waiting on its way":             {completed, at(v1alpha1.PhaseAwaitingApproval, 2, gatePaused), Going},
		"not seen at all":                {completed, &v1alpha1.Canary{}, Going},
		"rolled back instead":            {completed, at(v1alpha1.PhaseRolledBack, 2), Otherwise},
		"failed instead":                 {completed, at(v1alpha1.PhaseFailed, 2), Otherwise},
		"invalid instead":                {completed, at(v1alpha1.PhaseInvalid, 2), Otherwise},
		"going back":                     {completed, at(v1alpha1.PhaseRollingBack, 2), Going},
		"completed instead":              {Goal{Phases: []v1alpha1.Phase{v1alpha1.PhaseRolledBack}}, at(v1alpha1.PhaseCompleted, 4), Otherwise},
		"a failure that is wanted":       {Goal{Phases: []v1alpha1.Phase{v1alpha1.PhaseFailed}}, at(v1alpha1.PhaseFailed, 2), Reached},
		"approved, not gone on":          {approve2, at(v1alpha1.PhaseAwaitingApproval, 1), Going},
		"approved, waiting again":        {approve2, at(v1alpha1.PhaseAwaitingApproval, 2), Reached},
		"approved, waiting later":        {approve2, at(v1alpha1.PhaseAwaitingApproval, 3), Reached},
		"approved, complete":             {approve2, at(v1alpha1.PhaseCompleted, 4), Reached},
		"approved, paused by the gate":   {approve2, at(v1alpha1.PhaseAwaitingApproval, 2, gatePaused), Otherwise},
		"approved, replaced":             {approve2, at(v1alpha1.PhaseCompleted, 4, func(c *v1alpha1.Canary) { c.Status.Rollout.ID = "b" }), Otherwise},
		"let through, not seen yet":      {override1, at(v1alpha1.PhaseAwaitingApproval, 1, gatePaused), Going},
		"let through, paused once more":  {override1, at(v1alpha1.PhaseAwaitingApproval, 2, gatePaused), Otherwise},
		"retry, not seen yet":            {retry, at(v1alpha1.PhaseRolledBack, 1), Going},
		"retry, seen and waiting":        {retry, at(v1alpha1.PhaseAwaitingApproval, 1, func(c *v1alpha1.Canary) { c.Status.Rollout.Retry = "2" }), Reached},
		"retry, rolled back once more":   {retry, at(v1alpha1.PhaseRolledBack, 1, func(c *v1alpha1.Canary) { c.Status.Rollout.Retry = "2" }), Otherwise},
		"retry, but the spec is invalid": {retry, at(v1alpha1.PhaseInvalid, 1), Otherwise},
	} {
		t.Run(name, func(t *testing.T) {
			if got, where := tc.goal.Check(tc.c); got != tc.want || where == "" {
				t.Errorf("got %d (%s), want %d", got, where, tc.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	phases, err := Parse("completed, RolledBack")
	if err != nil || !slices.Equal(phases, []v1alpha1.Phase{v1alpha1.PhaseCompleted, v1alpha1.PhaseRolledBack}) {
		t.Errorf("got %v, %v", phases, err)
	}
	for _, bad := range []string{"", "Complete", "Completed,"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
