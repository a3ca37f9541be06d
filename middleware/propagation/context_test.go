package propagation

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// recording is a span that tells its parent, as the SDK's do.
type recording struct {
	noop.Span
	sc, parent trace.SpanContext
}

func (r recording) SpanContext() trace.SpanContext { return r.sc }
func (r recording) Parent() trace.SpanContext      { return r.parent }

func TestContext(t *testing.T) {
	ctx := context.Background()
	if s, ok := FromContext(ctx); ok || !s.IsEmpty() {
		t.Errorf("state out of nothing: %+v", s)
	}
	type other struct{}
	ctx = context.WithValue(ctx, other{}, 1)
	ctx = ContextWithState(ctx, State{Sampling: Deny, RequestID: "r1"})
	inner := ContextWithState(ctx, State{Sampling: Debug})
	if s, ok := FromContext(ctx); !ok || s.Sampling != Deny || RequestIDFromContext(ctx) != "r1" {
		t.Errorf("outer: %+v", s)
	}
	if s, ok := FromContext(inner); !ok || s.Sampling != Debug || RequestIDFromContext(inner) != "" {
		t.Errorf("inner: %+v", s)
	}
	if inner.Value(other{}) != 1 {
		t.Error("values of the parent are gone")
	}
	// A copy is handed out: changing it changes nothing.
	s, _ := FromContext(ctx)
	s.Sampling = Debug
	if s, _ := FromContext(ctx); s.Sampling != Deny {
		t.Error("the state in the context changed")
	}
	cancelled, cancel := context.WithCancel(inner)
	cancel()
	if s, _ := FromContext(cancelled); s.Sampling != Debug {
		t.Error("lost below another context")
	}
}

func TestCurrent(t *testing.T) {
	in := State{
		TraceID: traceID(t, trace64), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent), Sampling: Debug, Short: true,
		Remote: true, Format: B3Multi, RequestID: "r1", TraceState: "foo@=1", Forwarded: []Field{{"User-Agent", "curl"}},
	}
	own := spanID(t, w3cSpan)
	sc := func(id trace.TraceID, sampled bool) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: own, TraceFlags: trace.TraceFlags(0).WithSampled(sampled)})
	}
	newTrace := traceID(t, w3cTrace)
	ctx := ContextWithState(context.Background(), in)
	extracted := trace.ContextWithRemoteSpanContext(ctx, in.SpanContext())
	deferred := in
	deferred.Sampling = Defer
	alone := State{Sampling: Debug, RequestID: "r1"}
	for _, tc := range []struct {
		name                  string
		ctx                   context.Context
		trace, span, parent   string
		sampling              Sampling
		traceState, requestID string
	}{
		{"nothing", context.Background(), "", "", "", Defer, "", ""},
		{"no span", ctx, trace64, spanHex, parent, Debug, "foo@=1", "r1"},
		{"only the extracted span", extracted, trace64, spanHex, parent, Debug, "foo@=1", "r1"},
		{"only the extracted span, deferred", trace.ContextWithRemoteSpanContext(ContextWithState(context.Background(), deferred), deferred.SpanContext()),
			trace64, spanHex, parent, Defer, "foo@=1", "r1"},
		{"child, debug kept", trace.ContextWithSpan(ctx, recording{sc: sc(in.TraceID, true), parent: in.SpanContext()}),
			trace64, w3cSpan, spanHex, Debug, "foo@=1", "r1"},
		{"child, not recorded, debug kept", trace.ContextWithSpan(ctx, recording{sc: sc(in.TraceID, false), parent: in.SpanContext()}),
			trace64, w3cSpan, spanHex, Debug, "foo@=1", "r1"},
		{"child that does not tell its parent", trace.ContextWithSpanContext(ctx, sc(in.TraceID, false)),
			trace64, w3cSpan, spanHex, Debug, "foo@=1", "r1"},
		{"child, deferred and refused", trace.ContextWithSpanContext(ContextWithState(context.Background(), deferred), sc(in.TraceID, false)),
			trace64, w3cSpan, spanHex, Deny, "foo@=1", "r1"},
		{"child, deferred and sampled", trace.ContextWithSpan(ContextWithState(context.Background(), deferred), recording{sc: sc(in.TraceID, true), parent: in.SpanContext()}),
			trace64, w3cSpan, spanHex, Accept, "foo@=1", "r1"},
		{"another trace", trace.ContextWithSpan(ctx, recording{sc: sc(newTrace, true)}), w3cTrace, w3cSpan, "", Accept, "", "r1"},
		{"root for debug without ids", trace.ContextWithSpan(ContextWithState(context.Background(), alone), recording{sc: sc(newTrace, true)}),
			w3cTrace, w3cSpan, "", Debug, "", "r1"},
		{"span without a state", trace.ContextWithSpan(context.Background(), recording{sc: sc(newTrace, true)}), w3cTrace, w3cSpan, "", Accept, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Current(tc.ctx)
			gotSpan, gotParent := "", ""
			if s.SpanID.IsValid() {
				gotSpan = s.SpanID.String()
			}
			if s.ParentID.IsValid() {
				gotParent = s.ParentID.String()
			}
			if s.TraceIDString() != tc.trace || gotSpan != tc.span || gotParent != tc.parent || s.Sampling != tc.sampling ||
				s.TraceState != tc.traceState || s.RequestID != tc.requestID {
				t.Errorf("got %+v", s)
			}
		})
	}
	withTS, err := trace.ParseTraceState("new=1")
	if err != nil {
		t.Fatal(err)
	}
	if s := in.WithSpan(sc(in.TraceID, true).WithTraceState(withTS), in.SpanID); s.TraceState != "new=1" {
		t.Errorf("a sampler's tracestate is lost: %q", s.TraceState)
	}
}

