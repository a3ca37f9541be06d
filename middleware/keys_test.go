package middleware

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

func TestExchangeHoldsStateAndSpan(t *testing.T) {
	if stateKey == nil || spanKey == nil || stateKey == spanKey || !holdsSpans {
		t.Fatalf("keys %v and %v, spans held: %v", stateKey, spanKey, holdsSpans)
	}
	type other struct{}
	x := &exchange{Context: context.WithValue(t.Context(), other{}, "below")}
	x.state.RequestID = "id"
	if id := propagation.RequestIDFromContext(x); id != "id" {
		t.Errorf("request id %q", id)
	}
	if trace.SpanContextFromContext(x).IsValid() {
		t.Error("a span from nowhere")
	}
	if x.Value(other{}) != "below" {
		t.Error("hides what is below")
	}
	// A state set further up wins, as does a span.
	up := propagation.ContextWithState(x, propagation.State{RequestID: "up"})
	if id := propagation.RequestIDFromContext(up); id != "up" {
		t.Errorf("request id %q", id)
	}
	ctx, cancel := context.WithCancel(x)
	cancel()
	if ctx.Err() == nil || x.Err() != nil {
		t.Error("cancelling above went wrong")
	}
}
