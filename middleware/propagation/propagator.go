package propagation

import (
	"context"
	"net/http"
	"slices"
	"strings"

	otel "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// propagator is a Config as OpenTelemetry's TextMapPropagator.
type propagator struct {
	config *Config
	fields []string
}

// NewPropagator makes an OpenTelemetry propagator of cfg; nil means [Default].
//
// Extract puts a [State] and, when there are ids, the remote span context into
// the context. It makes no request id. Inject writes [Current]. A carrier that
// is not an http.Header is read and written in lower case, without "-bin"
// headers, and nothing is removed from it, since carriers only know how to set.
func NewPropagator(cfg *Config) otel.TextMapPropagator {
	cfg = cfg.orDefault()
	p := &propagator{config: cfg}
	for _, fk := range formatKeys {
		if cfg.inject&fk.format != 0 {
			for _, k := range fk.keys {
				p.fields = append(p.fields, lowerNames[k])
			}
		}
	}
	if cfg.requestID {
		p.fields = append(p.fields, lowerNames[keyRequestID])
	}
	if cfg.baggageAll || cfg.baggage != nil {
		p.fields = append(p.fields, lowerNames[keyBaggage])
	}
	for _, f := range cfg.forward {
		p.fields = append(p.fields, f.lower)
	}
	return p
}

// Fields are the headers Inject may set.
func (p *propagator) Fields() []string { return slices.Clone(p.fields) }

// Extract implements TextMapPropagator.
func (p *propagator) Extract(ctx context.Context, carrier otel.TextMapCarrier) context.Context {
	src := source{names: &lowerNames, carrier: carrier}
	peer := Peer{Context: ctx}
	if h, ok := carrier.(otel.HeaderCarrier); ok {
		src = httpSource(http.Header(h))
		peer.Header = http.Header(h)
	}
	t := p.config.trust.Decide(peer)
	s := p.config.extractFrom(&src, t)
	if id := src.first(keyRequestID); p.config.requestID && t.Has(TrustRequestID) && ValidRequestID(id) {
		s.RequestID = id
	}
	if s.IsEmpty() {
		return ctx
	}
	if s.RequestID == "" {
		// A handler further out may have made one.
		if prev, ok := FromContext(ctx); ok {
			s.RequestID, s.RequestIDGenerated = prev.RequestID, prev.RequestIDGenerated
		}
	}
	ctx = ContextWithState(ctx, s)
	if sc := s.SpanContext(); sc.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}

// Inject implements TextMapPropagator.
func (p *propagator) Inject(ctx context.Context, carrier otel.TextMapCarrier) {
	s := Current(ctx)
	if h, ok := carrier.(otel.HeaderCarrier); ok {
		Inject(s, http.Header(h), p.config)
		return
	}
	s.Forwarded = slices.DeleteFunc(slices.Clone(s.Forwarded), func(f Field) bool {
		return strings.HasSuffix(strings.ToLower(f.Name), "-bin")
	})
	m := map[string][]string{}
	w := writer{m: m, names: &lowerNames, config: p.config}
	w.write(&s)
	for name, values := range m {
		if !traceHeader(name) && carrier.Get(name) != "" {
			continue
		}
		carrier.Set(name, strings.Join(values, ","))
	}
}

// traceHeader reports whether a header, in lower case, is part of a trace
// format, which is overwritten and not left to the caller.
func traceHeader(lower string) bool {
	i := slices.Index(lowerNames[:], lower)
	return i >= 0 && key(i) != keyRequestID && key(i) != keyBaggage
}
