// Package goal says whether a rollout has come to what a command waits for. It is pure.
//
// It imports the API types only.
package goal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Goal is what is waited for. Nothing counts before the controller has acted on the spec
// as it is now, since until then status is about an earlier one.
type Goal struct {
	// Phases to reach.
	Phases []v1alpha1.Phase
	// Settled is reached when the rollout is complete, or waits for approval at batch
	// Batch or a later one. A gate that pauses for a person is an end otherwise.
	Settled bool
	Batch   int32
	// Ignore is a batch about which the gate's wait for a person no longer counts: one has
	// decided.
	Ignore int32
	// Retry is the value of the retry annotation that the rollout must answer.
	Retry string
	// RolloutID, when set, is the rollout that is meant; another one in its place is an
	// end otherwise.
	RolloutID string
}

// State is how far a rollout is from a goal.
type State int

// The states.
const (
	// Going says that it may still come.
	Going State = iota
	// Reached says that it has come.
	Reached
	// Otherwise says that it will not come without somebody doing something.
	Otherwise
)

// String describes the goal in words.
func (g Goal) String() string {
	if !g.Settled {
		names := make([]string, len(g.Phases))
		for i, phase := range g.Phases {
			names[i] = string(phase)
		}
		return strings.Join(names, " or ")
	}
	return "its end or the next approval"
}

// Check says how far c is from the goal, and in words where it stands.
func (g Goal) Check(c *v1alpha1.Canary) (State, string) {
	s := &c.Status
	if s.ObservedGeneration < c.Generation || s.Phase == "" {
		return Going, "the controller has not acted on the latest spec"
	}
	where := string(s.Phase)
	if s.Batch != "" {
		where += ", batch " + s.Batch
	}
	if s.Message != "" {
		where += ": " + s.Message
	}
	if g.Retry != "" && (s.Rollout == nil || s.Rollout.Retry != g.Retry) && s.Phase != v1alpha1.PhaseInvalid {
		return Going, where
	}
	if g.RolloutID != "" && s.Rollout != nil && s.Rollout.ID != g.RolloutID {
		return Otherwise, fmt.Sprintf("rollout %s has taken the place of %s; %s", s.Rollout.ID, g.RolloutID, where)
	}
	if slices.Contains(g.Phases, s.Phase) || g.Settled && s.Phase == v1alpha1.PhaseCompleted {
		return Reached, where
	}
	switch s.Phase {
	case v1alpha1.PhaseCompleted, v1alpha1.PhaseRolledBack, v1alpha1.PhaseFailed, v1alpha1.PhaseInvalid:
		return Otherwise, where
	}
	if !g.Settled {
		return Going, where
	}
	if gate := s.Gate; gate != nil && gate.PausedAt != nil && gate.Batch == s.CurrentBatch {
		if gate.Batch == g.Ignore {
			return Going, where
		}
		return Otherwise, fmt.Sprintf("the gate has paused batch %d for a person: %s", gate.Batch, gate.Message)
	}
	if s.Phase == v1alpha1.PhaseAwaitingApproval && s.CurrentBatch >= g.Batch {
		return Reached, where
	}
	return Going, where
}

// Parse reads phases separated by commas, in any case of letters.
func Parse(text string) ([]v1alpha1.Phase, error) {
	var phases []v1alpha1.Phase
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(v1alpha1.Phases(), func(p v1alpha1.Phase) bool { return strings.EqualFold(string(p), strings.TrimSpace(name)) })
		if i < 0 {
			return nil, fmt.Errorf("%q is no phase; the phases are %v", name, v1alpha1.Phases())
		}
		phases = append(phases, v1alpha1.Phases()[i])
	}
	return phases, nil
}
