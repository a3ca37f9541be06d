package propagation

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// maxOut bounds everything Inject may write, whatever came in: the forwarded
// headers, the tracestate, the baggage, the request id and the ids.
const maxOut = DefaultMaxForwardedTotal + MaxTraceState + maxBaggageBytes + MaxRequestIDLen + maxInjected

// checkOut fails when m is not fit to be sent, or larger than any state may
// become.
func checkOut(t *testing.T, m map[string][]string, metadata bool) {
	t.Helper()
	size := 0
	for name, values := range m {
		if !httpguts.ValidHeaderFieldName(name) {
			t.Fatalf("invalid header name %q", name)
		}
		for _, v := range values {
			size += len(v)
			switch {
			case metadata && strings.HasSuffix(name, "-bin"):
			case metadata && !printableASCII(v), !httpguts.ValidHeaderFieldValue(v), strings.ContainsAny(v, "\r\n\x00"):
				t.Fatalf("%s has the invalid value %q", name, v)
			}
		}
	}
	if size > maxOut {
		t.Fatalf("%d bytes came out", size)
	}
}

// addSeeds adds hostile values that every parser should see.
func addSeeds(f *testing.F, add func(string)) {
	f.Helper()
	for _, s := range []string{
		"", "0", "1", "d", "-", ":", "%3A", ",", "=", "\r\n", "\x00", "\xff", "é",
		trace128 + "-" + spanHex + "-1-" + parent, trace64 + "-" + spanHex + "-d", trace128 + "-" + spanHex + "-" + parent,
		"00-" + w3cIDs + "-01", "cc-" + w3cIDs + "-01-x", "00-" + w3cIDs + "-ff",
		trace128 + ":" + spanHex + ":" + parent + ":1", "abc%3A1%3a0%3A3",
		"foo=1 , bar= 2", "a=1;p=q", strings.Repeat("a", 33), strings.Repeat("a", 48),
		strings.Repeat("a", 64<<10), strings.Repeat(":", 64<<10), strings.Repeat("a=1,", 16<<10),
	} {
		add(s)
	}
}

// fuzzID checks that what a parser accepts is written back to something it
// reads the same.
func fuzzID(f *testing.F, maxLen int, parse func(string, *identity) bool, appendTo func([]byte, *State) []byte, exact bool) {
	addSeeds(f, func(s string) { f.Add(s) })
	f.Fuzz(func(t *testing.T, v string) {
		var id, again identity
		if !parse(v, &id) {
			return
		}
		s := State{TraceID: id.traceID, SpanID: id.spanID, ParentID: id.parentID, Sampling: id.sampling, Short: id.short, Random: id.random}
		out := string(appendTo(nil, &s))
		if len(out) > maxLen || !httpguts.ValidHeaderFieldValue(out) {
			t.Fatalf("%q became %q", v, out)
		}
		if !parse(out, &again) {
			t.Fatalf("%q became %q, which is refused", v, out)
		}
		if id.sampling == Defer && !exact {
			id.parentID = again.parentID
		}
		if again != id {
			t.Fatalf("%q is %+v, but %q is %+v", v, id, out, again)
		}
	})
}

func FuzzB3Single(f *testing.F) {
	fuzzID(f, maxB3Single, func(v string, id *identity) bool { return parseB3Single(v, &lowerNibble, id) }, appendB3Single, false)
}

func FuzzB3SingleLenient(f *testing.F) {
	fuzzID(f, maxB3Single, func(v string, id *identity) bool { return parseB3Single(v, &anyNibble, id) }, appendB3Single, false)
}

func FuzzTraceparent(f *testing.F) {
	fuzzID(f, traceparentLen, parseTraceparent, appendTraceparent, true)
}

func FuzzUberTraceID(f *testing.F) {
	fuzzID(f, 32+1+16+1+16+1+1, parseUberTraceID, appendUberTraceID, true)
}

func FuzzB3Multi(f *testing.F) {
	f.Add(trace128, spanHex, parent, "1", "")
	f.Add(trace64, spanHex, "-", "true", "1")
	f.Add("", "", "", "0", "")
	addSeeds(f, func(s string) { f.Add(s, s, s, s, s) })
	cfg := config(f, WithExtract(B3Multi), WithInject(B3Multi), WithoutRequestID(), WithForwardList())
	f.Fuzz(func(t *testing.T, traceID, spanID, parentID, sampled, flags string) {
		in := http.Header{
			HeaderB3TraceID: {traceID}, HeaderB3SpanID: {spanID}, HeaderB3ParentSpanID: {parentID},
			HeaderB3Sampled: {sampled}, HeaderB3Flags: {flags},
		}
		s := Extract(in, cfg)
		out := http.Header{}
		Inject(s, out, cfg)
		checkOut(t, out, false)
		again := Extract(out, cfg)
		if again.TraceID != s.TraceID || again.SpanID != s.SpanID || again.ParentID != s.ParentID ||
			again.Sampling != s.Sampling || again.Short != s.Short {
			t.Fatalf("%v is %+v, but %v is %+v", in, s, out, again)
		}
	})
}

