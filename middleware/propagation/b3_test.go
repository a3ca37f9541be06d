package propagation

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// The ids of the examples in the B3 specification.
const (
	trace128 = "80f198ee56343ba864fe8b2a57d3eff7"
	trace64  = "64fe8b2a57d3eff7"
	spanHex  = "e457b5a2e4d86bd1"
	parent   = "05e3ac9a4f6e3b90"
)

func traceID(t testing.TB, hex string) (id trace.TraceID) {
	t.Helper()
	hex = strings.Repeat("0", 32-len(hex)) + hex
	if !parseHex(id[:], hex, &lowerNibble) {
		t.Fatalf("bad trace id %q in test", hex)
	}
	return id
}

func spanID(t testing.TB, hex string) (id trace.SpanID) {
	t.Helper()
	if !parseHex(id[:], hex, &lowerNibble) {
		t.Fatalf("bad span id %q in test", hex)
	}
	return id
}

// want is an identity in a form that tables can spell.
type want struct {
	trace, span, parent string
	sampling            Sampling
	short, random       bool
}

func (id *identity) check(t *testing.T, w want) {
	t.Helper()
	got := want{sampling: id.sampling, short: id.short, random: id.random}
	if id.hasIDs() {
		got.trace, got.span = string(appendHex(nil, id.traceID[:])), string(appendHex(nil, id.spanID[:]))
		if id.short {
			got.trace = got.trace[16:]
		}
	}
	if id.parentID != [8]byte{} {
		got.parent = string(appendHex(nil, id.parentID[:]))
	}
	if got != w {
		t.Errorf("got %+v\nwant %+v", got, w)
	}
}

func TestParseB3Single(t *testing.T) {
	full := want{trace: trace128, span: spanHex}
	with := func(w want, d Sampling, p string) want { w.sampling, w.parent = d, p; return w }
	for _, tc := range []struct {
		name, in string
		want     want
		bad      bool
	}{
		{name: "accept and parent", in: trace128 + "-" + spanHex + "-1-" + parent, want: with(full, Accept, parent)},
		{name: "accept", in: trace128 + "-" + spanHex + "-1", want: with(full, Accept, "")},
		{name: "deny", in: trace128 + "-" + spanHex + "-0", want: with(full, Deny, "")},
		{name: "debug", in: trace128 + "-" + spanHex + "-d", want: with(full, Debug, "")},
		{name: "defer", in: trace128 + "-" + spanHex, want: full},
		{name: "defer and parent", in: trace128 + "-" + spanHex + "-" + parent, want: with(full, Defer, parent)},
		{name: "64 bits", in: trace64 + "-" + spanHex + "-1-" + parent, want: want{trace64, spanHex, parent, Accept, true, false}},
		{name: "64 bits in 128 digits stay wide", in: strings.Repeat("0", 16) + trace64 + "-" + spanHex,
			want: want{trace: strings.Repeat("0", 16) + trace64, span: spanHex}},
		{name: "zero parent is none", in: trace128 + "-" + spanHex + "-1-" + strings.Repeat("0", 16), want: with(full, Accept, "")},
		{name: "deny alone", in: "0", want: want{sampling: Deny}},
		{name: "accept alone", in: "1", want: want{sampling: Accept}},
		{name: "debug alone", in: "d", want: want{sampling: Debug}},
		{name: "unknown decision alone", in: "2", bad: true},
		{name: "upper-case debug", in: "D", bad: true},
		{name: "only a trace id", in: trace128, bad: true},
		{name: "trace id and dash", in: trace128 + "-", bad: true},
		{name: "no span id", in: trace128 + "--1", bad: true},
		{name: "short span id", in: trace128 + "-" + spanHex[1:] + "-1", bad: true},
		{name: "long span id", in: trace128 + "-" + spanHex + "0-1", bad: true},
		{name: "31 digits", in: trace128[1:] + "-" + spanHex + "-1", bad: true},
		{name: "33 digits", in: "0" + trace128 + "-" + spanHex + "-1", bad: true},
		{name: "zero trace id", in: strings.Repeat("0", 32) + "-" + spanHex + "-1", bad: true},
		{name: "zero span id", in: trace128 + "-" + strings.Repeat("0", 16) + "-1", bad: true},
		{name: "upper-case trace id", in: strings.ToUpper(trace128) + "-" + spanHex + "-1", bad: true},
		{name: "bad decision", in: trace128 + "-" + spanHex + "-2", bad: true},
		{name: "long decision", in: trace128 + "-" + spanHex + "-true", bad: true},
		{name: "empty decision", in: trace128 + "-" + spanHex + "-", bad: true},
		{name: "bad parent", in: trace128 + "-" + spanHex + "-1-" + parent[1:] + "g", bad: true},
		{name: "short parent", in: trace128 + "-" + spanHex + "-1-" + parent[1:], bad: true},
		{name: "trailing dash", in: trace128 + "-" + spanHex + "-1-", bad: true},
		{name: "fifth field", in: trace128 + "-" + spanHex + "-1-" + parent + "-0", bad: true},
		{name: "space", in: " " + trace64 + "-" + spanHex, bad: true},
		// Lengths that made other parsers panic.
		{name: "33 characters, no dash at 16", in: strings.Repeat("a", 33), bad: true},
		{name: "48 characters, no dash at 16", in: strings.Repeat("a", 48), bad: true},
		{name: "18 characters", in: trace64 + "-1", bad: true},
		{name: "64 KiB", in: strings.Repeat("a", 64<<10), bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var id identity
			if ok := parseB3Single(tc.in, &lowerNibble, &id); ok == tc.bad {
				t.Fatalf("parseB3Single(%q) = %v", tc.in, ok)
			}
			if !tc.bad {
				id.check(t, tc.want)
			}
		})
	}
	t.Run("lenient", func(t *testing.T) {
		var id identity
		if !parseB3Single(strings.ToUpper(trace128)+"-"+spanHex+"-1", &anyNibble, &id) {
			t.Fatal("upper case refused")
		}
		id.check(t, with(full, Accept, ""))
	})
}

