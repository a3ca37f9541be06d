package change

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// canary is a gated release of four batches in the given phase and batch.
func canary(phase v1alpha1.Phase, batch int32, edits ...func(*v1alpha1.Canary)) *v1alpha1.Canary {
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", ResourceVersion: "7", Generation: 2}}
	c.Spec.Info = v1alpha1.CanaryInfo{
		Type: v1alpha1.CanaryDeploy, TotalBatches: new(intstr.FromString("4")), CurrentBatch: new(intstr.FromString("1")), PauseType: v1alpha1.PauseEach,
		NewDeploymentYaml: "metadata: {name: web-v2}", OldDeploymentYaml: "metadata: {name: web-v1}",
	}
	s := &c.Status
	s.ObservedGeneration, s.Phase, s.CurrentBatch = 2, phase, batch
	if batch > 0 {
		s.Batch = fmt.Sprintf("%d/4", batch)
		s.Rollout = &v1alpha1.RolloutStatus{ID: "v1-abc"}
		s.New, s.Old = &v1alpha1.WorkloadStatus{Name: "web-v2"}, &v1alpha1.WorkloadStatus{Name: "web-v1"}
		for range batch {
			s.Batches = append(s.Batches, v1alpha1.BatchStatus{AvailableAt: new(metav1.Unix(1, 0))})
		}
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func gate(verdict v1alpha1.Verdict, paused bool) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Spec.Gate = &v1alpha1.Gate{}
		c.Status.Gate = &v1alpha1.GateStatus{Batch: c.Status.CurrentBatch, Verdict: verdict, Checks: []v1alpha1.CheckStatus{
			{Name: "errors", Verdict: verdict, Message: "12 requests"}, {Name: "p99", Verdict: v1alpha1.VerdictPass},
		}}
		if paused {
			c.Status.Gate.PausedAt = new(metav1.Unix(1, 0))
		}
	}
}

func approvedUpTo(value intstr.IntOrString) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { c.Spec.Info.CurrentBatch = &value }
}

func pauseType(p v1alpha1.PauseType) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { c.Spec.Info.PauseType = p }
}

func typed(t v1alpha1.CanaryType) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { c.Spec.Info.Type = t }
}

func paused(c *v1alpha1.Canary)   { c.Spec.Paused = true }
func outdated(c *v1alpha1.Canary) { c.Generation++ }

func turning(reason string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Status.Rollout.RollbackStartedAt, c.Status.Rollout.RollbackReason = new(metav1.Unix(1, 0)), reason
	}
}

func annotated(key, value string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { c.Annotations = map[string]string{key: value} }
}

// want is a patch without its resourceVersion, a sentence that changes nothing, or a refusal.
type want struct{ patch, nothing, refusal, confirm string }

func check(t *testing.T, decide func(*v1alpha1.Canary) (Change, error), c *v1alpha1.Canary, w want) {
	t.Helper()
	before := c.DeepCopy()
	got, err := decide(c)
	if !reflect.DeepEqual(before, c) {
		t.Error("the Canary was written to")
	}
	var refusal *Refusal
	switch {
	case w.refusal != "":
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, w.refusal) {
			t.Errorf("got %v (%s), want the refusal %q", err, got.Patch, w.refusal)
		}
		return
	case err != nil:
		t.Fatal(err)
	case w.nothing != "":
		if got.Patch != nil || !strings.Contains(got.Summary, w.nothing) {
			t.Errorf("got %s %q, want no change and %q", got.Patch, got.Summary, w.nothing)
		}
		return
	}
	text := strings.Replace(string(got.Patch), `,"resourceVersion":"7"`, "", 1)
	text = strings.Replace(text, `"resourceVersion":"7"`, "", 1)
	if text == string(got.Patch) {
		t.Errorf("the patch %s is not bound to the resourceVersion", got.Patch)
	}
	if text != w.patch {
		t.Errorf("patch %s, want %s", text, w.patch)
	}
	if got.Summary == "" || strings.Contains(got.Summary, "\n") {
		t.Errorf("summary %q", got.Summary)
	}
	if got.Confirm != w.confirm {
		t.Errorf("confirms %q, want %q", got.Confirm, w.confirm)
	}
	// Asked again after its change, it has nothing to do.
	again, err := decide(applied(t, c, got.Patch))
	if err == nil && again.Patch != nil {
		t.Errorf("a second time it would patch %s", again.Patch)
	}
}

