package propagation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	w3cTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	w3cSpan  = "00f067aa0ba902b7"
	w3cIDs   = w3cTrace + "-" + w3cSpan
)

func TestParseTraceparent(t *testing.T) {
	ids := func(d Sampling, random bool) want {
		return want{trace: w3cTrace, span: w3cSpan, sampling: d, random: random}
	}
	for _, tc := range []struct {
		name, in string
		want     want
		bad      bool
	}{
		{name: "sampled", in: "00-" + w3cIDs + "-01", want: ids(Accept, false)},
		{name: "not sampled", in: "00-" + w3cIDs + "-00", want: ids(Deny, false)},
		{name: "random", in: "00-" + w3cIDs + "-02", want: ids(Deny, true)},
		{name: "both", in: "00-" + w3cIDs + "-03", want: ids(Accept, true)},
		{name: "unknown flags are masked", in: "00-" + w3cIDs + "-ff", want: ids(Accept, true)},
		{name: "unknown flags alone", in: "00-" + w3cIDs + "-fc", want: ids(Deny, false)},
		{name: "white space", in: "\t 00-" + w3cIDs + "-01 \t", want: ids(Accept, false)},
		{name: "64-bit id is not short", in: "00-" + strings.Repeat("0", 16) + trace64 + "-" + w3cSpan + "-01",
			want: want{trace: strings.Repeat("0", 16) + trace64, span: w3cSpan, sampling: Accept}},
		{name: "higher version", in: "cc-" + w3cIDs + "-01", want: ids(Accept, false)},
		{name: "higher version with more", in: "cc-" + w3cIDs + "-01-what-the-future-will-be-like", want: ids(Accept, false)},
		{name: "higher version, no dash", in: "cc-" + w3cIDs + "-01.what", bad: true},
		{name: "higher version, cut short", in: "cc-" + w3cIDs + "-0", bad: true},
		{name: "version 00 with more", in: "00-" + w3cIDs + "-01-x", bad: true},
		{name: "version 00 with a dash", in: "00-" + w3cIDs + "-01-", bad: true},
		{name: "version ff", in: "ff-" + w3cIDs + "-01", bad: true},
		{name: "version in upper case", in: "CC-" + w3cIDs + "-01", bad: true},
		{name: "version of one digit", in: "0-" + w3cIDs + "-01", bad: true},
		{name: "version of three digits", in: "000-" + w3cIDs + "-01", bad: true},
		{name: "version not hex", in: ".0-" + w3cIDs + "-01", bad: true},
		{name: "zero trace id", in: "00-" + strings.Repeat("0", 32) + "-" + w3cSpan + "-01", bad: true},
		{name: "zero span id", in: "00-" + w3cTrace + "-" + strings.Repeat("0", 16) + "-01", bad: true},
		{name: "upper case", in: "00-" + strings.ToUpper(w3cTrace) + "-" + w3cSpan + "-01", bad: true},
		{name: "trace id too long", in: "00-0" + w3cIDs + "-01", bad: true},
		{name: "span id too long", in: "00-" + w3cIDs + "0-01", bad: true},
		{name: "flags too short", in: "00-" + w3cIDs + "-1", bad: true},
		{name: "flags too long", in: "00-" + w3cIDs + "-001", bad: true},
		{name: "flags not hex", in: "00-" + w3cIDs + "-0.", bad: true},
		{name: "two joined by a proxy", in: "00-" + w3cIDs + "-01,00-" + w3cIDs + "-01", bad: true},
		{name: "empty", in: "", bad: true},
		{name: "64 KiB", in: "cc-" + strings.Repeat("0", 64<<10), bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var id identity
			if ok := parseTraceparent(tc.in, &id); ok == tc.bad {
				t.Fatalf("parseTraceparent(%q) = %v", tc.in, ok)
			}
			if !tc.bad {
				id.check(t, tc.want)
			}
		})
	}
}

func TestAppendTraceparent(t *testing.T) {
	for _, tc := range []struct {
		sampling Sampling
		random   bool
		want     string
	}{
		{Accept, false, "01"}, {Debug, false, "01"}, {Deny, false, "00"}, {Defer, false, "00"},
		{Accept, true, "03"}, {Deny, true, "02"},
	} {
		s := State{TraceID: traceID(t, trace64), SpanID: spanID(t, w3cSpan), Short: true, Sampling: tc.sampling, Random: tc.random}
		want := "00-" + strings.Repeat("0", 16) + trace64 + "-" + w3cSpan + "-" + tc.want
		if got := string(appendTraceparent(nil, &s)); got != want {
			t.Errorf("%v, random %v: got %q, want %q", tc.sampling, tc.random, got, want)
		}
	}
}