func TestParseB3Multi(t *testing.T) {
	ids := want{trace: trace128, span: spanHex}
	with := func(d Sampling, p string) want { w := ids; w.sampling, w.parent = d, p; return w }
	for _, tc := range []struct {
		name                                string
		trace, span, parent, sampled, flags string
		want                                want
		bad                                 bool
	}{
		{name: "all", trace: trace128, span: spanHex, parent: parent, sampled: "1", want: with(Accept, parent)},
		{name: "deny", trace: trace128, span: spanHex, sampled: "0", want: with(Deny, "")},
		{name: "true", trace: trace128, span: spanHex, sampled: "true", want: with(Accept, "")},
		{name: "false", trace: trace128, span: spanHex, sampled: "false", want: with(Deny, "")},
		{name: "True", trace: trace128, span: spanHex, sampled: "True", want: with(Accept, "")},
		{name: "not quite true", trace: trace128, span: spanHex, sampled: "truee", want: ids},
		{name: "defer", trace: trace128, span: spanHex, want: ids},
		{name: "debug", trace: trace128, span: spanHex, flags: "1", want: with(Debug, "")},
		{name: "debug over deny", trace: trace128, span: spanHex, sampled: "0", flags: "1", want: with(Debug, "")},
		{name: "other flags are ignored", trace: trace128, span: spanHex, sampled: "0", flags: "2", want: with(Deny, "")},
		{name: "64 bits", trace: trace64, span: spanHex, sampled: "1", want: want{trace64, spanHex, "", Accept, true, false}},
		{name: "bad decision is absent", trace: trace128, span: spanHex, sampled: "d", want: ids},
		{name: "dash for no parent", trace: trace128, span: spanHex, parent: "-", sampled: "1", want: with(Accept, "")},
		{name: "half-parsed parent leaves nothing", trace: trace128, span: spanHex, parent: parent[:15] + "g", want: ids},
		{name: "zero parent", trace: trace128, span: spanHex, parent: strings.Repeat("0", 16), want: ids},
		{name: "deny alone", sampled: "0", want: want{sampling: Deny}},
		{name: "accept alone", sampled: "1", want: want{sampling: Accept}},
		{name: "debug alone", flags: "1", want: want{sampling: Debug}},
		{name: "nothing", bad: true},
		{name: "only a parent", parent: parent, bad: true},
		{name: "no span id", trace: trace128, sampled: "1", bad: true},
		{name: "no trace id", span: spanHex, sampled: "1", bad: true},
		{name: "malformed trace id takes debug with it", trace: "x" + trace128[1:], span: spanHex, flags: "1", bad: true},
		{name: "malformed span id", trace: trace128, span: spanHex[1:], flags: "1", bad: true},
		{name: "zero trace id", trace: strings.Repeat("0", 32), span: spanHex, bad: true},
		{name: "zero span id", trace: trace128, span: strings.Repeat("0", 16), bad: true},
		{name: "upper case", trace: strings.ToUpper(trace128), span: spanHex, bad: true},
		{name: "20 digits", trace: trace128[:20], span: spanHex, bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var id identity
			ok := parseB3Multi(tc.trace, tc.span, tc.parent, tc.sampled, tc.flags, &lowerNibble, &id)
			if ok == tc.bad {
				t.Fatalf("accepted: %v", ok)
			}
			if !tc.bad {
				id.check(t, tc.want)
			}
		})
	}
}

func TestAppendB3Single(t *testing.T) {
	s := State{TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent)}
	for _, tc := range []struct {
		name   string
		change func(*State)
		want   string
	}{
		{"accept", func(s *State) { s.Sampling = Accept }, trace128 + "-" + spanHex + "-1-" + parent},
		{"deny", func(s *State) { s.Sampling = Deny }, trace128 + "-" + spanHex + "-0-" + parent},
		{"debug", func(s *State) { s.Sampling = Debug }, trace128 + "-" + spanHex + "-d-" + parent},
		{"no parent", func(s *State) { s.Sampling, s.ParentID = Accept, trace.SpanID{} }, trace128 + "-" + spanHex + "-1"},
		{"defer", func(*State) {}, trace128 + "-" + spanHex},
		{"short", func(s *State) { s.TraceID, s.Short, s.Sampling = traceID(t, trace64), true, Accept }, trace64 + "-" + spanHex + "-1-" + parent},
		{"short set on a long id", func(s *State) { s.Short, s.Sampling = true, Accept }, trace128 + "-" + spanHex + "-1-" + parent},
		{"deny alone", func(s *State) { *s = State{Sampling: Deny} }, "0"},
		{"debug alone", func(s *State) { *s = State{Sampling: Debug} }, "d"},
		{"nothing", func(s *State) { *s = State{} }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s
			tc.change(&s)
			if got := string(appendB3Single(nil, &s)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
