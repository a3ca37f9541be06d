package propagation

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func TestInject(t *testing.T) {
	full := State{TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent), Sampling: Accept}
	with := func(f func(*State)) State { s := full; f(&s); return s }
	all := []Option{WithInject(B3Single, B3Multi, TraceContext, Jaeger)}
	for _, tc := range []struct {
		name string
		s    State
		opts []Option
		have []string
		want []string
	}{
		{name: "nothing"},
		{name: "nothing leaves headers alone", have: []string{"b3", "0", "traceparent", "x"}, want: []string{"b3", "0", "traceparent", "x"}},
		{name: "default formats", s: full, want: append([]string{"traceparent", "00-" + trace128 + "-" + spanHex + "-01"}, multi128...)},
		{name: "all formats", s: with(func(s *State) { s.TraceState = "a=1" }), opts: all, want: append([]string{
			"traceparent", "00-" + trace128 + "-" + spanHex + "-01", "tracestate", "a=1",
			"b3", trace128 + "-" + spanHex + "-1-" + parent, "uber-trace-id", trace128 + ":" + spanHex + ":" + parent + ":1",
		}, multi128...)},
		{name: "no format", s: full, opts: []Option{WithInject()}},
		{name: "debug sends no sampled", s: with(func(s *State) { s.Sampling, s.ParentID = Debug, trace.SpanID{} }), opts: []Option{WithInject(B3Multi)},
			want: []string{"X-B3-TraceId", trace128, "X-B3-SpanId", spanHex, "X-B3-Flags", "1"}},
		{name: "defer sends no decision", s: with(func(s *State) { s.Sampling = Defer }), opts: []Option{WithInject(B3Multi)},
			want: []string{"X-B3-TraceId", trace128, "X-B3-SpanId", spanHex, "X-B3-ParentSpanId", parent}},
		{name: "64 bits keep their width", s: with(func(s *State) { s.TraceID, s.Short = traceID(t, trace64), true }), opts: all, want: []string{
			"X-B3-TraceId", trace64, "X-B3-SpanId", spanHex, "X-B3-ParentSpanId", parent, "X-B3-Sampled", "1",
			"b3", trace64 + "-" + spanHex + "-1-" + parent, "uber-trace-id", trace64 + ":" + spanHex + ":" + parent + ":1",
			"traceparent", "00-" + strings.Repeat("0", 16) + trace64 + "-" + spanHex + "-01"}},
		{name: "deny alone", s: State{Sampling: Deny}, opts: all, want: []string{"b3", "0", "X-B3-Sampled", "0"}},
		{name: "debug alone", s: State{Sampling: Debug}, opts: all, want: []string{"b3", "d", "X-B3-Flags", "1"}},
		{name: "a trace id alone is nothing", s: State{TraceID: full.TraceID}, opts: all},
		{name: "stale headers go", s: full, opts: []Option{WithInject(TraceContext)},
			have: append([]string{"b3", "0", "uber-trace-id", "a:b:0:1", "X-B3-Flags", "1", "traceparent", "x", "tracestate", "old=1", "X-Other", "1"}, multi128...),
			want: []string{"traceparent", "00-" + trace128 + "-" + spanHex + "-01", "X-Other", "1"}},
		{name: "formats not configured stay", s: full, opts: []Option{WithExtract(B3Multi), WithInject(TraceContext)},
			have: []string{"uber-trace-id", "a:b:0:1"},
			want: []string{"traceparent", "00-" + trace128 + "-" + spanHex + "-01", "uber-trace-id", "a:b:0:1"}},
		{name: "decision alone leaves the caller's ids", s: State{Sampling: Deny}, opts: []Option{WithInject(B3Multi)},
			have: []string{"X-B3-TraceId", trace128, "X-B3-SpanId", spanHex, "X-B3-Flags", "1", "traceparent", "00-" + w3cIDs + "-01"},
			want: []string{"X-B3-TraceId", trace128, "X-B3-SpanId", spanHex, "X-B3-Sampled", "0", "traceparent", "00-" + w3cIDs + "-01"}},
		{name: "decision replaces the other decision", s: State{Sampling: Debug}, have: []string{"X-B3-Sampled", "0"}, want: []string{"X-B3-Flags", "1"}},
		{name: "mirror", s: with(func(s *State) { s.Format, s.Seen = Jaeger, Jaeger }), opts: []Option{WithMirror(), WithInject(TraceContext)},
			want: []string{"traceparent", "00-" + trace128 + "-" + spanHex + "-01", "uber-trace-id", trace128 + ":" + spanHex + ":" + parent + ":1"}},
		{name: "request id", s: State{RequestID: "r1"}, want: []string{"X-Request-Id", "r1"}},
		{name: "the caller's request id stays", s: State{RequestID: "r1"}, have: []string{"X-Request-Id", "mine"}, want: []string{"X-Request-Id", "mine"}},
		{name: "request id off", s: State{RequestID: "r1"}, opts: []Option{WithoutRequestID()}},
		{name: "baggage", s: State{Baggage: "a=1"}, want: []string{"Baggage", "a=1"}},
		{name: "the caller's baggage stays", s: State{Baggage: "a=1"}, have: []string{"Baggage", "b=2"}, want: []string{"Baggage", "b=2"}},
		{name: "forwarded", s: State{Forwarded: []Field{{"User-Agent", "curl"}, {"X-Cloud-Trace-Context", "a"}, {"X-Cloud-Trace-Context", "b"}}},
			want: []string{"User-Agent", "curl", "X-Cloud-Trace-Context", "a", "X-Cloud-Trace-Context", "b"}},
		{name: "the caller's header stays", s: State{Forwarded: []Field{{"User-Agent", "curl"}}}, have: []string{"User-Agent", "mine"}, want: []string{"User-Agent", "mine"}},
		{name: "a user's own field", s: State{Forwarded: []Field{{"x-tenant", "t"}}}, want: []string{"X-Tenant", "t"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := header(tc.have...)
			Inject(tc.s, h, config(t, tc.opts...))
			if want := header(tc.want...); !reflect.DeepEqual(h, want) {
				t.Errorf("got  %v\nwant %v", h, want)
			}
		})
	}
	Inject(full, nil, nil)
}

