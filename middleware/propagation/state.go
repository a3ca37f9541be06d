package propagation

import (
	"go.opentelemetry.io/otel/trace"
)

// Sampling is a sampling decision as B3 defines it; the zero value is Defer.
type Sampling uint8

const (
	// Defer leaves the decision to the receiver.
	Defer Sampling = iota
	// Deny says the trace is not recorded.
	Deny
	// Accept says the trace is recorded.
	Accept
	// Debug is an emphasised Accept that, once set, stays set downstream.
	Debug
)

// String gives the B3 specification's name of the decision in lower case.
func (d Sampling) String() string {
	switch d {
	case Deny:
		return "deny"
	case Accept:
		return "accept"
	case Debug:
		return "debug"
	default:
		return "defer"
	}
}

// Field is one forwarded header.
type Field struct {
	// Name is canonical in the sense of net/http.
	Name string
	// Value is the text as an HTTP header carries it: a name ending in -Bin
	// has its bytes as base64, with gRPC metadata too.
	Value string
}

// State is what one request carries. The zero value carries nothing. It is a
// plain value: copy it, change the copy, and put it into a context with
// [ContextWithState]. The Forwarded slice is shared between copies and must be
// replaced rather than written to.
type State struct {
	// TraceID names the trace. A 64-bit id sits in the last 8 bytes, with
	// Short set.
	TraceID trace.TraceID
	// SpanID is the span that the next receiver's span is a child of: the
	// caller's in a state that was extracted, ours in one to be injected.
	SpanID trace.SpanID
	// ParentID is the parent of SpanID; zero for a root span and when the
	// format does not tell.
	ParentID trace.SpanID

	// TraceState is the W3C tracestate list, cleaned and on one line.
	TraceState string
	// RequestID is the x-request-id, valid in the sense of [ValidRequestID],
	// or empty.
	RequestID string
	// Baggage is the W3C baggage list reduced to the allowed keys.
	Baggage string
	// Forwarded are the headers the allowlist let through.
	Forwarded []Field

	// Sampling may be set without ids: "b3: 0" denies a trace that has none.
	Sampling Sampling
	// Format is the format ids and decision were read from; 0 for none.
	Format Format
	// Seen is the set of formats the request had headers of.
	Seen Format
	// Short says the trace id came as 64 bits. It is written with 16 digits
	// where the format allows.
	Short bool
	// Random is the W3C level 2 random-trace-id flag.
	Random bool
	// Remote says the ids came from another process.
	Remote bool
	// RequestIDGenerated says RequestID was made here because none came, it
	// was malformed, or its sender is not trusted.
	RequestIDGenerated bool
}

// HasIDs reports whether trace id and span id are both set.
func (s State) HasIDs() bool { return s.TraceID.IsValid() && s.SpanID.IsValid() }

// IsEmpty reports whether there is nothing to inject.
func (s State) IsEmpty() bool {
	return !s.HasIDs() && s.Sampling == Defer && s.RequestID == "" && s.Baggage == "" && len(s.Forwarded) == 0
}

// Sampled reports whether the decision is Accept or Debug.
func (s State) Sampled() bool { return s.Sampling >= Accept }

// TraceIDString is the trace id in lower-case hex, 16 digits when it came as
// 64 bits and 32 otherwise; empty when there is none.
func (s State) TraceIDString() string {
	if !s.TraceID.IsValid() {
		return ""
	}
	var b [32]byte
	return string(s.appendTraceID(b[:0]))
}

// appendTraceID appends the id in its original width. A Short that was set on
// an id of more than 64 bits is ignored, so no digits are lost.
func (s State) appendTraceID(b []byte) []byte {
	if s.Short && [8]byte(s.TraceID[:8]) == [8]byte{} {
		return appendHex(b, s.TraceID[8:])
	}
	return appendHex(b, s.TraceID[:])
}

// Header is the first value of a forwarded header, by its canonical name;
// empty when it was not forwarded.
func (s State) Header(name string) string {
	for i := range s.Forwarded {
		if s.Forwarded[i].Name == name {
			return s.Forwarded[i].Value
		}
	}
	return ""
}

// SpanContext is the state as OpenTelemetry knows it. Defer and Deny both
// become "not sampled"; a sampler that must tell them apart reads the State
// from its parent context. A tracestate OpenTelemetry cannot parse is left
// out here and kept in the State. The result is invalid when there are no ids.
func (s State) SpanContext() trace.SpanContext {
	if !s.HasIDs() {
		return trace.SpanContext{}
	}
	sc := trace.SpanContextConfig{
		TraceID:    s.TraceID,
		SpanID:     s.SpanID,
		TraceFlags: trace.TraceFlags(0).WithSampled(s.Sampled()).WithRandom(s.Random),
		Remote:     s.Remote,
	}
	if s.TraceState != "" {
		if ts, err := trace.ParseTraceState(s.TraceState); err == nil {
			sc.TraceState = ts
		}
	}
	return trace.NewSpanContext(sc)
}

// WithSpan is the state of a local span: its ids and decision, with what
// OpenTelemetry's span context cannot hold kept from s. parent is the span's
// parent, or zero. Within the same trace, Debug stays Debug and a 64-bit id
// stays short. An invalid span context changes nothing.
func (s State) WithSpan(sc trace.SpanContext, parent trace.SpanID) State {
	if !sc.IsValid() {
		return s
	}
	sameTrace := s.TraceID == sc.TraceID()
	// Debug sent without ids applies to the trace that is started for it.
	// It stays set even where a local sampler records nothing.
	debug := s.Sampling == Debug && (sameTrace || !s.HasIDs())
	if !sameTrace {
		s.Short, s.TraceState = false, ""
	}
	// Within a trace the random flag must go out as it came in.
	if !sameTrace {
		s.Random = sc.TraceFlags().IsRandom()
	}
	s.TraceID, s.SpanID, s.ParentID, s.Remote = sc.TraceID(), sc.SpanID(), parent, sc.IsRemote()
	switch {
	case debug:
		s.Sampling = Debug
	case sc.IsSampled():
		s.Sampling = Accept
	default:
		s.Sampling = Deny
	}
	// An empty trace state may only mean that OpenTelemetry could not parse
	// ours, so it does not replace one.
	if ts := sc.TraceState(); ts.Len() > 0 {
		s.TraceState = ts.String()
	}
	return s
}

// Child is the state of a span below s, for services without a tracing SDK: a
// new span id with the old one as its parent. Without ids it is a root with
// the decision of s. A nil cfg means [Default].
func (s State) Child(cfg *Config) State {
	if !s.HasIDs() {
		root := NewRoot(cfg, s.Sampling)
		s.TraceID, s.SpanID, s.ParentID = root.TraceID, root.SpanID, root.ParentID
		s.Random, s.Short, s.Remote, s.TraceState = true, false, false, ""
		return s
	}
	s.ParentID, s.SpanID, s.Remote = s.SpanID, newSpanID(cfg.orDefault().rand), false
	return s
}

// NewRoot is the state of a new trace with a random 128-bit id. A nil cfg means
// [Default].
func NewRoot(cfg *Config, d Sampling) State {
	rnd := cfg.orDefault().rand
	return State{TraceID: newTraceID(rnd), SpanID: newSpanID(rnd), Sampling: d, Random: true}
}

// WithoutForwarded is s with the trace context only: no forwarded header, no
// request id, no baggage. It is what goes to a host that is not to see them.
func (s State) WithoutForwarded() State {
	s.Forwarded, s.RequestID, s.Baggage, s.RequestIDGenerated = nil, "", "", false
	return s
}
