// Package change decides what approve, pause, resume, rollback and retry change in a
// Canary: a merge patch bound to the resourceVersion that was looked at, one sentence
// about it, or a refusal. It is pure; asked again after its change it has nothing to do.
//
// It imports the API types only.
package change
