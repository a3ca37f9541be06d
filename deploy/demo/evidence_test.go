package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func counts(bad, total int64) *v1alpha1.RequestCounts {
	return &v1alpha1.RequestCounts{Bad: bad, Total: total}
}

func decided(batch int32, verdict v1alpha1.Verdict, action string, newer, older *v1alpha1.RequestCounts) v1alpha1.GateDecision {
	return v1alpha1.GateDecision{Batch: batch, Verdict: verdict, Action: action, Evidence: "so it was", Checks: []v1alpha1.DecisionCheck{
		{Name: "p99", New: counts(9, 9)}, {Name: errorRate, New: newer, Old: older},
	}}
}

// gated is a release that was promoted in two batches on evidence, changed.
func gated(change func(*v1alpha1.CanaryStatus)) *v1alpha1.Canary {
	finished := v1alpha1.BatchStatus{FinishedAt: &metav1.Time{}, Verdict: v1alpha1.VerdictPass}
	c := &v1alpha1.Canary{Status: v1alpha1.CanaryStatus{
		Phase: v1alpha1.PhaseCompleted, Verdict: v1alpha1.VerdictPass, CurrentBatch: 2,
		Rollout: &v1alpha1.RolloutStatus{ID: "v1-x"},
		Batches: []v1alpha1.BatchStatus{finished, finished},
		Gate: &v1alpha1.GateStatus{Decisions: []v1alpha1.GateDecision{
			decided(1, v1alpha1.VerdictNoData, actionHold, nil, nil),
			decided(1, v1alpha1.VerdictPass, actionPromote, counts(1, 300), counts(2, 900)),
			decided(2, v1alpha1.VerdictError, actionHold, nil, nil),
			decided(2, v1alpha1.VerdictPass, actionPromote, counts(0, 200), counts(0, 200)),
		}},
	}}
	if change != nil {
		change(&c.Status)
	}
	return c
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestPromotedOnEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.CanaryStatus)
		err    string
	}{
		"as it should be": {},
		"not over":        {func(s *v1alpha1.CanaryStatus) { s.Phase = v1alpha1.PhaseAnalyzing }, "the phase is Analyzing"},
		"without a gate":  {func(s *v1alpha1.CanaryStatus) { s.Gate = nil }, "no gate"},
		"rolled back":     {func(s *v1alpha1.CanaryStatus) { s.Rollout.RollbackStartedAt = &metav1.Time{} }, "a rollback was begun"},
		"fewer batches":   {func(s *v1alpha1.CanaryStatus) { s.Batches = s.Batches[:1] }, "there were 1 batches, not 2"},
		"no verdict":      {func(s *v1alpha1.CanaryStatus) { s.Batches[1].Verdict = v1alpha1.VerdictNoData }, `batch 2 has the verdict "NoData"`},
		"not finished":    {func(s *v1alpha1.CanaryStatus) { s.Batches[0].FinishedAt = nil }, "batch 1 has the verdict"},
		"not promoted":    {func(s *v1alpha1.CanaryStatus) { s.Gate.Decisions = s.Gate.Decisions[:3] }, "no decision of the gate promoted batch 2"},
		"let through":     {func(s *v1alpha1.CanaryStatus) { s.Gate.Decisions[0].Action = "Override" }, "about batch 1 was Override"},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, promotedOnEvidence(gated(c.change), 2), c.err) })
	}
}

