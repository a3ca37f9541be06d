// Package rollout decides what a rollout does next. It is pure: no client, no clock, no
// logging. Next maps a plan, what was observed, the state kept in status, the gate's
// verdict and the time to a decision; the reconciler carries it out.
//
// The rules are in plan.go (batch targets), next.go (which course applies), batch.go
// (moving replicas forward), rollback.go (moving them back), each with its tests.
//
// It imports the Canary API types and k8s.io/apimachinery only.
package rollout