func applied(t interface{ Fatal(...any) }, c *v1alpha1.Canary, patch []byte) *v1alpha1.Canary {
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = jsonpatch.MergePatch(text, patch); err != nil {
		t.Fatal(err)
	}
	var after v1alpha1.Canary
	if err := json.Unmarshal(text, &after); err != nil {
		t.Fatal(err)
	}
	return &after
}

func TestApprove(t *testing.T) {
	const waiting, analyzing = v1alpha1.PhaseAwaitingApproval, v1alpha1.PhaseAnalyzing
	two := `{"metadata":{},"spec":{"info":{"currentBatch":"2"}}}`
	for name, tc := range map[string]struct {
		c    *v1alpha1.Canary
		o    ApproveOptions
		want want
	}{
		"the next batch":                {canary(waiting, 1), ApproveOptions{}, want{patch: two}},
		"a number stays a number":       {canary(waiting, 1, approvedUpTo(intstr.FromInt32(1))), ApproveOptions{}, want{patch: `{"metadata":{},"spec":{"info":{"currentBatch":2}}}`}},
		"none given is a number":        {canary(waiting, 1, func(c *v1alpha1.Canary) { c.Spec.Info.CurrentBatch = nil }), ApproveOptions{}, want{patch: `{"metadata":{},"spec":{"info":{"currentBatch":2}}}`}},
		"a named one":                   {canary(waiting, 1), ApproveOptions{Batch: 3}, want{patch: `{"metadata":{},"spec":{"info":{"currentBatch":"3"}}}`}},
		"ahead of availability":         {canary(v1alpha1.PhaseProgressing, 1), ApproveOptions{}, want{patch: two}},
		"ahead of the gate":             {canary(analyzing, 1, gate(v1alpha1.VerdictNoData, false)), ApproveOptions{}, want{patch: two}},
		"though paused":                 {canary(v1alpha1.PhaseProgressing, 1, paused), ApproveOptions{}, want{patch: two}},
		"before it began":               {canary(v1alpha1.PhasePending, 0), ApproveOptions{Batch: 2}, want{patch: two}},
		"before it began, unnamed":      {canary(v1alpha1.PhasePending, 0), ApproveOptions{}, want{refusal: "has not begun"}},
		"twice":                         {canary(waiting, 1, approvedUpTo(intstr.FromString("2"))), ApproveOptions{}, want{nothing: "batch 2 is approved already"}},
		"twice, unseen":                 {canary(waiting, 1, approvedUpTo(intstr.FromString("2")), outdated), ApproveOptions{}, want{nothing: "batch 2 is approved already"}},
		"an unseen spec":                {canary(waiting, 1, outdated), ApproveOptions{}, want{refusal: "has not acted on the latest change"}},
		"an unseen spec, named":         {canary(v1alpha1.PhaseCompleted, 4, outdated), ApproveOptions{Batch: 2}, want{patch: two}},
		"batch 1":                       {canary(waiting, 1), ApproveOptions{Batch: 1}, want{nothing: "batch 1 is approved already"}},
		"beyond the last":               {canary(waiting, 1), ApproveOptions{Batch: 5}, want{refusal: "--batch is 5, the rollout has 4 batches"}},
		"beyond any":                    {canary(waiting, 1, outdated), ApproveOptions{Batch: 1001}, want{refusal: "at most 1000"}},
		"beyond an unseen spec":         {canary(waiting, 1, outdated), ApproveOptions{Batch: 5}, want{refusal: "--batch is 5, the rollout has 4 batches"}},
		"in the last":                   {canary(v1alpha1.PhaseProgressing, 4), ApproveOptions{}, want{refusal: "batch 4 of 4 is the last"}},
		"nobody is waited for":          {canary(v1alpha1.PhaseProgressing, 1, pauseType(v1alpha1.PauseNone)), ApproveOptions{}, want{refusal: "pauseType is None"}},
		"nobody is waited for any more": {canary(v1alpha1.PhaseProgressing, 2, pauseType(v1alpha1.PauseFirst)), ApproveOptions{}, want{refusal: "waits after batch 1 only"}},
		"completed":                     {canary(v1alpha1.PhaseCompleted, 4), ApproveOptions{}, want{refusal: "the rollout is completed"}},
		"rolled back":                   {canary(v1alpha1.PhaseRolledBack, 1), ApproveOptions{}, want{refusal: "retry web"}},
		"failed":                        {canary(v1alpha1.PhaseFailed, 1), ApproveOptions{}, want{refusal: "has failed"}},
		"invalid":                       {canary(v1alpha1.PhaseInvalid, 1), ApproveOptions{}, want{refusal: "is invalid"}},
		"rolling back":                  {canary(v1alpha1.PhaseRollingBack, 1, turning("x")), ApproveOptions{}, want{refusal: "is being rolled back"}},
		"a rollback is asked for":       {canary(waiting, 1, typed(v1alpha1.CanaryRollback)), ApproveOptions{}, want{refusal: "is being rolled back"}},
		"NormalDeploy":                  {canary(v1alpha1.PhaseProgressing, 1, typed(v1alpha1.NormalDeploy)), ApproveOptions{}, want{refusal: "no batches"}},

		"a paused gate that fails":          {canary(waiting, 2, gate(v1alpha1.VerdictFail, true)), ApproveOptions{}, want{refusal: "the gate has paused batch 2: Fail: errors is Fail: 12 requests; --without-evidence"}},
		"a paused gate that passes":         {canary(waiting, 2, gate(v1alpha1.VerdictPass, true)), ApproveOptions{}, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":"v1-abc/2"}},"spec":{"info":{"currentBatch":"3"}}}`}},
		"a paused gate, no approval needed": {canary(waiting, 2, gate(v1alpha1.VerdictPass, true), pauseType(v1alpha1.PauseFirst)), ApproveOptions{}, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":"v1-abc/2"}}}`}},
		"a paused gate at the end":          {canary(waiting, 4, gate(v1alpha1.VerdictPass, true)), ApproveOptions{Batch: 5}, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":"v1-abc/4"}}}`}},

		"without evidence":                     {canary(analyzing, 1, gate(v1alpha1.VerdictNoData, false)), ApproveOptions{WithoutEvidence: true}, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":"v1-abc/1"}},"spec":{"info":{"currentBatch":"2"}}}`, confirm: "NoData: errors is NoData: 12 requests"}},
		"without evidence of harm":             {canary(waiting, 2, gate(v1alpha1.VerdictFail, true), pauseType(v1alpha1.PauseNone)), ApproveOptions{WithoutEvidence: true, Batch: 2}, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":"v1-abc/2"}}}`, confirm: "Fail: errors is Fail: 12 requests"}},
		"without evidence, twice":              {canary(analyzing, 1, gate(v1alpha1.VerdictNoData, false), pauseType(v1alpha1.PauseNone), annotated(v1alpha1.AnnotationPromote, "v1-abc/1")), ApproveOptions{WithoutEvidence: true}, want{nothing: "batch 1 is let through already"}},
		"without evidence, too early":          {canary(v1alpha1.PhaseProgressing, 2, gate(v1alpha1.VerdictNoData, false), func(c *v1alpha1.Canary) { c.Status.Batches[1].AvailableAt = nil }), ApproveOptions{WithoutEvidence: true}, want{refusal: "batch 2 is not available yet"}},
		"without evidence, another":            {canary(analyzing, 2, gate(v1alpha1.VerdictNoData, false)), ApproveOptions{WithoutEvidence: true, Batch: 3}, want{refusal: "which is batch 2"}},
		"without evidence, one before":         {canary(analyzing, 2, gate(v1alpha1.VerdictNoData, false)), ApproveOptions{WithoutEvidence: true, Batch: 1}, want{nothing: "batch 1 is through already"}},
		"without evidence though it passes":    {canary(waiting, 1, gate(v1alpha1.VerdictPass, false)), ApproveOptions{WithoutEvidence: true}, want{refusal: "the gate passes batch 1"}},
		"without evidence, ungated":            {canary(waiting, 1), ApproveOptions{WithoutEvidence: true}, want{refusal: "no spec.gate"}},
		"without evidence, unseen":             {canary(analyzing, 1, gate(v1alpha1.VerdictNoData, false), outdated), ApproveOptions{WithoutEvidence: true}, want{refusal: "try again"}},
		"without evidence, not begun":          {canary(v1alpha1.PhasePending, 0, gate(v1alpha1.VerdictNoData, false)), ApproveOptions{WithoutEvidence: true}, want{refusal: "has not begun"}},
		"without evidence, judged another one": {canary(analyzing, 2, gate(v1alpha1.VerdictPass, false), pauseType(v1alpha1.PauseNone), func(c *v1alpha1.Canary) { c.Status.Gate.Batch = 1 }), ApproveOptions{WithoutEvidence: true}, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":"v1-abc/2"}}}`, confirm: "the gate has judged nothing yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, func(c *v1alpha1.Canary) (Change, error) { return Approve(c, tc.o) }, tc.c, tc.want)
		})
	}
}

func TestPauseResumeRollback(t *testing.T) {
	for name, tc := range map[string]struct {
		decide func(*v1alpha1.Canary) (Change, error)
		c      *v1alpha1.Canary
		want   want
	}{
		"pause":                    {Pause, canary(v1alpha1.PhaseProgressing, 1), want{patch: `{"metadata":{},"spec":{"paused":true}}`}},
		"pause after the end":      {Pause, canary(v1alpha1.PhaseCompleted, 4), want{patch: `{"metadata":{},"spec":{"paused":true}}`}},
		"pause twice":              {Pause, canary(v1alpha1.PhaseProgressing, 1, paused), want{nothing: "is paused already"}},
		"pause a rollback":         {Pause, canary(v1alpha1.PhaseRollingBack, 1, turning("x")), want{refusal: "does not hold a rollback"}},
		"resume":                   {Resume, canary(v1alpha1.PhaseProgressing, 1, paused), want{patch: `{"metadata":{},"spec":{"paused":false}}`}},
		"resume twice":             {Resume, canary(v1alpha1.PhaseProgressing, 1), want{nothing: "is not paused"}},
		"resume the unapproved":    {Resume, canary(v1alpha1.PhaseAwaitingApproval, 1), want{nothing: "it waits for an approval"}},
		"resume the gate's pause":  {Resume, canary(v1alpha1.PhaseAwaitingApproval, 1, gate(v1alpha1.VerdictNoData, true)), want{nothing: "the gate waits for a person"}},
		"roll back":                {Rollback, canary(v1alpha1.PhaseAwaitingApproval, 1), want{patch: `{"metadata":{},"spec":{"info":{"type":"CanaryRollback"}}}`}},
		"roll back the completed":  {Rollback, canary(v1alpha1.PhaseCompleted, 4), want{patch: `{"metadata":{},"spec":{"info":{"type":"CanaryRollback"}}}`}},
		"roll back the failed":     {Rollback, canary(v1alpha1.PhaseFailed, 4), want{patch: `{"metadata":{},"spec":{"info":{"type":"CanaryRollback"}}}`}},
		"roll back twice":          {Rollback, canary(v1alpha1.PhaseAwaitingApproval, 1, typed(v1alpha1.CanaryRollback), outdated), want{nothing: "a rollback is requested already"}},
		"roll back what the gate":  {Rollback, canary(v1alpha1.PhaseRollingBack, 1, turning("the gate failed")), want{nothing: "is being rolled back already: the gate failed"}},
		"roll back the rolled":     {Rollback, canary(v1alpha1.PhaseRolledBack, 1, turning("the gate failed")), want{nothing: "is rolled back already: the gate failed"}},
		"roll back to nothing":     {Rollback, canary(v1alpha1.PhaseAwaitingApproval, 1, func(c *v1alpha1.Canary) { c.Spec.Info.OldDeploymentYaml = "" }), want{refusal: "no old version"}},
		"roll back a new version":  {Rollback, canary(v1alpha1.PhaseRolledBack, 1, outdated), want{patch: `{"metadata":{},"spec":{"info":{"type":"CanaryRollback"}}}`}},
		"roll back the unreadable": {Rollback, canary(v1alpha1.PhaseInvalid, 1, func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = "a: b: c" }), want{patch: `{"metadata":{},"spec":{"info":{"type":"CanaryRollback"}}}`}},
	} {
		t.Run(name, func(t *testing.T) { check(t, tc.decide, tc.c, tc.want) })
	}
}

func TestRetry(t *testing.T) {
	const rolled = v1alpha1.PhaseRolledBack
	for name, tc := range map[string]struct {
		c    *v1alpha1.Canary
		keep bool
		want want
	}{
		"what the gate rolled back": {canary(rolled, 1), false, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}}}`}},
		"what a person rolled back": {canary(rolled, 1, typed(v1alpha1.CanaryRollback)), false, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}},"spec":{"info":{"type":"CanaryDeploy"}}}`}},
		"one Deployment in place": {canary(rolled, 1, typed(v1alpha1.CanaryRollback), func(c *v1alpha1.Canary) { c.Status.Old.Name = "web-v2" }), false,
			want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}},"spec":{"info":{"type":"NormalDeploy"}}}`}},
		"what failed": {canary(v1alpha1.PhaseFailed, 2), false, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}}}`}},
		"approvals start again": {canary(rolled, 2, approvedUpTo(intstr.FromString("3"))), false,
			want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}},"spec":{"info":{"currentBatch":"1"}}}`}},
		"approvals kept":             {canary(rolled, 2, approvedUpTo(intstr.FromString("3"))), true, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}}}`}},
		"approvals that nobody asks": {canary(rolled, 2, approvedUpTo(intstr.FromInt32(3)), pauseType(v1alpha1.PauseNone)), false, want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now"}}}`}},
		"evidence counts again": {canary(rolled, 1, annotated(v1alpha1.AnnotationPromote, "v1-abc/1")), true,
			want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/promote":null,"canarycontroller.tech.com/retry":"now"}}}`}},
		"the same second": {canary(rolled, 1, annotated(v1alpha1.AnnotationRetry, "now"), func(c *v1alpha1.Canary) { c.Status.Rollout.Retry = "now" }), false,
			want{patch: `{"metadata":{"annotations":{"canarycontroller.tech.com/retry":"now+"}}}`}},
		"twice":      {canary(rolled, 1, annotated(v1alpha1.AnnotationRetry, "before")), false, want{nothing: "a retry is requested already"}},
		"completed":  {canary(v1alpha1.PhaseCompleted, 4), false, want{refusal: "is completed"}},
		"under way":  {canary(v1alpha1.PhaseProgressing, 1), false, want{refusal: "under way"}},
		"going back": {canary(v1alpha1.PhaseRollingBack, 1, typed(v1alpha1.CanaryRollback)), false, want{refusal: "under way (RollingBack)"}},
		"not begun":  {canary(v1alpha1.PhasePending, 0), false, want{refusal: "has not begun"}},
		"invalid":    {canary(v1alpha1.PhaseInvalid, 1), false, want{refusal: "is invalid"}},
		"unseen":     {canary(rolled, 1, outdated), false, want{refusal: "try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, func(c *v1alpha1.Canary) (Change, error) {
				return Retry(c, RetryOptions{Value: "now", KeepApprovals: tc.keep})
			}, tc.c, tc.want)
		})
	}
}

