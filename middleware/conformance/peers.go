package conformance

import (
	"context"
	"net/http"
	"strings"

	"github.com/openzipkin/zipkin-go/propagation/b3"
	jaegerclient "github.com/uber/jaeger-client-go"
	contribb3 "go.opentelemetry.io/contrib/propagators/b3"
	contribjaeger "go.opentelemetry.io/contrib/propagators/jaeger"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Peer is another implementation of a format.
type Peer struct {
	Name string
	// Read makes a Reading of a request's headers.
	Read func(http.Header) Reading
	// Keeps says which fields of a Reading the peer has at all.
	Keeps Fields
}

// Fields are those of a Reading that not every implementation has.
type Fields struct{ Parent, Random, TraceState bool }

// ContribB3 is go.opentelemetry.io/contrib/propagators/b3. It keeps debug and
// deferral in the context under keys of its own, so they are read from what it
// would inject.
var ContribB3 = Peer{Name: "contrib/b3", Read: func(h http.Header) Reading {
	p := contribb3.New(contribb3.WithInjectEncoding(contribb3.B3SingleHeader))
	ctx := p.Extract(context.Background(), propagation.HeaderCarrier(h))
	r := fromSpanContext(trace.SpanContextFromContext(ctx))
	if !r.Valid {
		return r
	}
	out := propagation.MapCarrier{}
	p.Inject(ctx, out)
	fields := strings.Split(out["b3"], "-")
	r.Decision = "defer"
	if len(fields) > 2 {
		r.Decision = map[string]string{"0": "deny", "1": "accept", "d": "debug"}[fields[2]]
	}
	return r
}}

// Zipkin is github.com/openzipkin/zipkin-go/propagation/b3. Its two parsers are
// called directly, because its ExtractHTTP takes malformed headers of one
// encoding for a valid, empty context of the other.
var Zipkin = Peer{Name: "zipkin-go", Keeps: Fields{Parent: true}, Read: func(h http.Header) Reading {
	single := h.Get(b3.Context)
	sc, err := b3.ParseSingleHeader(single)
	if single == "" {
		sc, err = b3.ParseHeaders(h.Get(b3.TraceID), h.Get(b3.SpanID), h.Get(b3.ParentSpanID), h.Get(b3.Sampled), h.Get(b3.Flags))
	}
	if err != nil {
		return Reading{}
	}
	r := Reading{Valid: true, Decision: "defer"}
	switch {
	case sc.Debug:
		r.Decision = "debug"
	case sc.Sampled != nil && *sc.Sampled:
		r.Decision = "accept"
	case sc.Sampled != nil:
		r.Decision = "deny"
	}
	if len(single) <= 1 && h.Get(b3.TraceID) == "" {
		r.Valid = r.Decision != "defer"
		if !r.Valid {
			return Reading{}
		}
		return r
	}
	r.TraceID, r.SpanID = pad(sc.TraceID.String()), sc.ID.String()
	if sc.ParentID != nil && *sc.ParentID != 0 {
		r.ParentID = sc.ParentID.String()
	}
	return r
}}

// OTelTraceContext is go.opentelemetry.io/otel/propagation.TraceContext.
var OTelTraceContext = Peer{Name: "otel/tracecontext", Keeps: Fields{Random: true, TraceState: true}, Read: func(h http.Header) Reading {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h))
	return fromSpanContext(trace.SpanContextFromContext(ctx))
}}

// ContribJaeger is go.opentelemetry.io/contrib/propagators/jaeger.
var ContribJaeger = Peer{Name: "contrib/jaeger", Read: func(h http.Header) Reading {
	p := contribjaeger.Jaeger{}
	ctx := p.Extract(context.Background(), propagation.HeaderCarrier(h))
	r := fromSpanContext(trace.SpanContextFromContext(ctx))
	if !r.Valid {
		return r
	}
	out := propagation.MapCarrier{}
	p.Inject(ctx, out)
	if strings.HasSuffix(out["uber-trace-id"], ":3") {
		r.Decision = "debug"
	}
	return r
}}

// JaegerClient is github.com/uber/jaeger-client-go. It is what the header
// carrier of its tracer parses, after URL-decoding.
var JaegerClient = Peer{Name: "jaeger-client-go", Keeps: Fields{Parent: true}, Read: func(h http.Header) Reading {
	sc, err := jaegerclient.ContextFromString(h.Get("uber-trace-id"))
	if err != nil || !sc.IsValid() {
		return Reading{}
	}
	r := Reading{
		Valid: true, TraceID: pad(sc.TraceID().String()), SpanID: pad(sc.SpanID().String())[16:], Decision: "deny",
	}
	if p := pad(sc.ParentID().String())[16:]; p != zeroID {
		r.ParentID = p
	}
	switch {
	case sc.IsSampled() && sc.IsDebug():
		r.Decision = "debug"
	case sc.IsSampled():
		r.Decision = "accept"
	}
	return r
}}

func fromSpanContext(sc trace.SpanContext) Reading {
	if !sc.IsValid() {
		return Reading{}
	}
	r := Reading{
		Valid: true, TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), Decision: "deny",
		TraceState: sc.TraceState().String(), Random: sc.TraceFlags().IsRandom(),
	}
	if sc.IsSampled() {
		r.Decision = "accept"
	}
	return r
}
