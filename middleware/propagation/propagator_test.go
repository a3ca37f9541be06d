package propagation

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"testing"

	otel "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

func TestPropagatorOverHTTP(t *testing.T) {
	p := NewPropagator(config(t))
	in := header(append([]string{"x-request-id", "r1", "user-agent", "curl", "grpc-trace-bin", "AAE"}, multi128...)...)
	ctx := p.Extract(context.Background(), otel.HeaderCarrier(in))
	sc := trace.SpanContextFromContext(ctx)
	if sc.TraceID() != traceID(t, trace128) || sc.SpanID() != spanID(t, spanHex) || !sc.IsSampled() || !sc.IsRemote() {
		t.Errorf("span context %+v", sc)
	}
	out := http.Header{}
	p.Inject(ctx, otel.HeaderCarrier(out))
	in.Set("traceparent", "00-"+trace128+"-"+spanHex+"-01")
	if !reflect.DeepEqual(out, in) {
		t.Errorf("got  %v\nwant %v", out, in)
	}
}

func TestPropagatorOverMap(t *testing.T) {
	p := NewPropagator(config(t, WithInject(B3Single)))
	in := otel.MapCarrier{
		"x-b3-traceid": trace64, "x-b3-spanid": spanHex, "x-b3-flags": "1",
		"user-agent": "curl", "grpc-trace-bin": "?", "x-request-id": "r1",
	}
	ctx := p.Extract(context.Background(), in)
	s, ok := FromContext(ctx)
	if !ok || s.Sampling != Debug || !s.Short || s.RequestID != "r1" {
		t.Errorf("state %+v", s)
	}
	out := otel.MapCarrier{"user-agent": "mine", "b3": "0"}
	p.Inject(ctx, out)
	if want := (otel.MapCarrier{"b3": trace64 + "-" + spanHex + "-d", "user-agent": "mine", "x-request-id": "r1"}); !reflect.DeepEqual(out, want) {
		t.Errorf("got %v\nwant %v", out, want)
	}
	// A carrier with several values of a key tells of duplicates.
	twice := valuesCarrier{"traceparent": {"00-" + w3cIDs + "-01", "00-" + w3cIDs + "-01"}}
	if s, _ := FromContext(p.Extract(context.Background(), twice)); s.HasIDs() {
		t.Error("two traceparents taken")
	}
	once := valuesCarrier{"traceparent": {"00-" + w3cIDs + "-01"}, "tracestate": {"a=1", "b=2"}}
	if s, _ := FromContext(p.Extract(context.Background(), once)); s.TraceState != "a=1,b=2" {
		t.Errorf("tracestate %q", s.TraceState)
	}
}

type valuesCarrier map[string][]string

func (c valuesCarrier) Get(k string) string {
	if v := c[k]; len(v) > 0 {
		return v[0]
	}
	return ""
}
func (c valuesCarrier) Set(k, v string)          { c[k] = []string{v} }
func (c valuesCarrier) Keys() []string           { return nil }
func (c valuesCarrier) Values(k string) []string { return c[k] }

func TestPropagatorWithNothing(t *testing.T) {
	p := NewPropagator(nil)
	ctx := context.Background()
	if got := p.Extract(ctx, otel.MapCarrier{}); got != ctx {
		t.Error("an empty request changed the context")
	}
	out := otel.MapCarrier{}
	p.Inject(ctx, out)
	if len(out) != 0 {
		t.Errorf("injected %v out of nothing", out)
	}
	// A decision alone reaches the sampler through the state.
	ctx = p.Extract(ctx, otel.MapCarrier{"b3": "0"})
	if s, ok := FromContext(ctx); !ok || s.Sampling != Deny || trace.SpanContextFromContext(ctx).IsValid() {
		t.Errorf("state %+v", s)
	}
	// The request id an outer handler made survives a second extraction.
	ctx = ContextWithState(context.Background(), State{RequestID: "made", RequestIDGenerated: true})
	if s, _ := FromContext(p.Extract(ctx, otel.MapCarrier{"b3": "1"})); s.RequestID != "made" || !s.RequestIDGenerated || s.Sampling != Accept {
		t.Errorf("state %+v", s)
	}
}

func TestPropagatorFields(t *testing.T) {
	got := NewPropagator(config(t, WithBaggage("a"), WithForwardList("X-Tenant"))).Fields()
	want := []string{"x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags", "traceparent", "tracestate", "x-request-id", "baggage", "x-tenant"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
