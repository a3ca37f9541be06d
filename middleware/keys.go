package middleware

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// An exchange is itself the context that holds the request's state and, while
// its span starts, the caller's span: two context values for no allocation.
// For that it has to know the keys the packages they belong to look them up
// by, which are not exported. Each is learned by looking something up in a
// context that remembers what it was asked for.
var (
	stateKey = keyOf(func(ctx context.Context) { propagation.FromContext(ctx) })
	spanKey  = keyOf(func(ctx context.Context) { trace.SpanFromContext(ctx) })
)

// probe remembers the first key it is asked for.
type probe struct {
	context.Context
	key any
}

// Value implements context.Context.
func (p *probe) Value(key any) any {
	if p.key == nil {
		p.key = key
	}
	return nil
}

func keyOf(lookUp func(context.Context)) any {
	p := &probe{Context: context.Background()}
	lookUp(p)
	return p.key
}

// holdsSpans reports whether the OpenTelemetry in use finds a span by spanKey.
// If a future one does not, they are put into a context of their own.
var holdsSpans = func() bool {
	x := &exchange{Context: context.Background(), hasRemote: true}
	x.remote.x = x
	x.state.TraceID, x.state.SpanID = trace.TraceID{1}, trace.SpanID{1}
	return trace.SpanContextFromContext(x).Equal(x.state.SpanContext())
}()
