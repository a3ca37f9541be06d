package propagation

import (
	"math/bits"
	"strings"
)

// Format is a set of trace context formats. A constant is one format; sets are
// made with the or operator.
type Format uint8

// The formats that can be read and written.
const (
	// B3Single is the one-header form, b3.
	B3Single Format = 1 << iota
	// B3Multi is the X-B3-* form.
	B3Multi
	// TraceContext is W3C traceparent and tracestate, level 2.
	TraceContext
	// Jaeger is uber-trace-id.
	Jaeger

	noFormat   Format = 0
	b3Family          = B3Single | B3Multi
	allFormats        = B3Single | B3Multi | TraceContext | Jaeger
)

// String names the formats, joined with "|"; "none" for the empty set.
func (f Format) String() string {
	var names []string
	for _, n := range [...]struct {
		f Format
		s string
	}{{B3Single, "b3"}, {B3Multi, "b3multi"}, {TraceContext, "tracecontext"}, {Jaeger, "jaeger"}} {
		if f&n.f != 0 {
			names = append(names, n.s)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "|")
}

// one reports whether f is exactly one known format.
func (f Format) one() bool { return f&^allFormats == 0 && bits.OnesCount8(uint8(f)) == 1 }

// Header names in the canonical form that net/http keeps them in, so that a
// map lookup finds them without canonicalising.
const (
	HeaderB3             = "B3"
	HeaderB3TraceID      = "X-B3-Traceid"
	HeaderB3SpanID       = "X-B3-Spanid"
	HeaderB3ParentSpanID = "X-B3-Parentspanid"
	HeaderB3Sampled      = "X-B3-Sampled"
	HeaderB3Flags        = "X-B3-Flags"
	HeaderTraceparent    = "Traceparent"
	HeaderTracestate     = "Tracestate"
	HeaderUberTraceID    = "Uber-Trace-Id"
	HeaderRequestID      = "X-Request-Id"
	HeaderBaggage        = "Baggage"
)

// key indexes keyNames: one header in the spelling of each transport.
type key uint8

const (
	keyB3 key = iota
	keyB3TraceID
	keyB3SpanID
	keyB3ParentSpanID
	keyB3Sampled
	keyB3Flags
	keyTraceparent
	keyTracestate
	keyUberTraceID
	keyRequestID
	keyBaggage
	numKeys
)

// keyNames is the spelling of every key on one kind of transport.
type keyNames [numKeys]string

var canonicalNames = keyNames{
	keyB3:             HeaderB3,
	keyB3TraceID:      HeaderB3TraceID,
	keyB3SpanID:       HeaderB3SpanID,
	keyB3ParentSpanID: HeaderB3ParentSpanID,
	keyB3Sampled:      HeaderB3Sampled,
	keyB3Flags:        HeaderB3Flags,
	keyTraceparent:    HeaderTraceparent,
	keyTracestate:     HeaderTracestate,
	keyUberTraceID:    HeaderUberTraceID,
	keyRequestID:      HeaderRequestID,
	keyBaggage:        HeaderBaggage,
}

// lowerNames serves gRPC metadata and case-sensitive carriers: the B3
// specification prefers lower case there, and HTTP/2 requires it.
var lowerNames = func() (n keyNames) {
	for i, s := range canonicalNames {
		n[i] = strings.ToLower(s)
	}
	return n
}()

// formatKeys are the headers each format consists of.
var formatKeys = [...]struct {
	format Format
	keys   []key
}{
	{B3Single, []key{keyB3}},
	{B3Multi, []key{keyB3TraceID, keyB3SpanID, keyB3ParentSpanID, keyB3Sampled, keyB3Flags}},
	{TraceContext, []key{keyTraceparent, keyTracestate}},
	{Jaeger, []key{keyUberTraceID}},
}
