// Package canary holds the metrics of Canaries: the state of each
// ([NewState]), and counters and histograms of what the controller did
// ([Instruments]).
//
// What a status change completed is derived from the change itself by
// [Completions], a pure function. The reconciler hands it the status before and
// after a write that succeeded, so that a rollout counts once: the status is
// where it is written down what has been counted, and a restarted or new leader
// goes on from there.
//
// The package imports exporter and the Canary API, never the controller.
package canary
