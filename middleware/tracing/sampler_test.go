package tracing

import (
	"context"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

func TestDecide(t *testing.T) {
	var (
		none      trace.SpanContext
		remote    = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
		local     = remote.WithRemote(false)
		localKept = local.WithTraceFlags(trace.FlagsSampled)
	)
	for _, tc := range []struct {
		name   string
		parent trace.SpanContext
		asked  propagation.Sampling
		follow bool
		want   verdict
	}{
		{"no caller", none, propagation.Defer, true, askRoot},
		{"deny without ids", none, propagation.Deny, true, leave},
		{"accept without ids", none, propagation.Accept, true, keep},
		{"debug without ids", none, propagation.Debug, true, force},
		{"deferred", remote, propagation.Defer, true, askRoot},
		{"denied", remote, propagation.Deny, true, leave},
		{"accepted", remote, propagation.Accept, true, keep},
		{"debug", remote, propagation.Debug, true, force},
		{"local sampled", localKept, propagation.Deny, true, keep},
		{"local unsampled", local, propagation.Debug, true, leave},
		{"not following: accepted", remote, propagation.Accept, false, askRoot},
		{"not following: denied", remote, propagation.Deny, false, askRoot},
		{"not following: debug", remote, propagation.Debug, false, force},
		{"not following: local", localKept, propagation.Debug, false, askRoot},
	} {
		if got := decide(tc.parent, tc.asked, tc.follow); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

const (
	traceID = "80f198ee56343ba864fe8b2a57d3eff7"
	spanID  = "e457b5a2e4d86bd1"
)

// The decision must come out the same whichever propagator read the headers:
// this module's, or contrib's as installed process-wide.
func TestSamplerFollowsTheHeaders(t *testing.T) {
	ours := propagation.NewPropagator(nil)
	contrib, err := newPropagator(defaultPropagators)
	if err != nil {
		t.Fatal(err)
	}
	both := []string{"ours", "contrib"}
	for _, tc := range []struct {
		name    string
		headers map[string]string
		by      []string
		on, off bool // sampled with an always-on and an always-off root
		debug   bool
		joins   bool // the span is in the caller's trace
	}{
		{"nothing", nil, both, true, false, false, false},
		{"b3 accept", map[string]string{"b3": traceID + "-" + spanID + "-1"}, both, true, true, false, true},
		{"b3 deny", map[string]string{"b3": traceID + "-" + spanID + "-0"}, both, false, false, false, true},
		{"b3 debug", map[string]string{"b3": traceID + "-" + spanID + "-d"}, both, true, true, true, true},
		{"b3 defer", map[string]string{"b3": traceID + "-" + spanID}, both, true, false, false, true},
		{"multi accept", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-sampled": "1"}, both, true, true, false, true},
		{"multi deny", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-sampled": "0"}, both, false, false, false, true},
		{"multi debug", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-flags": "1"}, both, true, true, true, true},
		{"multi defer", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID}, both, true, false, false, true},
		{"w3c sampled", map[string]string{"traceparent": "00-" + traceID + "-" + spanID + "-01"}, both, true, true, false, true},
		{"w3c unsampled", map[string]string{"traceparent": "00-" + traceID + "-" + spanID + "-00"}, both, false, false, false, true},
		{"jaeger sampled", map[string]string{"uber-trace-id": traceID + ":" + spanID + ":0:1"}, both, true, true, false, true},
		{"jaeger debug", map[string]string{"uber-trace-id": traceID + ":" + spanID + ":0:3"}, both, true, true, true, true},
		{"jaeger unsampled", map[string]string{"uber-trace-id": traceID + ":" + spanID + ":0:0"}, both, false, false, false, true},
		{"debug alone", map[string]string{"b3": "d"}, both, true, true, true, false},
		{"b3 wins over w3c", map[string]string{"b3": traceID + "-" + spanID + "-0", "traceparent": "00-" + traceID + "-" + spanID + "-01"}, both, false, false, false, true},
		{"broken ids lose their debug flag too", map[string]string{"x-b3-traceid": "zz", "x-b3-spanid": spanID, "x-b3-flags": "1"}, both, true, false, false, false},
		// Contrib's propagators drop a decision that comes without ids.
		{"deny alone", map[string]string{"b3": "0"}, both[:1], false, false, false, false},
		{"accept alone", map[string]string{"x-b3-sampled": "1"}, both[:1], true, true, false, false},
	} {
		header := http.Header{}
		for k, v := range tc.headers {
			header.Set(k, v)
		}
		for _, by := range tc.by {
			p := ours
			if by == "contrib" {
				p = contrib
			}
			ctx := p.Extract(t.Context(), otelpropagation.HeaderCarrier(header))
			for _, root := range []struct {
				sampler sdktrace.Sampler
				want    bool
			}{{sdktrace.AlwaysSample(), tc.on}, {sdktrace.NeverSample(), tc.off}} {
				sc, attrs := start(ctx, ParentBased(root.sampler))
				if sc.IsSampled() != root.want {
					t.Errorf("%s by %s, root %s: sampled %v, want %v", tc.name, by, root.sampler.Description(), sc.IsSampled(), root.want)
				}
				if joined := sc.TraceID().String() == traceID; joined != tc.joins {
					t.Errorf("%s by %s: in the caller's trace %v, want %v", tc.name, by, joined, tc.joins)
				}
				if marked := attrs["b3.debug"].AsBool(); sc.IsSampled() && marked != tc.debug {
					t.Errorf("%s by %s: marked as debug %v, want %v", tc.name, by, marked, tc.debug)
				}
			}
		}
	}
}

// start makes one span and returns its context and recorded attributes.
func start(ctx context.Context, s sdktrace.Sampler) (trace.SpanContext, map[attribute.Key]attribute.Value) {
	recorder := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithSpanProcessor(recorder))
	_, span := tp.Tracer("test").Start(ctx, "op")
	span.End()
	attrs := map[attribute.Key]attribute.Value{}
	for _, ended := range recorder.Ended() {
		for _, kv := range ended.Attributes() {
			attrs[kv.Key] = kv.Value
		}
	}
	return span.SpanContext(), attrs
}

func TestSamplerKeepsTheTraceState(t *testing.T) {
	for _, flags := range []string{"00", "01"} {
		header := http.Header{"Traceparent": {"00-" + traceID + "-" + spanID + "-" + flags}, "Tracestate": {"vendor=7"}}
		ctx := otelpropagation.TraceContext{}.Extract(t.Context(), otelpropagation.HeaderCarrier(header))
		if sc, _ := start(ctx, ParentBased(sdktrace.AlwaysSample())); sc.TraceState().String() != "vendor=7" {
			t.Errorf("flags %s: trace state %q", flags, sc.TraceState())
		}
	}
}

func TestNewRootInsideATraceAsksTheRootSampler(t *testing.T) {
	header := http.Header{"B3": {traceID + "-" + spanID + "-1"}}
	ctx := propagation.NewPropagator(nil).Extract(t.Context(), otelpropagation.HeaderCarrier(header))
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(ParentBased(sdktrace.NeverSample())))
	_, span := tp.Tracer("test").Start(ctx, "background job", trace.WithNewRoot())
	if span.SpanContext().IsSampled() {
		t.Error("a new root followed the decision about another trace")
	}
}

func TestInjectWithoutASpanDeniesNothing(t *testing.T) {
	p, err := newPropagator(defaultPropagators)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	p.Inject(t.Context(), otelpropagation.HeaderCarrier(header))
	if len(header) != 0 {
		t.Errorf("injected %v without a span", header)
	}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1}))
	p.Inject(ctx, otelpropagation.HeaderCarrier(header))
	for _, name := range []string{"X-B3-Traceid", "X-B3-Spanid", "X-B3-Sampled", "Traceparent", "Uber-Trace-Id"} {
		if header.Get(name) == "" {
			t.Errorf("%s is missing in %v", name, header)
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	header := http.Header{"B3": {traceID + "-" + spanID + "-1"}}
	carrier := otelpropagation.HeaderCarrier(header)
	contrib, err := newPropagator(defaultPropagators)
	if err != nil {
		b.Fatal(err)
	}
	for name, p := range map[string]otelpropagation.TextMapPropagator{"state": propagation.NewPropagator(nil), "contrib": contrib} {
		b.Run(name, func(b *testing.B) {
			s := ParentBased(sdktrace.AlwaysSample())
			params := sdktrace.SamplingParameters{ParentContext: p.Extract(b.Context(), carrier), Name: "op"}
			b.ReportAllocs()
			for b.Loop() {
				s.ShouldSample(params)
			}
		})
	}
}
