package main

import (
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/reconcile"
	"github.com/canarycontroller/canary-controller/controller/trace"
	"github.com/canarycontroller/canary-controller/exporter/canary"
)

// observer turns what the controller did into metrics and spans.
type observer struct {
	instruments *canary.Instruments
	spans       *trace.Recorder
}

func (o observer) Synced(took time.Duration, traceID string, err error) {
	result := canary.ReconcileSuccess
	switch {
	case reconcile.IsConflict(err):
		result = canary.ReconcileConflict
	case err != nil:
		result = canary.ReconcileError
	}
	o.instruments.ObserveReconcile(result, took, traceID)
}

func (o observer) StatusWritten(before, after *v1alpha1.Canary) {
	o.instruments.ObserveCompletions(canary.Completions(&before.Status, &after.Status))
	for _, check := range canary.GateDecisions(&before.Status, &after.Status) {
		o.instruments.CountGateDecision(check.Kind, check.Verdict)
	}
	o.spans.StatusWritten(before, after)
}

func (o observer) Deleted(c *v1alpha1.Canary) { o.spans.Deleted(c) }