func TestCleanTraceState(t *testing.T) {
	long := func(n int) string { return strings.Repeat("z", n) }
	list := func(from, to int) string {
		var m []string
		for i := from; i <= to; i++ {
			m = append(m, fmt.Sprintf("k%d=%d", i, i))
		}
		return strings.Join(m, ",")
	}
	allowed := "abcdefghijklmnopqrstuvwxyz0123456789_-*/@="
	for c := byte(0x20); c <= 0x7e; c++ {
		if c != ',' && c != '=' {
			allowed += string(c)
		}
	}
	for _, tc := range []struct {
		name string
		in   []string
		want string
	}{
		{"nil", nil, ""},
		{"empty line", []string{""}, ""},
		{"white space only", []string{" \t , \t"}, ""},
		{"one", []string{"foo=1"}, "foo=1"},
		{"order kept", []string{"foo=1,bar=2"}, "foo=1,bar=2"},
		{"lines joined in order", []string{"foo=1,bar=2", "rojo=1,congo=2", "baz=3"}, "foo=1,bar=2,rojo=1,congo=2,baz=3"},
		{"empty lines skipped", []string{"", "foo=1", ""}, "foo=1"},
		{"empty members skipped", []string{",foo=1,,bar=2,"}, "foo=1,bar=2"},
		{"white space around members", []string{"\t foo=1 \t , \tbar=2 "}, "foo=1,bar=2"},
		{"leading space of a value is part of it", []string{"foo= 1"}, "foo= 1"},
		{"same key twice is kept", []string{"foo=1,foo=2"}, "foo=1,foo=2"},
		{"every allowed character", []string{allowed}, allowed},
		{"key of 256", []string{long(256) + "=1"}, long(256) + "=1"},
		{"key of 257", []string{"foo=1", long(257) + "=1"}, ""},
		{"value of 256", []string{"a=" + long(256)}, "a=" + long(256)},
		{"value of 257", []string{"a=" + long(257)}, ""},
		{"at signs", []string{"foo@=1,foo@@bar=2"}, "foo@=1,foo@@bar=2"},
		{"starts with an at sign", []string{"@foo=1,bar=2"}, ""},
		{"starts with a digit", []string{"0a=1"}, "0a=1"},
		{"starts with an underscore", []string{"_a=1"}, ""},
		{"upper-case key", []string{"FOO=1"}, ""},
		{"space in key", []string{"foo =1"}, ""},
		{"dot in key", []string{"foo.bar=1"}, ""},
		{"two equal signs", []string{"foo=bar=baz"}, ""},
		{"no value", []string{"foo=,bar=3"}, ""},
		{"no equal sign", []string{"foo"}, ""},
		{"no key", []string{"=1"}, ""},
		{"tab in value", []string{"foo=a\tb"}, ""},
		{"CR LF in value", []string{"foo=a\r\nevil: 1"}, ""},
		{"not ASCII", []string{"foo=é"}, ""},
		{"32 members", []string{list(1, 16), list(17, 32)}, list(1, 32)},
		{"33 members", []string{list(1, 16), list(17, 33)}, ""},
		{"33 with an empty one", []string{list(1, 16), "", list(17, 32)}, list(1, 32)},
		{"64 KiB of commas", []string{strings.Repeat(",", 64<<10) + "a=1"}, "a=1"},
		{"64 KiB of members", []string{strings.Repeat("a=1,", 16<<10)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := cleanTraceState(tc.in); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTraceStateTruncation(t *testing.T) {
	big := "big=" + strings.Repeat("x", 125)   // 129 characters
	edge := "edge=" + strings.Repeat("x", 123) // 128 characters
	small := []string{"a=1", "b=2", "c=3"}     // 11 with commas
	for _, tc := range []struct {
		name  string
		in    []string
		limit int
		want  []string
	}{
		{"fits", small, 11, small},
		{"last goes first", small, 10, []string{"a=1", "b=2"}},
		{"big members go before", []string{big, "a=1", "b=2"}, 10, []string{"a=1", "b=2"}},
		{"the last big one goes first", []string{big, "a=1", big}, 133, []string{big, "a=1"}},
		{"128 characters are not big", []string{edge, "a=1"}, 128, []string{edge}},
		{"nothing fits", small, 2, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := truncateTraceState(slices.Clone(tc.in), tc.limit); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	var lines []string
	for i := range 32 {
		lines = append(lines, fmt.Sprintf("k%d=%s", i, strings.Repeat("v", 256)))
	}
	got := cleanTraceState(lines)
	if len(got) > MaxTraceState || got != strings.Join(lines[:31], ",") {
		t.Errorf("32 big members: got %d bytes, want the first 31 members (%d bytes)", len(got), len(strings.Join(lines[:31], ",")))
	}
}
