package propagation

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

func TestParseUberTraceID(t *testing.T) {
	long := func(d Sampling, p string) want { return want{trace: trace128, span: spanHex, sampling: d, parent: p} }
	for _, tc := range []struct {
		name, in string
		want     want
		bad      bool
	}{
		{name: "sampled", in: trace128 + ":" + spanHex + ":0:1", want: long(Accept, "")},
		{name: "not sampled", in: trace128 + ":" + spanHex + ":0:0", want: long(Deny, "")},
		{name: "debug", in: trace128 + ":" + spanHex + ":0:3", want: long(Debug, "")},
		{name: "debug without sampled", in: trace128 + ":" + spanHex + ":0:2", want: long(Deny, "")},
		{name: "two digits", in: trace128 + ":" + spanHex + ":0:01", want: long(Accept, "")},
		{name: "hexadecimal flags", in: trace128 + ":" + spanHex + ":0:0f", want: long(Debug, "")},
		{name: "flags b", in: trace128 + ":" + spanHex + ":0:b", want: long(Debug, "")},
		{name: "flags 10 are sixteen", in: trace128 + ":" + spanHex + ":0:10", want: long(Deny, "")},
		{name: "parent", in: trace128 + ":" + spanHex + ":" + parent + ":1", want: long(Accept, parent)},
		{name: "short parent", in: trace128 + ":" + spanHex + ":b90:1", want: long(Accept, "0000000000000b90")},
		{name: "empty parent", in: trace128 + ":" + spanHex + "::1", want: long(Accept, "")},
		{name: "bad parent", in: trace128 + ":" + spanHex + ":-:1", want: long(Accept, "")},
		{name: "percent sign in the parent", in: trace128 + ":" + spanHex + ":%1:1", want: long(Accept, "")},
		{name: "64 bits", in: trace64 + ":" + spanHex + ":0:1", want: want{trace: trace64, span: spanHex, sampling: Accept, short: true}},
		{name: "padded", in: "abc:1:0:1", want: want{trace: "0000000000000abc", span: "0000000000000001", sampling: Accept, short: true}},
		{name: "31 digits", in: trace128[1:] + ":" + spanHex + ":0:1", want: want{trace: "0" + trace128[1:], span: spanHex, sampling: Accept}},
		{name: "17 digits", in: "a" + trace64 + ":" + spanHex + ":0:1",
			want: want{trace: strings.Repeat("0", 15) + "a" + trace64, span: spanHex, sampling: Accept}},
		{name: "upper case", in: strings.ToUpper(trace128) + ":" + spanHex + ":0:1", want: long(Accept, "")},
		{name: "escaped", in: trace128 + "%3A" + spanHex + "%3a0%3A1", want: long(Accept, "")},
		{name: "other escape", in: trace128 + "%3B" + spanHex + ":0:1", bad: true},
		{name: "cut escape", in: trace128 + ":" + spanHex + ":0%3", bad: true},
		{name: "33 digits", in: "0" + trace128 + ":" + spanHex + ":0:1", bad: true},
		{name: "17-digit span", in: trace128 + ":0" + spanHex + ":0:1", bad: true},
		{name: "zero trace id", in: "0:" + spanHex + ":0:1", bad: true},
		{name: "zero span id", in: trace128 + ":0:0:1", bad: true},
		{name: "empty trace id", in: ":" + spanHex + ":0:1", bad: true},
		{name: "empty span id", in: trace128 + "::0:1", bad: true},
		{name: "empty flags", in: trace128 + ":" + spanHex + ":0:", bad: true},
		{name: "three-digit flags", in: trace128 + ":" + spanHex + ":0:001", bad: true},
		{name: "flags not hex", in: trace128 + ":" + spanHex + ":0:x", bad: true},
		{name: "three fields", in: trace128 + ":" + spanHex + ":0", bad: true},
		{name: "five fields", in: trace128 + ":" + spanHex + ":0:1:1", bad: true},
		{name: "empty", in: "", bad: true},
		{name: "64 KiB", in: strings.Repeat(":", 64<<10), bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var id identity
			if ok := parseUberTraceID(tc.in, &id); ok == tc.bad {
				t.Fatalf("parseUberTraceID(%q) = %v", tc.in, ok)
			}
			if !tc.bad {
				id.check(t, tc.want)
			}
		})
	}
}

func TestAppendUberTraceID(t *testing.T) {
	s := State{TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex), ParentID: spanID(t, parent), Sampling: Accept}
	short := s
	short.TraceID, short.Short, short.ParentID, short.Sampling = traceID(t, trace64), true, trace.SpanID{}, Debug
	deferred := s
	deferred.Sampling = Defer
	for _, tc := range []struct {
		s    State
		want string
	}{
		{s, trace128 + ":" + spanHex + ":" + parent + ":1"},
		{short, trace64 + ":" + spanHex + ":0:3"},
		{deferred, trace128 + ":" + spanHex + ":" + parent + ":0"},
	} {
		if got := string(appendUberTraceID(nil, &tc.s)); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
