package propagation

import (
	"net/http"
	"slices"

	otel "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// source is where headers are read from: a map of either transport, or any
// OpenTelemetry carrier.
type source struct {
	m       map[string][]string
	names   *keyNames
	carrier otel.TextMapCarrier
}

func httpSource(h http.Header) source { return source{m: h, names: &canonicalNames} }

func metadataSource(md map[string][]string) source { return source{m: md, names: &lowerNames} }

// first is the first value of k, or "".
func (s *source) first(k key) string {
	if s.carrier != nil {
		return s.carrier.Get(s.names[k])
	}
	if v := s.m[s.names[k]]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// all are the values of a header. A carrier that keeps one value only gives
// that.
func (s *source) all(name string) []string {
	if s.carrier == nil {
		return s.m[name]
	}
	if g, ok := s.carrier.(otel.ValuesGetter); ok {
		return g.Values(name)
	}
	if v := s.carrier.Get(name); v != "" {
		return []string{v}
	}
	return nil
}

// Extract reads the state of a request whose sender cfg's policy judges by its
// headers alone; handlers that know more use [ExtractWith]. A nil cfg means
// [Default].
//
// The first configured format with valid ids gives the ids. A decision that a
// format sends without ids (b3: 0) is honoured, whatever later formats with
// ids say. Without valid ids the result has none: starting a trace is up to the
// tracing SDK or [NewRoot].
func Extract(h http.Header, cfg *Config) State {
	cfg = cfg.orDefault()
	return ExtractWith(h, cfg, cfg.trust.Decide(Peer{Header: h}))
}

// ExtractWith is Extract with the trust in the sender already decided.
func ExtractWith(h http.Header, cfg *Config, t Trust) State {
	cfg = cfg.orDefault()
	src := httpSource(h)
	s := cfg.extractFrom(&src, t)
	cfg.resolveRequestID(&s, &src, t)
	return s
}

// ExtractLink is the span context a request claims, whatever its sender is
// trusted with: the link that a public endpoint's root span gets. It is
// invalid when the request has none.
func ExtractLink(h http.Header, cfg *Config) trace.SpanContext {
	src := httpSource(h)
	return cfg.orDefault().link(&src)
}

func (c *Config) link(src *source) trace.SpanContext {
	var s State
	c.readTrace(&s, src)
	return s.SpanContext()
}

func (c *Config) extractFrom(src *source, t Trust) State {
	var s State
	if t&(TrustIDs|TrustFlags) != 0 {
		c.readTrace(&s, src)
		if !t.Has(TrustFlags) {
			s.Sampling = Defer
		}
		if !t.Has(TrustIDs) {
			s = State{Sampling: s.Sampling}
		}
	}
	if t.Has(TrustBaggage) && (c.baggageAll || c.baggage != nil) {
		s.Baggage = c.filterBaggage(src.all(src.names[keyBaggage]))
	}
	if t.Has(TrustForwarded) {
		c.capture(&s, src)
	}
	return s
}

// resolveRequestID applies the rule for request ids to one request.
func (c *Config) resolveRequestID(s *State, src *source, t Trust) {
	if c.requestID {
		s.RequestID, s.RequestIDGenerated = ResolveRequestID(src.first(keyRequestID), t.Has(TrustRequestID), c.rand)
	}
}

// readTrace fills in ids, decision, tracestate, and where they came from.
func (c *Config) readTrace(s *State, src *source) {
	var id identity
	for _, f := range c.extract {
		if !readFormat(f, src, c.nibble, &id) {
			continue
		}
		s.Seen |= f
		if s.HasIDs() {
			continue
		}
		if s.Sampling == Defer {
			s.Sampling = id.sampling
		}
		s.Format = f
		if !id.hasIDs() {
			continue
		}
		s.TraceID, s.SpanID, s.ParentID = id.traceID, id.spanID, id.parentID
		s.Short, s.Random, s.Remote = id.short, id.random, true
		if f == TraceContext || c.sameTraceInW3C(src, id.traceID) {
			s.TraceState = cleanTraceState(src.all(src.names[keyTracestate]))
		}
		if !c.mirror {
			return
		}
	}
}

// sameTraceInW3C reports whether a request whose ids came in another format
// also has a tracestate of the same trace. Everything that injects B3 beside
// W3C, as this package does by default, sends such requests, and the next hop
// must not lose the vendors' state.
func (c *Config) sameTraceInW3C(src *source, trace trace.TraceID) bool {
	if !slices.Contains(c.extract, TraceContext) || len(src.all(src.names[keyTracestate])) == 0 {
		return false
	}
	var w3c identity
	return readFormat(TraceContext, src, c.nibble, &w3c) && w3c.traceID == trace
}

func readFormat(f Format, src *source, nibble *[256]byte, id *identity) bool {
	switch f {
	case B3Single:
		v := src.first(keyB3)
		return v != "" && parseB3Single(v, nibble, id)
	case B3Multi:
		return parseB3Multi(src.first(keyB3TraceID), src.first(keyB3SpanID), src.first(keyB3ParentSpanID),
			src.first(keyB3Sampled), src.first(keyB3Flags), nibble, id)
	case TraceContext:
		// Two traceparent lines leave open which one is meant, so neither is.
		v := src.all(src.names[keyTraceparent])
		return len(v) == 1 && parseTraceparent(v[0], id)
	case Jaeger:
		v := src.first(keyUberTraceID)
		return v != "" && parseUberTraceID(v, id)
	default:
		return false
	}
}
