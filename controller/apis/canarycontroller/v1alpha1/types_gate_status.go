package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GateStatus is the evidence about the current batch. It is all that the gate remembers.
type GateStatus struct {
	// Batch that is judged.
	Batch int32 `json:"batch"`
	// WindowStart is when the batch became available; nothing earlier is judged.
	WindowStart metav1.Time `json:"windowStart"`
	// EvaluatedAt is when all checks were evaluated last.
	// +optional
	EvaluatedAt *metav1.Time `json:"evaluatedAt,omitempty"`
	// Evaluations counts those of this batch.
	// +optional
	Evaluations int32 `json:"evaluations,omitempty"`
	// Verdict over all checks: the worst.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// HeldSince is since when no evaluation has passed; the hold deadline counts from here.
	// It begins at windowStart, and anew after a pass; time in which nobody looked, or in which
	// a person held the rollout, is left out.
	// +optional
	HeldSince *metav1.Time `json:"heldSince,omitempty"`
	// PausedAt is since when a person must decide.
	// +optional
	PausedAt *metav1.Time `json:"pausedAt,omitempty"`
	// Message says in one sentence what the verdict rests on.
	// +optional
	Message string `json:"message,omitempty"`
	// Checks and alerts in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	Checks []CheckStatus `json:"checks,omitempty"`
	// Decisions of this rollout, oldest first, at most 30.
	// +optional
	// +listType=atomic
	Decisions []GateDecision `json:"decisions,omitempty"`
}

// CheckStatus is the evidence of one check.
type CheckStatus struct {
	// Name of the check; of an alert selector its labels.
	Name string `json:"name"`
	// Kind of the check.
	Kind CheckKind `json:"kind"`
	// Verdict of the latest evaluation.
	Verdict Verdict `json:"verdict"`
	// Message says what the verdict rests on, or why there is none.
	// +optional
	Message string `json:"message,omitempty"`
	// Value and Limit are what was compared, such as 0.13% and 1%.
	// +optional
	Value string `json:"value,omitempty"`
	// +optional
	Limit string `json:"limit,omitempty"`
	// New and Old are the counts judged.
	// +optional
	New *RequestCounts `json:"new,omitempty"`
	// +optional
	Old *RequestCounts `json:"old,omitempty"`
	// Baseline holds the old version's counts of the latest batch in which it had requests;
	// they stand in for Old when it has none any more.
	// +optional
	Baseline *RequestCounts `json:"baseline,omitempty"`
	// Queries that were asked, as sent.
	// +optional
	// +listType=atomic
	Queries []string `json:"queries,omitempty"`
	// SpecHash identifies the check that was evaluated, since the author may change it. What
	// it found is not acted on for another.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// Passes and Failures in a row.
	// +optional
	Passes int32 `json:"passes,omitempty"`
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// Peak is the largest number of the new version's requests seen in this batch; only more
	// than that are new ones.
	// +optional
	Peak int64 `json:"peak,omitempty"`
	// GrewAt is when the new version's requests were last seen to grow.
	// +optional
	GrewAt *metav1.Time `json:"grewAt,omitempty"`
	// History holds the latest values, oldest first, at most 20; empty where there was none.
	// +optional
	// +listType=atomic
	History []string `json:"history,omitempty"`
	// TraceIDs are exemplars of bad requests, at most 3.
	// +optional
	// +listType=atomic
	TraceIDs []string `json:"traceIDs,omitempty"`
}

// RequestCounts are requests of one version.
type RequestCounts struct {
	Bad   int64 `json:"bad"`
	Total int64 `json:"total"`
}

// GateDecision is one change of verdict or one act of the gate.
type GateDecision struct {
	// Time of the decision.
	Time metav1.Time `json:"time"`
	// Batch it was about.
	Batch int32 `json:"batch"`
	// Verdict at that time.
	Verdict Verdict `json:"verdict"`
	// Action taken: Hold, Promote, Pause, Rollback or Override (a person let the batch through).
	Action string `json:"action"`
	// Evidence in one sentence.
	Evidence string `json:"evidence"`
	// Number counts the decisions about this batch, from 1.
	// +optional
	Number int32 `json:"number,omitempty"`
	// Checks is what the checks had found, of a decision that does more than hold.
	// +optional
	// +listType=map
	// +listMapKey=name
	Checks []DecisionCheck `json:"checks,omitempty"`
	// TraceIDs are exemplars of the bad requests that a Fail rests on, at most 10.
	// +optional
	// +listType=atomic
	TraceIDs []string `json:"traceIDs,omitempty"`
}

// DecisionCheck is what a check had found when a decision was taken.
type DecisionCheck struct {
	// Name of the check.
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// +optional
	Value string `json:"value,omitempty"`
	// +optional
	Limit string `json:"limit,omitempty"`
	// +optional
	New *RequestCounts `json:"new,omitempty"`
	// +optional
	Old *RequestCounts `json:"old,omitempty"`
}
