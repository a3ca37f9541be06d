package propagation

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

type stateKey struct{}

// stateContext is a context that holds its state inline, so that storing one
// costs a single allocation.
type stateContext struct {
	context.Context
	state State
}

func (c *stateContext) Value(k any) any {
	if _, ok := k.(stateKey); ok {
		return &c.state
	}
	return c.Context.Value(k)
}

// ContextWithState returns a context that carries s. It replaces any state
// that ctx carries.
func ContextWithState(ctx context.Context, s State) context.Context {
	return &stateContext{Context: ctx, state: s}
}

// FromContext returns a copy of the state ctx carries, and whether it carries
// one.
func FromContext(ctx context.Context) (State, bool) {
	if p, ok := ctx.Value(stateKey{}).(*State); ok {
		return *p, true
	}
	return State{}, false
}

// RequestIDFromContext is the request id in ctx, or empty.
func RequestIDFromContext(ctx context.Context) string {
	if p, ok := ctx.Value(stateKey{}).(*State); ok {
		return p.RequestID
	}
	return ""
}

// parented is what the SDK's recording spans have beyond the trace API.
type parented interface{ Parent() trace.SpanContext }

// Current is what a call made with ctx has to inject: the state in ctx, moved
// on to the active span when there is one.
func Current(ctx context.Context) State {
	s, _ := FromContext(ctx)
	span := trace.SpanFromContext(ctx)
	sc := span.SpanContext()
	// The span context that Extract itself put there says nothing new, and
	// cannot tell a deferred decision from a denied one.
	if !sc.IsValid() || (sc.TraceID() == s.TraceID && sc.SpanID() == s.SpanID) {
		return s
	}
	var parent trace.SpanID
	switch p, ok := span.(parented); {
	case ok:
		if psc := p.Parent(); psc.TraceID() == sc.TraceID() {
			parent = psc.SpanID()
		}
	case !sc.IsRemote() && sc.TraceID() == s.TraceID:
		// A span that is not recorded does not tell its parent. The caller's
		// span is its nearest ancestor that anything downstream can know.
		parent = s.SpanID
	}
	return s.WithSpan(sc, parent)
}
