package conformance

import (
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// check compares our reading of in with every peer's, and requires a listed
// disagreement for every difference. It returns the names of those that apply.
func check(t interface {
	Helper()
	Errorf(string, ...any)
}, c Codec, in http.Header) []string {
	t.Helper()
	got := c.Ours(in)
	var names []string
	for _, cmp := range c.Peers {
		theirs := catch(func() Reading { return cmp.Peer.Read(in) })
		diff := Compare(got, theirs, cmp.Peer.Keeps)
		if len(diff) == 0 {
			continue
		}
		listed := false
		for _, d := range cmp.Disagreements {
			if d.Applies(in, got, theirs) {
				listed = true
				names = append(names, d.Name)
			}
		}
		if !listed {
			t.Errorf("%s and %s differ in %v on %q\nours   %+v\ntheirs %+v", c.Name, cmp.Peer.Name, diff, in, got, theirs)
		}
	}
	return names
}

// Every listed disagreement exists, so the list cannot rot.
func TestDisagreementsExist(t *testing.T) {
	doc, err := os.ReadFile("DISAGREEMENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range Codecs {
		for _, cmp := range c.Peers {
			for _, d := range cmp.Disagreements {
				seen[d.Name] = true
				ours := c.Ours(d.Example)
				theirs := catch(func() Reading { return cmp.Peer.Read(d.Example) })
				if diff := Compare(ours, theirs, cmp.Peer.Keeps); len(diff) == 0 || !d.Applies(d.Example, ours, theirs) {
					t.Errorf("%s: %s and %s agree on %q: ours %+v, theirs %+v", d.Name, c.Name, cmp.Peer.Name, d.Example, ours, theirs)
				}
				check(t, c, d.Example)
			}
		}
	}
	var documented []string
	for line := range strings.SplitSeq(string(doc), "\n") {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			documented = append(documented, name)
		}
	}
	slices.Sort(documented)
	if want := slices.Sorted(maps.Keys(seen)); !slices.Equal(documented, want) {
		t.Errorf("DISAGREEMENTS.md has %q\nthe code has %q", documented, want)
	}
}

// On well-formed input everybody agrees.
func TestAgreement(t *testing.T) {
	for _, tc := range []struct {
		codec Codec
		in    http.Header
	}{
		{B3Single, h("b3", ids128+"-1-"+parentID)},
		{B3Single, h("b3", ids128+"-0-"+parentID)},
		{B3Single, h("b3", ids128+"-d-"+parentID)},
		{B3Single, h("b3", ids128+"-1")},
		{B3Single, h("b3", ids128)},
		{B3Single, h("b3", trace64+"-"+spanID+"-1-"+parentID)},
		{B3Single, h("b3", "")},
		{B3Single, h("b3", ids128+"-2")},
		{B3Multi, h("X-B3-TraceId", trace128, "X-B3-SpanId", spanID, "X-B3-ParentSpanId", parentID, "X-B3-Sampled", "1")},
		{B3Multi, h("X-B3-TraceId", trace64, "X-B3-SpanId", spanID, "X-B3-Sampled", "0")},
		{B3Multi, h("X-B3-TraceId", trace64, "X-B3-SpanId", spanID, "X-B3-Sampled", "TRUE")},
		{B3Multi, h("X-B3-TraceId", trace128, "X-B3-SpanId", spanID, "X-B3-Flags", "1")},
		{B3Multi, h("X-B3-TraceId", trace128, "X-B3-SpanId", spanID)},
		{B3Multi, h("X-B3-TraceId", "x", "X-B3-SpanId", spanID, "X-B3-Flags", "1")},
		{B3Multi, h()},
		{TraceContext, h("traceparent", "00-"+ids128+"-01", "tracestate", "foo=1 , bar=2")},
		{TraceContext, h("traceparent", "00-"+ids128+"-03")},
		{TraceContext, h("traceparent", "cc-"+ids128+"-00-what-the-future-will-be-like")},
		{TraceContext, h("traceparent", "ff-"+ids128+"-00")},
		{TraceContext, h("traceparent", "00-"+ids128+"-01", "tracestate", "FOO=1")},
		{TraceContext, h("tracestate", "foo=1")},
		{Jaeger, h("uber-trace-id", trace128+":"+spanID+":0:1")},
		{Jaeger, h("uber-trace-id", trace64+":"+spanID+":"+parentID+":0")},
		{Jaeger, h("uber-trace-id", "abc:1:0:3")},
		{Jaeger, h("uber-trace-id", "0:1:0:3")},
	} {
		if names := check(t, tc.codec, tc.in); len(names) > 0 {
			t.Errorf("%s, %q: disagreements %q", tc.codec.Name, tc.in, names)
		}
	}
}

func FuzzB3Single(f *testing.F) {
	addExamples(f, B3Single, func(in http.Header) { f.Add(in.Get("b3")) })
	f.Fuzz(func(t *testing.T, v string) { check(t, B3Single, h("b3", v)) })
}

func FuzzB3Multi(f *testing.F) {
	addExamples(f, B3Multi, func(in http.Header) {
		f.Add(in.Get("X-B3-TraceId"), in.Get("X-B3-SpanId"), in.Get("X-B3-ParentSpanId"), in.Get("X-B3-Sampled"), in.Get("X-B3-Flags"))
	})
	f.Fuzz(func(t *testing.T, traceID, spanID, parentID, sampled, flags string) {
		check(t, B3Multi, h("X-B3-TraceId", traceID, "X-B3-SpanId", spanID, "X-B3-ParentSpanId", parentID, "X-B3-Sampled", sampled, "X-B3-Flags", flags))
	})
}

func FuzzTraceparent(f *testing.F) {
	addExamples(f, TraceContext, func(in http.Header) { f.Add(in.Get("traceparent")) })
	f.Fuzz(func(t *testing.T, v string) { check(t, TraceContext, h("traceparent", v)) })
}

func FuzzTraceState(f *testing.F) {
	addExamples(f, TraceContext, func(in http.Header) { f.Add(in.Get("tracestate")) })
	f.Fuzz(func(t *testing.T, v string) {
		check(t, TraceContext, h("traceparent", "00-"+ids128+"-01", "tracestate", v))
	})
}

func FuzzUberTraceID(f *testing.F) {
	addExamples(f, Jaeger, func(in http.Header) { f.Add(in.Get("uber-trace-id")) })
	f.Fuzz(func(t *testing.T, v string) { check(t, Jaeger, h("uber-trace-id", v)) })
}

// addExamples seeds a target with the disagreements and one plain value of each
// kind.
func addExamples(f *testing.F, c Codec, add func(http.Header)) {
	f.Helper()
	for _, cmp := range c.Peers {
		for _, d := range cmp.Disagreements {
			add(d.Example)
		}
	}
	for _, s := range []string{"", ids128 + "-1-" + parentID, trace64 + "-" + spanID, strings.Repeat("a", 64<<10)} {
		add(h("b3", s, "uber-trace-id", strings.ReplaceAll(s, "-", ":"), "traceparent", "00-"+s, "tracestate", s+"=1",
			"X-B3-TraceId", s, "X-B3-SpanId", s))
	}
}
