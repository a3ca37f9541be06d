package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Actions of the gate, as decisions in status name them.
const (
	actionHold     = "Hold"
	actionPromote  = "Promote"
	actionRollback = "Rollback"
)

// errorRate is the check of the manifests that judges requests.
const errorRate = "error-rate"

// lastBatchToCatch is the batch in which the defect of reviews v3 must be found at the latest.
const lastBatchToCatch = 2

// promotedOnEvidence checks that every batch finished because its evidence passed, with
// nobody approving.
func promotedOnEvidence(c *v1alpha1.Canary, batches int) error {
	s := c.Status
	switch {
	case s.Phase != v1alpha1.PhaseCompleted:
		return fmt.Errorf("the phase is %s, not %s", s.Phase, v1alpha1.PhaseCompleted)
	case s.Rollout == nil || s.Gate == nil:
		return fmt.Errorf("the status has no rollout or no gate")
	case s.Rollout.RollbackStartedAt != nil:
		return fmt.Errorf("a rollback was begun: %s", s.Rollout.RollbackReason)
	case len(s.Batches) != batches:
		return fmt.Errorf("there were %d batches, not %d", len(s.Batches), batches)
	}
	for i, batch := range s.Batches {
		if batch.FinishedAt == nil || batch.Verdict != v1alpha1.VerdictPass {
			return fmt.Errorf("batch %d has the verdict %q, not %s", i+1, batch.Verdict, v1alpha1.VerdictPass)
		}
		if !slices.ContainsFunc(s.Gate.Decisions, func(d v1alpha1.GateDecision) bool {
			return int(d.Batch) == i+1 && d.Verdict == v1alpha1.VerdictPass && d.Action == actionPromote
		}) {
			return fmt.Errorf("no decision of the gate promoted batch %d", i+1)
		}
	}
	for _, d := range s.Gate.Decisions {
		if d.Action != actionPromote && d.Action != actionHold {
			return fmt.Errorf("the gate's decision about batch %d was %s", d.Batch, d.Action)
		}
	}
	return nil
}

// caught checks that the gate found harm early and that it was undone, and returns the
// decision.
func caught(c *v1alpha1.Canary) (v1alpha1.GateDecision, error) {
	s := c.Status
	if s.Phase != v1alpha1.PhaseRolledBack || s.Rollout == nil || s.Rollout.RollbackStartedAt == nil || s.Gate == nil || len(s.Gate.Decisions) == 0 {
		return v1alpha1.GateDecision{}, fmt.Errorf("the phase is %s, not %s by the gate", s.Phase, v1alpha1.PhaseRolledBack)
	}
	last := s.Gate.Decisions[len(s.Gate.Decisions)-1]
	if last.Verdict != v1alpha1.VerdictFail || last.Action != actionRollback {
		return last, fmt.Errorf("the last decision was %s on the verdict %s, not %s on %s", last.Action, last.Verdict, actionRollback, v1alpha1.VerdictFail)
	}
	if last.Batch > lastBatchToCatch {
		return last, fmt.Errorf("found in batch %d, later than batch %d", last.Batch, lastBatchToCatch)
	}
	return last, nil
}

// held says whether the rollout stands still for want of evidence. An error says that it
// went on or back without.
func held(c *v1alpha1.Canary, batch int32) (bool, error) {
	s := c.Status
	switch {
	case s.Rollout == nil || s.Gate == nil:
		return false, fmt.Errorf("the status has no rollout or no gate")
	case s.Rollout.RollbackStartedAt != nil:
		return false, fmt.Errorf("a rollback was begun without evidence: %s", s.Rollout.RollbackReason)
	case s.Verdict == v1alpha1.VerdictFail:
		return false, fmt.Errorf("the version is blamed without evidence: %s", s.Message)
	}
	isHeld := s.Phase == v1alpha1.PhaseAnalyzing && s.Verdict == v1alpha1.VerdictError
	if isHeld && batch > 0 && s.CurrentBatch != batch {
		return false, fmt.Errorf("batch %d became batch %d without evidence", batch, s.CurrentBatch)
	}
	return isHeld, nil
}

// holds counts how often the gate decided to hold because of an error.
func holds(c *v1alpha1.Canary) (n int) {
	if c.Status.Gate == nil {
		return 0
	}
	for _, d := range c.Status.Gate.Decisions {
		if d.Verdict == v1alpha1.VerdictError && d.Action == actionHold {
			n++
		}
	}
	return n
}

// wasHeld checks that the gate decided to hold because of an error.
func wasHeld(c *v1alpha1.Canary) error {
	if holds(c) == 0 {
		return errors.New("no decision of the gate held the release because of an error")
	}
	return nil
}

// passes sums up the requests on which the gate promoted batches.
func passes(c *v1alpha1.Canary) (batches int, newer v1alpha1.RequestCounts) {
	if c.Status.Gate == nil {
		return 0, newer
	}
	for _, d := range c.Status.Gate.Decisions {
		if d.Action != actionPromote {
			continue
		}
		batches++
		if check := checkOf(d); check.New != nil {
			newer.Bad += check.New.Bad
			newer.Total += check.New.Total
		}
	}
	return batches, newer
}

// checkOf is what the decision says of the check of requests.
func checkOf(d v1alpha1.GateDecision) v1alpha1.DecisionCheck {
	for _, check := range d.Checks {
		if check.Name == errorRate {
			return check
		}
	}
	return v1alpha1.DecisionCheck{}
}

// bad writes counts in words.
func bad(counts *v1alpha1.RequestCounts) string {
	if counts == nil || counts.Total == 0 {
		return "no requests"
	}
	share := 100 * float64(counts.Bad) / float64(counts.Total)
	return fmt.Sprintf("%d of %d bad (%s%%)", counts.Bad, counts.Total, strings.TrimSuffix(fmt.Sprintf("%.1f", share), ".0"))
}

// evidence of promotions, and of a rollback.
func promotionEvidence(c *v1alpha1.Canary) string {
	batches, newer := passes(c)
	return fmt.Sprintf("%d x Pass: new %s", batches, bad(&newer))
}

func harmEvidence(d v1alpha1.GateDecision) string {
	check := checkOf(d)
	return fmt.Sprintf("Fail: new %s, old %s", bad(check.New), bad(check.Old))
}
