package propagation

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// header makes an http.Header from name, value pairs.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// config makes a configuration whose random numbers count up from 1.
func config(t testing.TB, opts ...Option) *Config {
	t.Helper()
	var n uint64
	c, err := NewConfig(append([]Option{WithRand(func() uint64 { n++; return n })}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// traceOnly is the part of a state that formats fill in.
func traceOnly(s State) State {
	s.RequestID, s.RequestIDGenerated, s.Forwarded, s.Baggage = "", false, nil, ""
	return s
}

var multi128 = []string{
	"X-B3-TraceId", trace128, "X-B3-SpanId", spanHex, "X-B3-ParentSpanId", parent, "X-B3-Sampled", "1",
}

func TestExtractOrder(t *testing.T) {
	fromMulti := State{
		TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent),
		Sampling: Accept, Format: B3Multi, Seen: B3Multi, Remote: true,
	}
	fromW3C := State{
		TraceID: traceID(t, w3cTrace), SpanID: spanID(t, w3cSpan), Sampling: Accept,
		Format: TraceContext, Seen: TraceContext, Remote: true, TraceState: "foo=1,bar=2",
	}
	w3c := []string{"traceparent", "00-" + w3cIDs + "-01", "tracestate", "foo=1", "tracestate", "bar=2"}
	single := trace64 + "-" + spanHex + "-0"
	fromSingle := State{
		TraceID: traceID(t, trace64), SpanID: spanID(t, spanHex), Sampling: Deny, Short: true,
		Format: B3Single, Seen: B3Single, Remote: true,
	}
	change := func(s State, f func(*State)) State { f(&s); return s }
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for _, tc := range []struct {
		name string
		in   []string
		opts []Option
		want State
	}{
		{name: "nothing", want: State{}},
		{name: "multi", in: multi128, want: fromMulti},
		{name: "w3c", in: w3c, want: fromW3C},
		{name: "jaeger", in: []string{"uber-trace-id", "abc:1:0:1"}, want: State{
			TraceID: traceID(t, "abc"), SpanID: spanID(t, "0000000000000001"), Sampling: Accept, Short: true,
			Format: Jaeger, Seen: Jaeger, Remote: true,
		}},
		{name: "single before multi", in: join(multi128, []string{"b3", single}), want: fromSingle},
		{name: "malformed single falls back", in: join(multi128, []string{"b3", single + "-"}), want: fromMulti},
		{name: "b3 before w3c", in: join(w3c, multi128), want: fromMulti},
		{name: "configured order", in: join(w3c, multi128), opts: []Option{WithExtract(TraceContext, B3Multi)}, want: fromW3C},
		{name: "format not configured", in: multi128, opts: []Option{WithExtract(TraceContext)}, want: State{}},
		{name: "no format", in: multi128, opts: []Option{WithExtract()}, want: State{}},
		{name: "malformed b3 falls back to w3c", in: join(w3c, []string{"X-B3-TraceId", "x", "X-B3-Flags", "1"}), want: fromW3C},
		{name: "first value of a repeated header", in: join(multi128, []string{"X-B3-TraceId", trace64}), want: fromMulti},
		{name: "two traceparents are none", in: join(w3c, w3c), want: State{}},
		{name: "tracestate without traceparent", in: []string{"tracestate", "foo=1"}, want: State{}},
		{name: "bad tracestate leaves traceparent", in: []string{"traceparent", "00-" + w3cIDs + "-01", "tracestate", "FOO=1"},
			want: change(fromW3C, func(s *State) { s.TraceState = "" })},
		{name: "decision alone", in: []string{"b3", "0"}, want: State{Sampling: Deny, Format: B3Single, Seen: B3Single}},
		{name: "debug alone", in: []string{"X-B3-Flags", "1"}, want: State{Sampling: Debug, Format: B3Multi, Seen: B3Multi}},
		{name: "decision alone goes with later ids", in: join(w3c, []string{"b3", "0"}),
			want: change(fromW3C, func(s *State) { s.Sampling, s.Seen = Deny, B3Single|TraceContext })},
		{name: "first decision wins", in: []string{"b3", "d", "X-B3-Sampled", "0"},
			want: State{Sampling: Debug, Format: B3Multi, Seen: B3Single | B3Multi}},
		{name: "deferred ids take no later decision", in: join(w3c, []string{"b3", trace128 + "-" + spanHex}), want: State{
			TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), Format: B3Single, Seen: B3Single, Remote: true}},
		{name: "mirror sees all", in: join(w3c, multi128), opts: []Option{WithMirror()},
			want: change(fromMulti, func(s *State) { s.Seen = B3Multi | TraceContext })},
		{name: "upper case refused", in: []string{"b3", strings.ToUpper(single)}, want: State{}},
		{name: "upper case by option", in: []string{"b3", strings.ToUpper(single)}, opts: []Option{WithLenientHex()}, want: fromSingle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := traceOnly(Extract(header(tc.in...), config(t, tc.opts...)))
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestExtractTrust(t *testing.T) {
	in := header(append([]string{
		"x-request-id", "caller-1", "baggage", "user=7,secret=x", "x-cloud-trace-context", "abc/1;o=1",
	}, multi128...)...)
	cfg := config(t, WithBaggage("user"))
	ids := State{TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent),
		Format: B3Multi, Seen: B3Multi, Remote: true}
	for _, tc := range []struct {
		trust Trust
		want  func(*State)
	}{
		{TrustNothing, func(*State) {}},
		{TrustIDs, func(s *State) { *s = ids }},
		{TrustFlags, func(s *State) { s.Sampling = Accept }},
		{TrustIDs | TrustFlags, func(s *State) { *s = ids; s.Sampling = Accept }},
		{TrustRequestID, func(s *State) { s.RequestID = "caller-1" }},
		{TrustBaggage, func(s *State) { s.Baggage = "user=7" }},
		{TrustForwarded, func(s *State) { s.Forwarded = []Field{{"X-Cloud-Trace-Context", "abc/1;o=1"}} }},
	} {
		got := ExtractWith(in, cfg, tc.trust)
		if got.RequestIDGenerated == tc.trust.Has(TrustRequestID) || !ValidRequestID(got.RequestID) {
			t.Errorf("trust %05b: request id %q, generated %v", tc.trust, got.RequestID, got.RequestIDGenerated)
		}
		if got.RequestIDGenerated {
			got.RequestID, got.RequestIDGenerated = "", false
		}
		var want State
		tc.want(&want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("trust %05b:\ngot  %+v\nwant %+v", tc.trust, got, want)
		}
	}
	// Whatever the trust, the link can be had.
	link := ExtractLink(in, cfg)
	if link.TraceID() != ids.TraceID || link.SpanID() != ids.SpanID || !link.IsSampled() || !link.IsRemote() {
		t.Errorf("link = %+v", link)
	}
	if ExtractLink(http.Header{}, cfg).IsValid() {
		t.Error("a link out of nothing")
	}
}

func TestTrustPolicies(t *testing.T) {
	mesh := TrustNetworks(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	byMethod := TrustFunc(func(p Peer) Trust {
		if p.Method == "GET" {
			return TrustIDs
		}
		return TrustNothing
	})
	for _, tc := range []struct {
		name   string
		policy TrustPolicy
		peer   Peer
		want   Trust
	}{
		{"zero value", TrustPolicy{}, Peer{}, TrustEverything},
		{"all", TrustAll(), Peer{}, TrustEverything},
		{"none", TrustNone(), Peer{}, TrustNothing},
		{"nil function", TrustFunc(nil), Peer{}, TrustNothing},
		{"function", byMethod, Peer{Method: "GET"}, TrustIDs},
		{"function, other", byMethod, Peer{Method: "PUT"}, TrustNothing},
		{"inside", mesh, Peer{RemoteAddr: "10.1.2.3:4567"}, TrustEverything},
		{"inside, IPv6", mesh, Peer{RemoteAddr: "[fd00::1%eth0]:80"}, TrustEverything},
		{"inside, mapped", mesh, Peer{RemoteAddr: "[::ffff:10.1.2.3]:80"}, TrustEverything},
		{"inside, no port", mesh, Peer{RemoteAddr: "10.1.2.3"}, TrustEverything},
		{"outside", mesh, Peer{RemoteAddr: "192.0.2.1:80"}, TrustNothing},
		{"no address", mesh, Peer{}, TrustNothing},
		{"a header says nothing", mesh, Peer{RemoteAddr: "192.0.2.1:80", Header: header("X-Forwarded-For", "10.0.0.1")}, TrustNothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.policy.Decide(tc.peer); got != tc.want {
				t.Errorf("got %05b, want %05b", got, tc.want)
			}
		})
	}
	// Extract asks the policy, with the headers.
	cfg := config(t, WithTrust(TrustFunc(func(p Peer) Trust {
		if p.Header.Get("X-Mesh") == "yes" {
			return TrustEverything
		}
		return TrustNothing
	})))
	if s := Extract(header(multi128...), cfg); s.HasIDs() {
		t.Error("ids of an untrusted caller taken over")
	}
	if s := Extract(header(append([]string{"X-Mesh", "yes"}, multi128...)...), cfg); !s.HasIDs() {
		t.Error("ids of a trusted caller refused")
	}
}

func TestRequestID(t *testing.T) {
	for in, want := range map[string]bool{
		"":                                     false,
		"a":                                    true,
		strings.Repeat("a", 128):               true,
		strings.Repeat("a", 129):               false,
		"4bf92f35-77b3-4da6-a3ce-929d0e0e4736": true,
		"host/rand-000001":                     true,
		"a.b_c~d:e+f/g=h@i":                    true,
		"a b":                                  false,
		"a\r\nevil: 1":                         false,
		"a\x00":                                false,
		"<script>":                             false,
		`a"b`:                                  false,
		"a;b":                                  false,
		"%0a":                                  false,
		"é":                                    false,
	} {
		if got := ValidRequestID(in); got != want {
			t.Errorf("ValidRequestID(%q) = %v", in, got)
		}
		id, generated := ResolveRequestID(in, true, nil)
		if generated == want || want && id != in || !ValidRequestID(id) {
			t.Errorf("ResolveRequestID(%q, trusted) = %q, %v", in, id, generated)
		}
		if id, generated := ResolveRequestID(in, false, nil); !generated || id == in {
			t.Errorf("ResolveRequestID(%q, untrusted) = %q, %v", in, id, generated)
		}
	}
	n := uint64(0x0123456789abcdef)
	if got, want := NewRequestID(func() uint64 { n++; return n - 1 }), "01234567-89ab-4def-8123-456789abcdf0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if first, second := NewRequestID(nil), NewRequestID(nil); first == second {
		t.Error("the same request id twice")
	}
	s := Extract(header("x-request-id", "caller-1"), config(t, WithoutRequestID()))
	if s.RequestID != "" || s.RequestIDGenerated {
		t.Errorf("request id handled although switched off: %+v", s)
	}
}

func TestSpanContext(t *testing.T) {
	s := State{TraceID: traceID(t, w3cTrace), SpanID: spanID(t, w3cSpan), Remote: true, Random: true, TraceState: "a=1"}
	for d, sampled := range map[Sampling]bool{Defer: false, Deny: false, Accept: true, Debug: true} {
		s.Sampling = d
		sc := s.SpanContext()
		if sc.IsSampled() != sampled || !sc.IsRemote() || sc.TraceState().Get("a") != "1" || !sc.TraceFlags().IsRandom() {
			t.Errorf("%v: %+v", d, sc)
		}
	}
	s.TraceState = "foo@=1"
	if sc := s.SpanContext(); !sc.IsValid() || sc.TraceState().Len() != 0 {
		t.Errorf("unparsable tracestate: %+v", sc)
	}
	if (State{TraceID: s.TraceID, Sampling: Accept}).SpanContext().IsValid() {
		t.Error("valid without a span id")
	}
	if (State{}).SpanContext().Equal(trace.SpanContext{}) == false {
		t.Error("empty state is not an empty span context")
	}
}
