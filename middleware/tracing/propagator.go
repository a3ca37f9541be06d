package tracing

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/contrib/propagators/jaeger"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// defaultPropagators are injected all and extracted in this order, where a
// later valid context replaces an earlier one: B3 wins over W3C, W3C over
// Jaeger, the order the middleware reads them in.
var defaultPropagators = []string{"jaeger", "tracecontext", "b3multi"}

// newPropagator builds the process-wide propagator from names of the
// OTEL_PROPAGATORS list. Both b3 names read both encodings; they differ in the
// one they write.
func newPropagator(names []string) (propagation.TextMapPropagator, error) {
	var list []propagation.TextMapPropagator
	for _, name := range names {
		switch name {
		case "tracecontext":
			list = append(list, propagation.TraceContext{})
		case "baggage":
			list = append(list, propagation.Baggage{})
		case "b3":
			list = append(list, b3Propagator{b3.New(b3.WithInjectEncoding(b3.B3SingleHeader))})
		case "b3multi":
			list = append(list, b3Propagator{b3.New(b3.WithInjectEncoding(b3.B3MultipleHeader))})
		case "jaeger":
			list = append(list, jaeger.Jaeger{})
		case "none":
			if len(names) > 1 {
				return nil, fmt.Errorf("%s: \"none\" must stand alone", envPropagators)
			}
		default:
			return nil, fmt.Errorf("%s: unknown propagator %q: must be tracecontext, baggage, b3, b3multi, jaeger or none", envPropagators, name)
		}
	}
	return propagation.NewCompositeTextMapPropagator(list...), nil
}

// b3Propagator is contrib's without two faults: with no span it injects
// "sampled=0", which denies tracing to everything downstream; and of a header
// with broken ids it keeps the debug flag, which then forces a trace the
// caller never started.
type b3Propagator struct {
	propagation.TextMapPropagator
}

func (p b3Propagator) Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		p.TextMapPropagator.Inject(ctx, carrier)
	}
}

func (p b3Propagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	if hasB3IDs(carrier) && !trace.SpanContextFromContext(p.TextMapPropagator.Extract(context.WithoutCancel(noSpan(ctx)), carrier)).IsValid() {
		return ctx
	}
	return p.TextMapPropagator.Extract(ctx, carrier)
}

// noSpan hides the span an earlier propagator may have put into ctx.
func noSpan(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// hasB3IDs reports whether the headers name a trace, rightly or not, rather
// than only carry a decision.
func hasB3IDs(carrier propagation.TextMapCarrier) bool {
	return strings.Contains(carrier.Get("b3"), "-") || carrier.Get("x-b3-traceid") != "" || carrier.Get("x-b3-spanid") != ""
}