func FuzzTraceState(f *testing.F) {
	f.Add("foo=1,bar=2", "baz=3")
	addSeeds(f, func(s string) { f.Add(s, s) })
	f.Fuzz(func(t *testing.T, a, b string) {
		out := cleanTraceState([]string{a, b})
		if len(out) > MaxTraceState || !printableASCII(out) {
			t.Fatalf("%q, %q became %q", a, b, out)
		}
		if again := cleanTraceState([]string{out}); again != out {
			t.Fatalf("%q became %q, which became %q", a+","+b, out, again)
		}
		if n := strings.Count(out, ",") + 1; n > maxTraceStateMembers {
			t.Fatalf("%d members", n)
		}
	})
}

func FuzzBaggage(f *testing.F) {
	addSeeds(f, func(s string) { f.Add(s) })
	cfg := config(f, WithBaggage("*"))
	f.Fuzz(func(t *testing.T, v string) {
		out := cfg.filterBaggage([]string{v})
		checkOut(t, map[string][]string{"baggage": {out}}, false)
		if len(out) > maxBaggageBytes {
			t.Fatalf("%d bytes", len(out))
		}
		if again := cfg.filterBaggage([]string{out}); again != out {
			t.Fatalf("%q became %q, which became %q", v, out, again)
		}
	})
}

func FuzzRequestID(f *testing.F) {
	addSeeds(f, func(s string) { f.Add(s) })
	f.Fuzz(func(t *testing.T, v string) {
		id, generated := ResolveRequestID(v, true, nil)
		if !httpguts.ValidHeaderFieldValue(id) || len(id) > MaxRequestIDLen || id == "" || strings.ContainsAny(id, " \t<>\"'\\;") {
			t.Fatalf("%q became %q", v, id)
		}
		if !generated && id != v {
			t.Fatalf("%q changed to %q", v, id)
		}
	})
}

// FuzzForwarded sends a value in over every transport and out over both.
func FuzzForwarded(f *testing.F) {
	addSeeds(f, func(s string) { f.Add("X-Ot-Span-Context", s); f.Add("Grpc-Trace-Bin", s); f.Add(s, s) })
	cfg := config(f)
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, s := range []State{
			Extract(http.Header{name: {value}}, cfg),
			ExtractMetadata(map[string][]string{strings.ToLower(name): {value, value}}, cfg),
			{Forwarded: []Field{{name, value}, {name, value}}, TraceState: value, RequestID: value, Baggage: value},
		} {
			h, md := http.Header{}, map[string][]string{}
			Inject(s, h, cfg)
			InjectMetadata(s, md, cfg)
			checkOut(t, h, false)
			checkOut(t, md, true)
		}
	})
}

// FuzzExtract sends every trace header at once through every mode.
func FuzzExtract(f *testing.F) {
	f.Add(trace64+"-"+spanHex+"-1", trace128, spanHex, "00-"+w3cIDs+"-01", "foo=1", "abc:1:0:1")
	addSeeds(f, func(s string) { f.Add(s, s, s, s, s, s) })
	configs := []*Config{
		config(f, WithInject(B3Single, B3Multi, TraceContext, Jaeger), WithBaggage("*")),
		config(f, WithPassthrough()), config(f, WithPassthrough(), WithInject()),
		config(f, WithMirror(), WithLenientHex(), WithExtract(Jaeger, TraceContext, B3Multi, B3Single)),
	}
	f.Fuzz(func(t *testing.T, b3, traceID, spanID, traceparent, tracestate, uber string) {
		in := http.Header{
			HeaderB3: {b3}, HeaderB3TraceID: {traceID}, HeaderB3SpanID: {spanID}, HeaderB3Sampled: {b3},
			HeaderTraceparent: {traceparent}, HeaderTracestate: {tracestate, traceparent}, HeaderUberTraceID: {uber},
			HeaderBaggage: {tracestate}, HeaderRequestID: {uber}, "User-Agent": {b3},
		}
		// What a proxy copies along must not survive next to a new span.
		copied := in.Clone()
		for _, name := range []string{HeaderRequestID, HeaderBaggage, "User-Agent"} {
			delete(copied, name)
		}
		for _, cfg := range configs {
			s := Extract(in, cfg)
			out, md := http.Header{}, map[string][]string{}
			Inject(s, out, cfg)
			InjectMetadata(s, md, cfg)
			checkOut(t, out, false)
			checkOut(t, md, true)
			if s.HasIDs() {
				checkIDs(t, s, Extract(out, cfg))
				checkIDs(t, s, ExtractMetadata(md, cfg))
			}
			if cfg.Passthrough() {
				continue
			}
			s, out = s.Child(cfg), copied.Clone()
			Inject(s, out, cfg)
			checkOut(t, out, false)
			checkIDs(t, s, Extract(out, cfg))
		}
	})
}

func checkIDs(t *testing.T, want, got State) {
	t.Helper()
	if got.TraceID != want.TraceID || got.SpanID != want.SpanID || got.Sampled() != want.Sampled() {
		t.Fatalf("%v/%v/%v became %v/%v/%v", want.TraceID, want.SpanID, want.Sampling, got.TraceID, got.SpanID, got.Sampling)
	}
}
