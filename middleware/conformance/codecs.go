package conformance

import (
	"net/http"
	"slices"
	"strings"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// Codec is one of our codecs with what it is compared to.
type Codec struct {
	Name  string
	Ours  func(http.Header) Reading
	Peers []Comparison
}

// Comparison is a peer and the ways in which we differ from it.
type Comparison struct {
	Peer          Peer
	Disagreements []Disagreement
}

// ours reads with a single format.
func ours(f propagation.Format) func(http.Header) Reading {
	cfg, err := propagation.NewConfig(propagation.WithExtract(f), propagation.WithForwardList(), propagation.WithoutRequestID())
	if err != nil {
		panic(err)
	}
	return func(h http.Header) Reading { return fromState(propagation.Extract(h, cfg)) }
}

var (
	oursSingle = ours(propagation.B3Single)
	oursMulti  = ours(propagation.B3Multi)
	oursW3C    = ours(propagation.TraceContext)
	oursJaeger = ours(propagation.Jaeger)
)

// The codecs under comparison.
var (
	B3Single = Codec{"b3-single", oursSingle, []Comparison{
		{ContribB3, []Disagreement{singleDecisionAlone, singleSeparators, singleDeferredParent, singleZeroParent}},
		{Zipkin, []Disagreement{zipkinPanic, singleSeparators, singleDeferredParent, singleUpperCase, zipkinZeroIDs}},
	}}
	B3Multi = Codec{"b3-multi", oursMulti, []Comparison{
		{ContribB3, []Disagreement{multiDecisionAlone, multiBadDecision, multiBadParent}},
		{Zipkin, []Disagreement{multiBadDecision, multiBadParent, multiParentAlone, zipkinLooseIDs, zipkinZeroIDs}},
	}}
	TraceContext = Codec{"tracecontext", oursW3C, []Comparison{
		{OTelTraceContext, []Disagreement{
			w3cReservedFlags, w3cDuplicateTraceparent, w3cWhiteSpace, w3cTrailingDash,
			stateSeveralLines, stateDuplicateKeys, stateLevel2Keys, stateBlankMembers, stateTruncated,
		}},
	}}
	Jaeger = Codec{"uber-trace-id", oursJaeger, []Comparison{
		{ContribJaeger, []Disagreement{jaegerEscaped, jaegerUpperCase, jaegerLooseFlags}},
		{JaegerClient, []Disagreement{jaegerEscaped, jaegerDecimalFlags, jaegerBadParent}},
	}}
	Codecs = []Codec{B3Single, B3Multi, TraceContext, Jaeger}
)

var (
	singleDecisionAlone = Disagreement{
		Name:    "b3-decision-alone",
		Example: h("b3", "0"),
		Applies: func(in http.Header, _, _ Reading) bool { return slices.Contains([]string{"0", "1", "d"}, in.Get("b3")) },
	}
	singleSeparators = Disagreement{
		Name:    "b3-separators",
		Example: h("b3", ids128+"x1"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			v := in.Get("b3")
			return !ours.Valid && theirs.Valid && v != withSeparators(v)
		},
	}
	singleDeferredParent = Disagreement{
		Name:    "b3-deferred-parent",
		Example: h("b3", ids128+"-"+parentID),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			f := strings.Split(in.Get("b3"), "-")
			return ours.Valid && !theirs.Valid && len(f) == 3 && len(f[2]) == 16
		},
	}
	singleZeroParent = Disagreement{
		Name:    "b3-zero-parent",
		Example: h("b3", ids128+"-1-"+zeroID),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return ours.Valid && !theirs.Valid && strings.HasSuffix(in.Get("b3"), "-"+zeroID)
		},
	}
	singleUpperCase = Disagreement{
		Name:    "b3-upper-case",
		Example: h("b3", strings.ToUpper(ids128)+"-1"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return !ours.Valid && theirs.Valid && strings.ContainsAny(in.Get("b3"), "ABCDEF")
		},
	}
	zipkinPanic = Disagreement{
		Name:    "zipkin-panic",
		Example: h("b3", strings.Repeat("a", 40)),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			v := in.Get("b3")
			return theirs.Panicked != "" && !ours.Valid && len(v) >= 33 && len(v) <= 48 && v[16] != '-'
		},
	}
	zipkinZeroIDs = Disagreement{
		Name:    "zipkin-zero-ids",
		Example: h("b3", trace128+"-"+zeroID+"-1", "X-B3-TraceId", zeroID, "X-B3-SpanId", spanID),
		Applies: func(_ http.Header, ours, theirs Reading) bool {
			return !ours.Valid && theirs.Valid && (theirs.TraceID == zeroID+zeroID || theirs.SpanID == zeroID)
		},
	}
	multiDecisionAlone = Disagreement{
		Name:    "b3-decision-alone",
		Example: h("X-B3-Sampled", "0"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return ours.Valid && !theirs.Valid && in.Get("X-B3-TraceId") == "" && in.Get("X-B3-SpanId") == ""
		},
	}
	multiBadDecision = Disagreement{
		Name:    "b3-bad-decision",
		Example: h("X-B3-TraceId", trace128, "X-B3-SpanId", spanID, "X-B3-Sampled", "d"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			known := []string{"", "0", "1", "true", "false"}
			return ours.Valid && !theirs.Valid && !slices.Contains(known, strings.ToLower(in.Get("X-B3-Sampled")))
		},
	}
	multiBadParent = Disagreement{
		Name:    "b3-bad-parent",
		Example: h("X-B3-TraceId", trace128, "X-B3-SpanId", spanID, "X-B3-ParentSpanId", "-"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			p := in.Get("X-B3-ParentSpanId")
			return ours.Valid && p != "" && (len(p) != 16 || !within(p, lowerHex) || p == zeroID)
		},
	}
	multiParentAlone = Disagreement{
		Name:    "zipkin-parent-alone",
		Example: h("X-B3-ParentSpanId", parentID, "X-B3-Sampled", "0"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return ours.Valid && ours.TraceID == "" && !theirs.Valid && in.Get("X-B3-ParentSpanId") != ""
		},
	}
	zipkinLooseIDs = Disagreement{
		Name:    "zipkin-loose-ids",
		Example: h("X-B3-TraceId", "abc", "X-B3-SpanId", "D"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			t, s := in.Get("X-B3-TraceId"), in.Get("X-B3-SpanId")
			return !ours.Valid && theirs.Valid &&
				(len(t) != 16 && len(t) != 32 || len(s) != 16 || !within(t+s, lowerHex))
		},
	}
	w3cReservedFlags = Disagreement{
		Name:    "tracecontext-reserved-flags",
		Example: h("traceparent", "00-"+ids128+"-ff"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			v := strings.Trim(in.Get("traceparent"), " \t")
			return ours.Valid && !theirs.Valid && strings.HasPrefix(v, "00-") && (v[53] != '0' || v[54] > '3')
		},
	}
	w3cDuplicateTraceparent = Disagreement{
		Name:    "tracecontext-two-traceparents",
		Example: h("traceparent", "00-"+ids128+"-01", "traceparent", "00-"+ids128+"-01"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return !ours.Valid && theirs.Valid && len(in["Traceparent"]) > 1
		},
	}
	w3cWhiteSpace = Disagreement{
		Name:    "tracecontext-white-space",
		Example: h("traceparent", " 00-"+ids128+"-01\t"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			v := in.Get("traceparent")
			return ours.Valid && !theirs.Valid && v != strings.Trim(v, " \t")
		},
	}
	w3cTrailingDash = Disagreement{
		Name:    "tracecontext-trailing-dash",
		Example: h("traceparent", "00-"+ids128+"-01-"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			v := in.Get("traceparent")
			return !ours.Valid && theirs.Valid && len(v) == 56 && strings.HasPrefix(v, "00-") && strings.HasSuffix(v, "-")
		},
	}
	stateSeveralLines = Disagreement{
		Name:    "tracestate-several-lines",
		Example: h("traceparent", "00-"+ids128+"-01", "tracestate", "a=1", "tracestate", "b=2"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return stateOnly(ours, theirs) && len(in["Tracestate"]) > 1
		},
	}
	stateDuplicateKeys = Disagreement{
		Name:    "tracestate-duplicate-keys",
		Example: h("traceparent", "00-"+ids128+"-01", "tracestate", "a=1,a=2"),
		Applies: func(_ http.Header, ours, theirs Reading) bool {
			keys := stateKeys(ours.TraceState)
			slices.Sort(keys)
			return stateOnly(ours, theirs) && theirs.TraceState == "" && len(slices.Compact(keys)) < len(stateKeys(ours.TraceState))
		},
	}
	stateLevel2Keys = Disagreement{
		Name:    "tracestate-level-2-keys",
		Example: h("traceparent", "00-"+ids128+"-01", "tracestate", "0a=1,b@@c=2"),
		Applies: func(_ http.Header, ours, theirs Reading) bool {
			return stateOnly(ours, theirs) && theirs.TraceState == "" && !slices.ContainsFunc(stateKeys(ours.TraceState), func(k string) bool { return k == "" }) &&
				slices.ContainsFunc(stateKeys(ours.TraceState), func(k string) bool { return !level1Key(k) })
		},
	}
	stateBlankMembers = Disagreement{
		Name:    "tracestate-blank-members",
		Example: h("traceparent", "00-"+ids128+"-01", "tracestate", "a=1, ,b=2"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			blank := func(m string) bool { return m != "" && strings.Trim(m, " \t") == "" }
			return stateOnly(ours, theirs) && slices.ContainsFunc(strings.Split(in.Get("tracestate"), ","), blank)
		},
	}
	stateTruncated = Disagreement{
		Name: "tracestate-truncated",
		Example: h("traceparent", "00-"+ids128+"-01", "tracestate", func() string {
			var m []string
			for c := 'a'; c <= 'z'; c++ {
				m = append(m, string(c)+strings.Repeat("z", 250)+"="+strings.Repeat("v", 250))
			}
			return strings.Join(m, ",")
		}()),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return stateOnly(ours, theirs) && len(theirs.TraceState) > propagation.MaxTraceState && len(ours.TraceState) <= propagation.MaxTraceState
		},
	}
	jaegerEscaped = Disagreement{
		Name:    "jaeger-escaped",
		Example: h("uber-trace-id", trace128+"%3A"+spanID+"%3A0%3A1"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return ours.Valid != theirs.Valid && strings.Contains(strings.ToLower(in.Get("uber-trace-id")), "%3a")
		},
	}
	jaegerUpperCase = Disagreement{
		Name:    "jaeger-upper-case",
		Example: h("uber-trace-id", strings.ToUpper(trace128)+":"+spanID+":0:1"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			return ours.Valid && !theirs.Valid && strings.ContainsAny(in.Get("uber-trace-id"), "ABCDEF")
		},
	}
	jaegerLooseFlags = Disagreement{
		Name:    "jaeger-loose-flags",
		Example: h("uber-trace-id", trace128+":"+spanID+":0:"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			f := jaegerFlags(in)
			return !ours.Valid && theirs.Valid && (len(f) < 1 || len(f) > 2 || !within(f, anyHex))
		},
	}
	jaegerDecimalFlags = Disagreement{
		Name:    "jaeger-decimal-flags",
		Example: h("uber-trace-id", trace128+":"+spanID+":0:0f"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			f := jaegerFlags(in)
			return len(f) != 1 || !within(f, "0123456789")
		},
	}
	jaegerBadParent = Disagreement{
		Name:    "jaeger-bad-parent",
		Example: h("uber-trace-id", trace128+":"+spanID+":-:1"),
		Applies: func(in http.Header, ours, theirs Reading) bool {
			f := strings.Split(in.Get("uber-trace-id"), ":")
			return ours.Valid && !theirs.Valid && len(f) == 4 && (f[2] == "" || len(f[2]) > 16 || !within(f[2], anyHex))
		},
	}
)