// TestNothingIsApprovedTwice holds for any state that a repeated command changes nothing
// more, that a rollout is never sent back by an approval, and that a summary is one line.
func TestNothingIsApprovedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := canary(rapid.SampledFrom(v1alpha1.Phases()).Draw(t, "phase"), rapid.Int32Range(0, 4).Draw(t, "batch"),
			pauseType(rapid.SampledFrom([]v1alpha1.PauseType{v1alpha1.PauseNone, v1alpha1.PauseFirst, v1alpha1.PauseEach}).Draw(t, "pause")),
			approvedUpTo(intstr.FromInt32(rapid.Int32Range(0, 6).Draw(t, "approved"))))
		c.Spec.Paused = rapid.Bool().Draw(t, "paused")
		if rapid.Bool().Draw(t, "gated") {
			gate(rapid.SampledFrom(v1alpha1.Verdicts()).Draw(t, "verdict"), rapid.Bool().Draw(t, "gate paused"))(c)
		}
		if rapid.Bool().Draw(t, "unseen") {
			outdated(c)
		}
		o := ApproveOptions{Batch: rapid.Int32Range(0, 6).Draw(t, "--batch"), WithoutEvidence: rapid.Bool().Draw(t, "--without-evidence")}
		first, err := Approve(c, o)
		if err != nil || first.Patch == nil {
			return
		}
		after := applied(t, c, first.Patch)
		if approved(after) < approved(c) || after.Spec.Info.Type != c.Spec.Info.Type {
			t.Fatalf("an approval took something back: %s", first.Patch)
		}
		if o.Batch == 0 && approved(after) > max(approved(c), c.Status.CurrentBatch+1) {
			t.Fatalf("more than the next batch was approved: %s", first.Patch)
		}
		if second, err := Approve(after, o); err == nil && second.Patch != nil {
			t.Fatalf("a second time: %s after %s", second.Patch, first.Patch)
		}
		if strings.Contains(first.Summary, "\n") {
			t.Fatalf("summary %q", first.Summary)
		}
	})
}