// A header of User-Agent: nil tells net/http to send none.
func TestInjectKeepsSuppressedUserAgent(t *testing.T) {
	h := http.Header{"User-Agent": nil}
	Inject(State{Forwarded: []Field{{"User-Agent", "curl"}}}, h, nil)
	if v, ok := h["User-Agent"]; !ok || v != nil {
		t.Errorf("User-Agent = %q", v)
	}
}

// Values share one array, which an Add must not run over.
func TestInjectedValuesAreIndependent(t *testing.T) {
	h := http.Header{}
	Inject(State{TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), Sampling: Accept, RequestID: "r1"}, h, nil)
	h.Add("X-B3-TraceId", "evil")
	if h.Get("X-B3-SpanId") != spanHex || h.Get("X-Request-Id") != "r1" {
		t.Errorf("an added value overwrote a neighbour: %v", h)
	}
}

// What arrives in a format leaves in it unchanged, apart from what the format
// itself says to normalise.
func TestPassthrough(t *testing.T) {
	w3c := []string{"traceparent", "00-" + w3cIDs + "-01", "tracestate", "foo=1"}
	asW3C := []string{"traceparent", "00-" + trace128 + "-" + spanHex + "-01"}
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	single := []string{"b3", trace128 + "-" + spanHex + "-1-" + parent}
	for _, tc := range []struct {
		name     string
		opts     []Option
		in, want []string
	}{
		{name: "nothing"},
		{name: "multi is translated", in: multi128, want: join(multi128, asW3C)},
		{name: "multi alone", opts: []Option{WithInject()}, in: multi128, want: multi128},
		{name: "single stays single", opts: []Option{WithInject()}, in: single, want: single},
		{name: "both encodings stay", opts: []Option{WithInject()}, in: join(single, multi128), want: join(single, multi128)},
		{name: "jaeger", opts: []Option{WithInject()}, in: []string{"uber-trace-id", "abc:1:2:1"},
			want: []string{"uber-trace-id", "0000000000000abc:0000000000000001:0000000000000002:1"}},
		{name: "w3c", opts: []Option{WithInject()}, in: w3c, want: w3c},
		{name: "another context is text", in: join(multi128, w3c), want: join(multi128, w3c)},
		{name: "b3 as text", opts: []Option{WithExtract(TraceContext, B3Multi)}, in: join(multi128, w3c), want: join(multi128, w3c)},
		{name: "deny alone", in: []string{"b3", "0"}, want: []string{"b3", "0", "X-B3-Sampled", "0"}},
		{name: "malformed b3 is dropped", in: []string{"b3", "rubbish", "X-B3-TraceId", "x"}},
		{name: "malformed traceparent is text", in: []string{"traceparent", "99-x"}, want: []string{"traceparent", "99-x"}},
		{name: "lists", in: []string{"x-ot-span-context", "a;b", "user-agent", "curl", "cookie", "c"},
			want: []string{"x-ot-span-context", "a;b", "user-agent", "curl"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config(t, append([]Option{WithPassthrough(), WithoutRequestID()}, tc.opts...)...)
			h := http.Header{}
			Inject(Extract(header(tc.in...), cfg), h, cfg)
			if want := header(tc.want...); !reflect.DeepEqual(h, want) {
				t.Errorf("got  %v\nwant %v", h, want)
			}
		})
	}
	t.Run("a user's decision goes out", func(t *testing.T) {
		cfg := config(t, WithPassthrough(), WithoutRequestID(), WithInject())
		s := Extract(header(join(single, multi128)...), cfg)
		s.Sampling = Debug
		h := http.Header{}
		Inject(s, h, cfg)
		if h.Get("b3") != trace128+"-"+spanHex+"-d-"+parent || h.Get("X-B3-Flags") != "1" || h.Get("X-B3-Sampled") != "" {
			t.Errorf("got %v", h)
		}
	})
}

// traceparent on the allowlist is opaque to a service that does not write W3C.
func TestTraceparentForwardedUntouched(t *testing.T) {
	in := header(append([]string{"traceparent", "00-" + w3cIDs + "-01", "tracestate", "foo=1"}, multi128...)...)
	cfg := config(t, WithInject(B3Multi), WithoutRequestID())
	h := http.Header{}
	s := Extract(in, cfg)
	s = s.WithSpan(trace.NewSpanContext(trace.SpanContextConfig{TraceID: s.TraceID, SpanID: spanID(t, parent), TraceFlags: trace.FlagsSampled}), s.SpanID)
	Inject(s, h, cfg)
	want := header("traceparent", "00-"+w3cIDs+"-01", "tracestate", "foo=1",
		"X-B3-TraceId", trace128, "X-B3-SpanId", parent, "X-B3-ParentSpanId", spanHex, "X-B3-Sampled", "1")
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got  %v\nwant %v", h, want)
	}
	// Off the allowlist, it is dropped.
	cfg = config(t, WithInject(B3Multi), WithoutRequestID(), WithForwardList())
	h = http.Header{}
	Inject(Extract(in, cfg), h, cfg)
	if !reflect.DeepEqual(h, header(multi128...)) {
		t.Errorf("got %v", h)
	}
}