func TestRandomFlagWithinATrace(t *testing.T) {
	for _, in := range []bool{true, false} {
		for _, span := range []bool{true, false} {
			s := State{TraceID: traceID(t, w3cTrace), SpanID: spanID(t, w3cSpan), Random: in}
			sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: s.TraceID, SpanID: spanID(t, parent), TraceFlags: trace.TraceFlags(0).WithRandom(span)})
			if got := s.WithSpan(sc, s.SpanID).Random; got != in {
				t.Errorf("came with %v, span has %v, goes out with %v", in, span, got)
			}
			if got := (State{}).WithSpan(sc, trace.SpanID{}).Random; got != span {
				t.Errorf("new trace: span has %v, goes out with %v", span, got)
			}
		}
	}
}

func TestChildAndRoot(t *testing.T) {
	cfg := config(t)
	in := State{TraceID: traceID(t, trace64), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent), Sampling: Defer, Short: true, Remote: true, TraceState: "a=1", RequestID: "r"}
	c := in.Child(cfg)
	if c.TraceIDString() != trace64 || c.ParentID != in.SpanID || c.SpanID != spanID(t, "0000000000000001") ||
		c.Remote || c.TraceState != "a=1" || c.RequestID != "r" || c.Sampling != Defer {
		t.Errorf("child %+v", c)
	}
	r := NewRoot(cfg, Accept)
	if r.TraceIDString() != "00000000000000020000000000000003" || r.SpanID != spanID(t, "0000000000000004") || r.ParentID.IsValid() ||
		r.Sampling != Accept || !r.Random || r.Remote {
		t.Errorf("root %+v", r)
	}
	d := State{Sampling: Debug, RequestID: "r", ParentID: in.ParentID, Remote: true}.Child(cfg)
	if !d.HasIDs() || d.ParentID.IsValid() || d.Sampling != Debug || d.RequestID != "r" || d.Remote {
		t.Errorf("child of nothing %+v", d)
	}
	zeros := 0
	z := config(t, WithRand(func() uint64 { zeros++; return uint64(zeros / 5) }))
	if s := NewRoot(z, Deny); !s.HasIDs() {
		t.Errorf("zero ids from a source of zeros: %+v", s)
	}
	w := State{RequestID: "r", RequestIDGenerated: true, Baggage: "a=1", Forwarded: []Field{{"A", "b"}}, Sampling: Deny}.WithoutForwarded()
	if w.RequestID != "" || w.Baggage != "" || w.Forwarded != nil || w.RequestIDGenerated || w.Sampling != Deny {
		t.Errorf("without forwarded: %+v", w)
	}
}

func TestNames(t *testing.T) {
	for d, want := range map[Sampling]string{Defer: "defer", Deny: "deny", Accept: "accept", Debug: "debug"} {
		if d.String() != want {
			t.Errorf("got %s, want %s", d, want)
		}
	}
	if got := (B3Single | Jaeger).String(); got != "b3|jaeger" {
		t.Errorf("got %s", got)
	}
}