// withSeparators is a b3 value with dashes where the specification has them.
func withSeparators(v string) string {
	b := []byte(v)
	width := 32
	if len(b) > 16 && b[16] == '-' || len(b) < 32+1+16 {
		width = 16
	}
	for _, at := range []int{width, width + 17, width + 19} {
		if at < len(b) {
			b[at] = '-'
		}
	}
	return string(b)
}

// stateOnly reports whether only the tracestate can differ.
func stateOnly(ours, theirs Reading) bool { return ours.Valid && theirs.Valid }

func stateKeys(list string) []string {
	var keys []string
	for _, m := range strings.Split(list, ",") {
		k, _, _ := strings.Cut(m, "=")
		keys = append(keys, k)
	}
	return keys
}

// level1Key is the key grammar of trace context level 1, where "@" separates a
// tenant from a system of at most 14 characters.
func level1Key(k string) bool {
	lower := func(c byte) bool { return c >= 'a' && c <= 'z' }
	tenant, system, multi := strings.Cut(k, "@")
	if !multi {
		return lower(k[0])
	}
	return tenant != "" && len(tenant) <= 241 && system != "" && len(system) <= 14 && lower(system[0]) &&
		!strings.Contains(system, "@") && !strings.ContainsAny(tenant[:1], "_-*/")
}

func jaegerFlags(in http.Header) string {
	v := in.Get("uber-trace-id")
	return v[strings.LastIndex(v, ":")+1:]
}
