package change

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// ApproveOptions narrow an approval.
type ApproveOptions struct {
	// Batch that may start, or with WithoutEvidence the one that is let through; 0 for the
	// next one, or the current one.
	Batch int32
	// WithoutEvidence lets the current batch through whatever the gate says.
	WithoutEvidence bool
}

// Approve lets a rollout go on: to the next batch, where a person is waited for, or past
// the gate.
func Approve(c *v1alpha1.Canary, o ApproveOptions) (Change, error) {
	s := &c.Status
	switch {
	case c.Spec.Info.Type == v1alpha1.NormalDeploy:
		return refuse("a NormalDeploy has no batches to approve")
	case turned(c):
		return refuse("it is being rolled back, there is nothing to approve; kubectl canary retry %s starts again once it is rolled back", c.Name)
	}
	if !stale(c) {
		if over := ended(c); over != "" {
			return refuse("%s", over)
		}
	}
	if o.WithoutEvidence {
		return override(c, o.Batch)
	}
	if gatePaused(s) && !stale(c) && (o.Batch == 0 || o.Batch == s.CurrentBatch+1) {
		return letThrough(c, s.Gate)
	}
	return approveNext(c, o.Batch)
}

// ended says why there is nothing to approve in a rollout that is over, or cannot go on.
func ended(c *v1alpha1.Canary) string {
	switch c.Status.Phase {
	case v1alpha1.PhaseCompleted:
		return "the rollout is completed, nothing waits for approval"
	case v1alpha1.PhaseRolledBack:
		return fmt.Sprintf("the rollout is rolled back, nothing waits for approval; kubectl canary retry %s starts again", c.Name)
	case v1alpha1.PhaseFailed:
		return fmt.Sprintf("the rollout has failed, nothing waits for approval; kubectl canary rollback %s or kubectl canary retry %s", c.Name, c.Name)
	case v1alpha1.PhaseInvalid:
		return "the Canary is invalid and must be corrected first: " + c.Status.Message
	}
	return ""
}

func approveNext(c *v1alpha1.Canary, batch int32) (Change, error) {
	s := &c.Status
	next, has, all := batch, approved(c), batches(s)
	if stale(c) {
		all = mostBatches(c)
	}
	if next == 0 {
		next = s.CurrentBatch + 1
	}
	explicit := batch != 0
	switch {
	case !explicit && s.CurrentBatch == 0:
		return refuse("the rollout has not begun, no batch waits for approval; --batch N approves ahead")
	case s.CurrentBatch > 0 && next <= has && (all == 0 || next <= all):
		return nothing("batch %d is approved already%s", next, stillHeld(c))
	case stale(c) && !explicit:
		return refuse("the controller has not acted on the latest change of the spec, so what would be approved is not known; try again, or name the batch with --batch")
	case next < 2:
		return refuse("batch 1 begins by itself, approvals begin with batch 2")
	case next > v1alpha1.MaxBatches:
		return refuse("--batch is %d, there are at most %d batches", next, v1alpha1.MaxBatches)
	case all > 0 && next > all:
		if !explicit {
			return refuse("batch %d of %d is the last one, nothing waits for approval", s.CurrentBatch, all)
		}
		return refuse("--batch is %d, the rollout has %d batches", next, all)
	case c.Spec.Info.PauseType == v1alpha1.PauseNone:
		return refuse("it waits for nobody's approval: spec.info.pauseType is None")
	case !explicit && c.Spec.Info.PauseType != v1alpha1.PauseEach && s.CurrentBatch > 1:
		return refuse("it waits for no more approvals: spec.info.pauseType First waits after batch 1 only")
	case next <= has:
		return nothing("batch %d is approved already", next)
	}
	e := newEdit(c)
	e.approve(c, next)
	what := fmt.Sprintf("batch %d", next)
	if all > 0 {
		what += fmt.Sprintf(" of %d", all)
	}
	return e.make(Change{Batch: next}, "%s approved (currentBatch was %d)%s", what, has, stillHeld(c))
}

