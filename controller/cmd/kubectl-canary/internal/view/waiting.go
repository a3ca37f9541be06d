package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// waits draws what the rollout waits for, why, and what comes then.
func (p *page) waits(c *v1alpha1.Canary) {
	what, why, then := Waiting(c, p.Now)
	p.section("Waits for", yellow, what)
	if why != "" {
		p.section("Because", plain, why)
	}
	if then != "" {
		p.section("Then", plain, then)
	}
	r := c.Status.Rollout
	if r != nil && r.RollbackStartedAt != nil {
		p.section("More", plain, "kubectl canary why "+c.Name+" tells what led to this")
	}
	if r != nil && r.TraceID != "" {
		p.section("Trace", dim, r.TraceID)
	}
}

// Waiting says in words what a rollout waits for, why, and what comes next or may be done.
func Waiting(c *v1alpha1.Canary, now time.Time) (what, why, then string) {
	s := &c.Status
	command := func(verb string) string { return fmt.Sprintf("kubectl canary %s %s", verb, c.Name) }
	switch {
	case s.Phase == "":
		return "the controller, which has not acted on this Canary yet", "", "if this stays so, see that canary-controller runs and watches this namespace"
	case c.DeletionTimestamp != nil:
		return "the controller to let go of the Deployments: the Canary is being deleted", s.Message, ""
	}
	switch s.Phase {
	case v1alpha1.PhaseCompleted:
		what, why = "nothing: the release is complete", s.Message
	case v1alpha1.PhaseRolledBack:
		what, why, then = "nothing: it is rolled back", s.Message, command("retry")+" starts again"
	case v1alpha1.PhaseFailed:
		what, why, then = "a person", s.Message, command("rollback")+" or "+command("retry")
	case v1alpha1.PhaseInvalid:
		what, why, then = "a correct spec", s.Message, "what runs keeps running until the spec is corrected"
	case v1alpha1.PhaseRollingBack:
		what, why, then = "replicas of the old version", s.Message, deadline(c, now)
	case v1alpha1.PhaseAwaitingApproval:
		what, why, then = "a person's approval", s.Message, command("approve")+" or "+command("rollback")
		if g := s.Gate; g != nil && g.PausedAt != nil && g.Batch == s.CurrentBatch {
			what = "a person: the gate has paused this batch"
			if g.Verdict != v1alpha1.VerdictPass {
				then = command("approve") + " --without-evidence or " + command("rollback")
			}
		}
	case v1alpha1.PhaseAnalyzing:
		what, why, then = analyzing(c, now)
	case v1alpha1.PhasePending:
		what, why = "the rollout to begin", s.Message
	default:
		what, why, then = "replicas of the new version", s.Message, deadline(c, now)
	}
	if c.Spec.Paused && !over(s) && s.Phase != v1alpha1.PhaseRollingBack && s.Phase != v1alpha1.PhaseInvalid {
		what = "spec.paused to be lifted"
		then = command("resume")
	}
	if Stale(c) {
		what = "the controller to see the latest change of the spec, then " + what
	}
	return what, why, then
}

// over says whether the attempt has ended.
func over(s *v1alpha1.CanaryStatus) bool {
	return s.Phase == v1alpha1.PhaseCompleted || s.Phase == v1alpha1.PhaseRolledBack || s.Phase == v1alpha1.PhaseFailed
}

// analyzing says what the gate lacks and how long it may.
func analyzing(c *v1alpha1.Canary, now time.Time) (what, why, then string) {
	s := &c.Status
	why = s.Message
	g := s.Gate
	if g == nil {
		return "the gate's first verdict", why, ""
	}
	if g.Message != "" && g.Message != why {
		why = g.Message
	}
	gate := v1alpha1.Gate{}
	if c.Spec.Gate != nil {
		spec := c.DeepCopy()
		v1alpha1.SetDefaults(spec)
		gate = *spec.Spec.Gate
	}
	what = "evidence for the gate"
	if i := slices.IndexFunc(g.Checks, func(check v1alpha1.CheckStatus) bool { return check.Verdict == g.Verdict }); i >= 0 && g.Verdict != v1alpha1.VerdictPass {
		what = fmt.Sprintf("%s: %s is %s", what, g.Checks[i].Name, g.Verdict)
		if g.Verdict == v1alpha1.VerdictError {
			what = "the gate to be able to judge: " + g.Checks[i].Name + " is Error"
		}
	}
	if gate.HoldDeadline != nil {
		act := map[v1alpha1.GateAction]string{v1alpha1.GatePause: "it pauses for a person", v1alpha1.GateRollback: "it rolls back"}[gate.OnHold]
		since := g.WindowStart
		if g.HeldSince != nil {
			since = *g.HeldSince
		}
		if left := since.Add(gate.HoldDeadline.Duration).Sub(now); left > 0 && act != "" {
			then = fmt.Sprintf("after %s more without a verdict %s", lasting(left), act)
		}
	}
	return what, why, then
}

// deadline says when the batch or the rollback is overdue.
func deadline(c *v1alpha1.Canary, now time.Time) string {
	s := &c.Status
	allowed := time.Duration(v1alpha1.DefaultProgressDeadlineSeconds) * time.Second
	if d := c.Spec.ProgressDeadlineSeconds; d != nil {
		allowed = time.Duration(*d) * time.Second
	}
	if r := s.Rollout; s.Phase == v1alpha1.PhaseRollingBack && r != nil && r.RollbackStartedAt != nil {
		if left := r.RollbackStartedAt.Add(allowed).Sub(now); left > 0 {
			return "overdue in " + lasting(left)
		}
		return "overdue by " + lasting(-r.RollbackStartedAt.Add(allowed).Sub(now))
	}
	if n := int(s.CurrentBatch); n >= 1 && n <= len(s.Batches) {
		b := s.Batches[n-1]
		switch {
		case b.BrokenAt != nil:
			return fmt.Sprintf("batch %d was available and is broken since %s; it goes on when its replicas are back", n, lasting(now.Sub(b.BrokenAt.Time)))
		case b.AvailableAt != nil:
			return ""
		}
		end := b.StartedAt.Add(allowed + time.Duration(b.PausedSeconds)*time.Second)
		if left := end.Sub(now); left > 0 {
			return fmt.Sprintf("batch %d fails in %s unless they are available by then", n, lasting(left))
		}
	}
	return ""
}
