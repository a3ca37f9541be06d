package gate

import (
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Situation is what the gate must know of a rollout besides the evidence.
type Situation struct {
	// RolloutID identifies the rollout.
	RolloutID string
	// Namespace, Canary, New and Old are names; Old is empty without an old version.
	Namespace, Canary, New, Old string
	// Batch that is judged, from 1, of Batches.
	Batch, Batches int32
	// WindowStart is when the batch became available.
	WindowStart time.Time
	// Held says that a person holds the rollout here: paused, or not yet approved. The hold
	// deadline does not run meanwhile.
	Held bool
	// OldReplicas is how many replicas the old version keeps in this batch; with none it has
	// no requests, and its counts of the batch before stand in for them.
	OldReplicas int32
}

// Window is the time that is judged: since the batch became available, in whole seconds.
func (s Situation) Window(now time.Time) time.Duration {
	return max(0, now.Sub(s.WindowStart).Truncate(time.Second))
}

// Sample is one number, or the reason why there is none.
type Sample struct {
	// Value counts only while Verdict is empty. It is finite.
	Value float64
	// Verdict is NoData or Error when there is no number.
	Verdict v1alpha1.Verdict
	// Problem says why there is none, without credentials.
	Problem string
}

// Evidence is what one source says about one check.
type Evidence struct {
	// NewBad, NewTotal, OldBad and OldTotal are requests in the window, for proportion
	// checks. The old ones are nil when the check has no old version to compare with.
	NewBad, NewTotal Sample
	OldBad, OldTotal *Sample
	// Value and Samples are for threshold and outlier checks; Samples is nil unless asked for.
	Value   Sample
	Samples *Sample
	// Rules are the alerting rules that a selector found. RulesProblem says why they could
	// not be read: NoData or Error.
	Rules        []Rule
	RulesProblem *Sample
	// Queries as sent.
	Queries []string
	// TraceIDs are exemplars of bad requests, at most 3.
	TraceIDs []string
}

// Rule is an alerting rule as Prometheus reports it.
type Rule struct {
	Group, Name string
	// Health is ok, err or unknown; State is inactive, pending, firing or unknown.
	Health, State, LastError string
	// LastEvaluation is by the clock of Prometheus, Now is that clock when it was asked.
	LastEvaluation, Now time.Time
	// For, Interval and QueryOffset delay what a rule shows.
	For, Interval, QueryOffset time.Duration
	// Firing and Pending count the rule's alerts that are about this Canary.
	Firing, Pending int
}

// Gathered holds the evidence about each check (by name; of an alert selector see
// [AlertName]) from every Prometheus that was asked; the worst counts.
type Gathered map[string][]Evidence
