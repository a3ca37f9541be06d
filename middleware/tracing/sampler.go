package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/contrib/propagators/jaeger"
	"go.opentelemetry.io/otel/attribute"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
	"github.com/canarycontroller/canary-controller/middleware/tracing/jaegerudp"
)

// ParentBased returns a sampler that follows the caller's decision and asks
// root where there is none:
//
//   - a local parent is followed;
//   - debug, of B3 or Jaeger, forces the span, which gets the attribute
//     b3.debug;
//   - accept and deny are followed, also when they came without ids
//     ("b3: 0" asks not to trace without naming a trace);
//   - a caller that sent ids but no decision deferred it: root decides;
//   - no caller: root decides.
//
// root must not be parent based itself: such a sampler reads a deferred
// decision as a denial.
func ParentBased(root sdktrace.Sampler) sdktrace.Sampler {
	return &callerSampler{root: root, follow: true}
}

// DebugForced returns a sampler that decides as s does, except that the debug
// flag of B3 or Jaeger forces the span.
func DebugForced(s sdktrace.Sampler) sdktrace.Sampler {
	return &callerSampler{root: s}
}

// callerSampler looks at the caller before it asks root.
type callerSampler struct {
	root   sdktrace.Sampler
	follow bool // accept and deny count, not only debug
}

func (s *callerSampler) Description() string {
	if s.follow {
		return "B3ParentBased{" + s.root.Description() + "}"
	}
	return "DebugForced{" + s.root.Description() + "}"
}

// verdict is what the caller leaves to do.
type verdict uint8

const (
	askRoot verdict = iota
	keep
	force // keep, and mark as debug
	leave // do not sample
)

// decide is the whole rule. asked is the caller's decision, which counts for
// remote parents and for roots.
func decide(parent trace.SpanContext, asked propagation.Sampling, follow bool) verdict {
	local := parent.IsValid() && !parent.IsRemote()
	switch {
	case local && follow && parent.IsSampled():
		return keep
	case local && follow:
		return leave
	case local:
		return askRoot
	case asked == propagation.Debug:
		return force
	case !follow:
		return askRoot
	case asked == propagation.Accept:
		return keep
	case asked == propagation.Deny:
		return leave
	}
	return askRoot
}

var debugAttributes = []attribute.KeyValue{jaegerudp.DebugAttribute.Bool(true)}

// ShouldSample is safe for concurrent use if root's is.
func (s *callerSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	asked := propagation.Defer
	if !parent.IsValid() || parent.IsRemote() {
		asked = askedBy(p.ParentContext, parent)
	}
	switch decide(parent, asked, s.follow) {
	case force:
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Attributes: debugAttributes, Tracestate: parent.TraceState()}
	case keep:
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: parent.TraceState()}
	case leave:
		return sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: parent.TraceState()}
	case askRoot:
	}
	return s.root.ShouldSample(p)
}

// askedBy returns the decision the caller sent: from this module's propagation
// when it made the parent, else from what contrib's propagators left in ctx.
func askedBy(ctx context.Context, parent trace.SpanContext) propagation.Sampling {
	if state, ok := propagation.FromContext(ctx); ok {
		switch {
		case !parent.IsValid() && !state.HasIDs():
			return state.Sampling
		case !parent.IsValid():
			// A new root was asked for inside a trace: the caller's decision
			// was about that trace.
			return propagation.Defer
		case state.TraceID == parent.TraceID() && state.SpanID == parent.SpanID():
			return state.Sampling
		}
	}
	return contribAsked(ctx, parent)
}

var (
	probeB3     = b3.New(b3.WithInjectEncoding(b3.B3SingleHeader))
	probeJaeger = jaeger.Jaeger{}
)

// idsOnly is the length of a single b3 header with ids and no decision.
const idsOnly = 32 + 1 + 16

// contribAsked finds debug and deferred in a context that contrib's b3 or
// jaeger propagator extracted. They keep both under private keys; what they
// would inject tells.
func contribAsked(ctx context.Context, parent trace.SpanContext) propagation.Sampling {
	var header lastValue
	probeB3.Inject(ctx, &header)
	single := string(header)
	switch {
	case single == "d" || strings.HasSuffix(single, "-d"):
		return propagation.Debug
	case !parent.IsValid():
		// Without a span b3 writes "0" whatever the caller said.
		return propagation.Defer
	case len(single) == idsOnly:
		return propagation.Defer
	}
	probeJaeger.Inject(ctx, &header)
	switch {
	case strings.HasSuffix(string(header), ":3"):
		return propagation.Debug
	case parent.IsSampled():
		return propagation.Accept
	}
	return propagation.Deny
}

// lastValue is a carrier for one header.
type lastValue string

var _ otelpropagation.TextMapCarrier = (*lastValue)(nil)

func (v *lastValue) Get(string) string   { return string(*v) }
func (v *lastValue) Set(_, value string) { *v = lastValue(value) }
func (v *lastValue) Keys() []string      { return nil }
