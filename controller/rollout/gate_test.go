package rollout

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// gated returns a world whose first batch is available and waits for a verdict.
func gated() *world {
	p := plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseNone)
	p.Gated = true
	w := newWorld(p, map[string]*Workload{"old": whole(4)})
	w.gate = gateNoData
	w.run()
	return w
}

// TestEvidenceBeginsWithTheBatch: what a gate passed before the batch was available, that
// is another batch, does not let this one through.
func TestEvidenceBeginsWithTheBatch(t *testing.T) {
	p := plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseNone)
	p.Gated = true
	w := newWorld(p, map[string]*Workload{"old": whole(4)})
	w.gate = gatePass
	for range 3 {
		w.sync()
		w.settle()
	}
	if w.last.Phase != v1alpha1.PhaseAnalyzing || w.state.Batches[0].AvailableAt == nil || w.last.Verdict != "" {
		t.Fatalf("%s with verdict %q when batch 1 became available", w.last.Phase, w.last.Verdict)
	}
	w.sync()
	if w.state.Batches[0].FinishedAt == nil {
		t.Errorf("batch 1 is not finished: %s", w.last.Message)
	}
}

func TestGateAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		evidence Evidence
		phase    v1alpha1.Phase
		reason   v1alpha1.Reason
		message  string
	}{
		"pass":         {gatePass, v1alpha1.PhaseProgressing, v1alpha1.ReasonBatchFinished, "batch 1 is finished"},
		"no data":      {gateNoData, v1alpha1.PhaseAnalyzing, v1alpha1.ReasonAnalyzing, "batch 1 is available and held: no requests"},
		"error":        {gateError, v1alpha1.PhaseAnalyzing, v1alpha1.ReasonAnalyzing, "batch 1 is available and held: Prometheus is down"},
		"for a person": {gatePause, v1alpha1.PhaseAwaitingApproval, v1alpha1.ReasonGatePaused, "batch 1 waits for a person: held for 30m"},
		"fail":         {gateFail, v1alpha1.PhaseRollingBack, v1alpha1.ReasonRollbackStarted, "rolling back: the gate failed batch 1: too many errors"},
	} {
		w := gated()
		w.gate = tc.evidence
		w.sync()
		if w.last.Phase != tc.phase || w.last.Reason != tc.reason || w.last.Message != tc.message {
			t.Errorf("%s: %s, %s, %q", name, w.last.Phase, w.last.Reason, w.last.Message)
		}
	}
}

func TestHarmCountsWhileThePodsCrash(t *testing.T) {
	w := gated()
	w.live["new"].Available, w.live["new"].Updated = 0, 0
	w.gate = gateFail
	w.sync()
	if w.last.Phase != v1alpha1.PhaseRollingBack {
		t.Errorf("%s: %s", w.last.Phase, w.last.Message)
	}
}

func TestGateFailsAFirstRelease(t *testing.T) {
	w := gated()
	w.plan.OldName = ""
	w.gate = gateFail
	for range 2 {
		w.sync()
		if w.last.Phase != v1alpha1.PhaseFailed || w.last.Reason != v1alpha1.ReasonGateFailed || !w.last.Stalled || len(w.last.Actions) > 0 {
			t.Errorf("%s, %s, stalled %t, %v: %s", w.last.Phase, w.last.Reason, w.last.Stalled, w.last.Actions, w.last.Message)
		}
	}
	status := Status(&v1alpha1.CanaryStatus{}, 1, w.plan, w.observed(), w.last, w.now)
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStalled); c.Reason != string(v1alpha1.ReasonGateFailed) {
		t.Errorf("Stalled for %s", c.Reason)
	}
}

// TestABatchThatBreaksLaterStalls: its deadline is over, its pods are not there; it goes on
// where it was when they come back.
func TestABatchThatBreaksLaterStalls(t *testing.T) {
	w := gated()
	w.live["new"].Available, w.live["new"].Updated = 0, 0
	w.sync()
	if w.last.Stalled || w.last.RequeueAfter != 10*time.Minute {
		t.Fatalf("stalled %t, asks again after %s", w.last.Stalled, w.last.RequeueAfter)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.sync()
	if !w.last.Stalled || w.last.Phase != v1alpha1.PhaseProgressing {
		t.Errorf("stalled %t in %s after ten minutes", w.last.Stalled, w.last.Phase)
	}
	w.gate = gatePass
	w.run()
	if w.last.Stalled || w.last.Phase != v1alpha1.PhaseCompleted || w.state.Batches[0].BrokenAt != nil {
		t.Errorf("stalled %t in %s afterwards", w.last.Stalled, w.last.Phase)
	}
}

func TestGateCondition(t *testing.T) {
	for name, tc := range map[string]struct {
		gated   bool
		verdict v1alpha1.Verdict
		want    string
	}{
		"no gate":    {false, "", "True/NoGate"},
		"not judged": {true, "", "Unknown/Analyzing"},
		"pass":       {true, v1alpha1.VerdictPass, "True/GatePassed"},
		"no data":    {true, v1alpha1.VerdictNoData, "Unknown/GateNoData"},
		"error":      {true, v1alpha1.VerdictError, "False/GateError"},
		"fail":       {true, v1alpha1.VerdictFail, "False/GateFailed"},
	} {
		d := Decision{Gate: &v1alpha1.GateStatus{Verdict: tc.verdict, Message: "why"}}
		c := gateCondition(Plan{Gated: tc.gated}, d)
		if got := string(c.Status) + "/" + c.Reason; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestGateEvents(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(second) * time.Second)) }
	decision := func(second int, verdict v1alpha1.Verdict, action string) v1alpha1.GateDecision {
		return v1alpha1.GateDecision{Time: at(second), Batch: 1, Verdict: verdict, Action: action, Evidence: "why"}
	}
	first := decision(1, v1alpha1.VerdictNoData, "Hold")
	before := &v1alpha1.CanaryStatus{Gate: &v1alpha1.GateStatus{Decisions: []v1alpha1.GateDecision{first}}}
	after := &v1alpha1.CanaryStatus{Gate: &v1alpha1.GateStatus{Decisions: []v1alpha1.GateDecision{first,
		decision(2, v1alpha1.VerdictNoData, "Pause"), decision(3, v1alpha1.VerdictNoData, GateOverride),
		decision(4, v1alpha1.VerdictError, "Hold"), decision(5, v1alpha1.VerdictFail, "Rollback"), decision(6, v1alpha1.VerdictPass, "Promote"),
	}}}
	var got []string
	for _, e := range Events(before, after) {
		got = append(got, e.Type+" "+string(e.Reason)+" "+e.Message)
	}
	want := "Warning GatePaused batch 1: why|Normal GateOverridden batch 1: why|Warning GateError batch 1: why|Warning GateFailed batch 1: why|Normal GatePassed batch 1: why"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
	if again := Events(after, after); len(again) > 0 {
		t.Errorf("told again: %v", again)
	}
}