func TestCaught(t *testing.T) {
	harm := decided(1, v1alpha1.VerdictFail, actionRollback, counts(6, 85), counts(0, 302))
	rolledBack := func(last v1alpha1.GateDecision) func(*v1alpha1.CanaryStatus) {
		return func(s *v1alpha1.CanaryStatus) {
			s.Phase, s.Rollout.RollbackStartedAt = v1alpha1.PhaseRolledBack, &metav1.Time{}
			s.Gate.Decisions = append(s.Gate.Decisions, last)
		}
	}
	second, late, onHold := harm, harm, harm
	second.Batch, late.Batch = 2, 3
	onHold.Verdict = v1alpha1.VerdictNoData
	for name, c := range map[string]struct {
		change func(*v1alpha1.CanaryStatus)
		err    string
	}{
		"as it should be":  {rolledBack(harm), ""},
		"in batch 2":       {rolledBack(second), ""},
		"promoted":         {nil, "the phase is Completed, not RolledBack"},
		"found late":       {rolledBack(late), "found in batch 3, later than batch 2"},
		"without evidence": {rolledBack(onHold), "Rollback on the verdict NoData, not Rollback on Fail"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := caught(gated(c.change))
			wantError(t, err, c.err)
			if err == nil && harmEvidence(got) != "Fail: new 6 of 85 bad (7.1%), old 0 of 302 bad (0%)" {
				t.Errorf("evidence %q", harmEvidence(got))
			}
		})
	}
}

func TestHeld(t *testing.T) {
	analyzing := func(verdict v1alpha1.Verdict) func(*v1alpha1.CanaryStatus) {
		return func(s *v1alpha1.CanaryStatus) { s.Phase, s.Verdict = v1alpha1.PhaseAnalyzing, verdict }
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.CanaryStatus)
		batch  int32
		held   bool
		err    string
	}{
		"held":              {analyzing(v1alpha1.VerdictError), 2, true, ""},
		"in whatever batch": {analyzing(v1alpha1.VerdictError), 0, true, ""},
		"not known yet":     {analyzing(v1alpha1.VerdictNoData), 2, false, ""},
		"went on":           {analyzing(v1alpha1.VerdictError), 1, false, "batch 1 became batch 2 without evidence"},
		"blamed":            {analyzing(v1alpha1.VerdictFail), 2, false, "blamed without evidence"},
		"went back":         {func(s *v1alpha1.CanaryStatus) { s.Rollout.RollbackStartedAt = &metav1.Time{} }, 2, false, "a rollback was begun without evidence"},
		"without a gate":    {func(s *v1alpha1.CanaryStatus) { s.Gate = nil }, 2, false, "no gate"},
	} {
		t.Run(name, func(t *testing.T) {
			isHeld, err := held(gated(c.change), c.batch)
			wantError(t, err, c.err)
			if isHeld != c.held {
				t.Errorf("held is %t", isHeld)
			}
		})
	}
	wantError(t, wasHeld(gated(nil)), "")
	if n := holds(gated(nil)); n != 1 {
		t.Errorf("held %d times", n)
	}
	wantError(t, wasHeld(gated(func(s *v1alpha1.CanaryStatus) { s.Gate.Decisions = s.Gate.Decisions[:2] })), "no decision of the gate held")
}

func TestPromotionEvidenceSumsUpBatches(t *testing.T) {
	if got, want := promotionEvidence(gated(nil)), "2 x Pass: new 1 of 500 bad (0.2%)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := promotionEvidence(&v1alpha1.Canary{}), "0 x Pass: new no requests"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEnded(t *testing.T) {
	for phase, want := range map[v1alpha1.Phase]struct {
		ended bool
		err   string
	}{
		v1alpha1.PhaseProgressing:      {},
		v1alpha1.PhaseAnalyzing:        {},
		v1alpha1.PhaseRollingBack:      {},
		v1alpha1.PhaseCompleted:        {ended: true},
		v1alpha1.PhaseRolledBack:       {ended: true},
		v1alpha1.PhaseFailed:           {err: "the phase is Failed: so it is"},
		v1alpha1.PhaseInvalid:          {err: "the phase is Invalid: so it is"},
		v1alpha1.PhaseAwaitingApproval: {err: "the phase is AwaitingApproval: so it is"},
	} {
		is, err := ended(canary(phase, "1/4", 4, nil, nil))
		wantError(t, err, want.err)
		if is != want.ended {
			t.Errorf("%s: ended is %t", phase, is)
		}
	}
}