// mostBatches is how many batches the spec asks for at most, before the controller has
// acted on it; 0 when it does not say.
func mostBatches(c *v1alpha1.Canary) int32 {
	if n := len(c.Spec.Batches); n > 0 {
		// A list that stops short of the total gets one more.
		return int32(n) + 1
	}
	if c.Spec.Info.TotalBatches == nil {
		return 0
	}
	n, err := strconv.ParseInt(c.Spec.Info.TotalBatches.String(), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// stillHeld says what keeps an approved batch from starting.
func stillHeld(c *v1alpha1.Canary) string {
	s := &c.Status
	switch {
	case c.Spec.Paused:
		return fmt.Sprintf("; spec.paused still holds it, kubectl canary resume %s lifts that", c.Name)
	case s.Phase == v1alpha1.PhaseAnalyzing:
		return fmt.Sprintf("; it starts when the gate passes batch %d%s", s.CurrentBatch, nowSays(s.Gate))
	case s.Phase == v1alpha1.PhaseProgressing:
		return fmt.Sprintf("; it starts when batch %d is through", s.CurrentBatch)
	}
	return ""
}

func nowSays(g *v1alpha1.GateStatus) string {
	if g == nil || g.Verdict == "" {
		return ""
	}
	return fmt.Sprintf(", now %s", g.Verdict)
}

// letThrough answers a gate that has paused for a person: on evidence of health the batch
// goes on; without it the person has to say so.
func letThrough(c *v1alpha1.Canary, g *v1alpha1.GateStatus) (Change, error) {
	if g.Verdict != v1alpha1.VerdictPass {
		if c.Annotations[v1alpha1.AnnotationPromote] == promotion(c) {
			return nothing("batch %d is let through already", c.Status.CurrentBatch)
		}
		return refuse("the gate has paused batch %d: %s; --without-evidence lets it through, kubectl canary rollback %s goes back", g.Batch, says(g), c.Name)
	}
	return promote(c, "on the gate's present evidence", "")
}

// override waives the evidence for the current batch.
func override(c *v1alpha1.Canary, batch int32) (Change, error) {
	s := &c.Status
	current := s.CurrentBatch
	switch {
	case c.Spec.Gate == nil:
		return refuse("it has no spec.gate, so there is no evidence to do without; approve it plainly")
	case stale(c) && c.Annotations[v1alpha1.AnnotationPromote] != promotion(c):
		return refuse("the controller has not acted on the latest change of the spec, so what the gate says may be of another rollout; try again")
	case current == 0 || s.Rollout == nil:
		return refuse("the rollout has not begun, there is nothing to let through")
	case batch > current:
		return refuse("--batch is %d, but evidence is waived for the batch under judgement alone, which is batch %d", batch, current)
	case batch != 0 && batch < current:
		return nothing("batch %d is through already", batch)
	case int(current) > len(s.Batches) || s.Batches[current-1].AvailableAt == nil:
		return refuse("batch %d is not available yet, the gate has not begun to judge it", current)
	case s.Batches[current-1].FinishedAt != nil:
		return nothing("batch %d is through already", current)
	case s.Gate != nil && s.Gate.Batch == current && s.Gate.Verdict == v1alpha1.VerdictPass && s.Gate.PausedAt == nil:
		return refuse("the gate passes batch %d; approve it without --without-evidence", current)
	}
	said := "the gate has judged nothing yet"
	if s.Gate != nil && s.Gate.Batch == current {
		said = says(s.Gate)
	}
	return promote(c, "without evidence", said)
}

// promotion is the value of the annotation that lets the current batch through.
func promotion(c *v1alpha1.Canary) string {
	if c.Status.Rollout == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d", c.Status.Rollout.ID, c.Status.CurrentBatch)
}

// promote lets the current batch past the gate and, where a person is waited for as well,
// approves the next one: whoever says one means both.
func promote(c *v1alpha1.Canary, how, confirm string) (Change, error) {
	s := &c.Status
	current, next := s.CurrentBatch, s.CurrentBatch+1
	e := newEdit(c)
	annotated := c.Annotations[v1alpha1.AnnotationPromote] == promotion(c)
	if !annotated {
		e.annotate(v1alpha1.AnnotationPromote, promotion(c))
	}
	approves := asksApproval(c) && approved(c) < next
	if approves {
		e.approve(c, next)
	}
	if annotated && !approves {
		return nothing("batch %d is let through already", current)
	}
	what := fmt.Sprintf("batch %d let through %s", current, how)
	if approves {
		what += fmt.Sprintf(", batch %d approved", next)
	}
	if c.Spec.Paused {
		what += stillHeld(c)
	}
	return e.make(Change{Batch: current, Override: true, Confirm: confirm}, "%s", what)
}

// asksApproval says whether the rollout stops for a person after the current batch.
func asksApproval(c *v1alpha1.Canary) bool {
	current := c.Status.CurrentBatch
	if all := batches(&c.Status); all > 0 && current >= all {
		return false
	}
	switch c.Spec.Info.PauseType {
	case v1alpha1.PauseNone:
		return false
	case v1alpha1.PauseEach:
		return true
	}
	return current == 1
}

// says sums up what the gate says: its verdict, and of each check that does not pass why.
func says(g *v1alpha1.GateStatus) string {
	text := string(g.Verdict)
	if text == "" {
		text = "no verdict"
	}
	var parts []string
	for i := range g.Checks {
		check := &g.Checks[i]
		if check.Verdict == v1alpha1.VerdictPass {
			continue
		}
		part := check.Name + " is " + string(check.Verdict)
		if check.Message != "" {
			part += ": " + check.Message
		}
		parts = append(parts, part)
	}
	switch {
	case len(parts) > 0:
		return text + ": " + strings.Join(parts, "; ")
	case g.Message != "":
		return text + ": " + g.Message
	}
	return text
}
