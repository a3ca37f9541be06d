package conformance

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// nearValid draws values that are right but for a few characters, which is
// where parsers differ and where a fuzzer seldom gets by itself.
func nearValid(t *rapid.T, label, separator string, fields ...*rapid.Generator[string]) string {
	parts := make([]string, len(fields))
	for i, g := range fields {
		parts[i] = g.Draw(t, label)
	}
	b := []byte(strings.Join(parts, separator))
	for range rapid.IntRange(0, 2).Draw(t, "edits") {
		at := rapid.IntRange(0, len(b)).Draw(t, "at")
		c := rapid.SampledFrom([]byte("09afAFdxg-:%3, \t=@_\x00\xff")).Draw(t, "with")
		switch edit := rapid.IntRange(0, 2).Draw(t, "edit"); {
		case edit == 0 || at == len(b):
			b = append(b[:at], append([]byte{c}, b[at:]...)...)
		case edit == 1:
			b[at] = c
		default:
			b = append(b[:at], b[at+1:]...)
		}
	}
	return string(b)
}

var (
	traceIDs  = rapid.SampledFrom([]string{trace128, trace64, zeroID, zeroID + zeroID, zeroID + trace64, strings.ToUpper(trace128), trace128[1:], "abc"})
	spanIDs   = rapid.SampledFrom([]string{spanID, zeroID, strings.ToUpper(spanID), spanID[1:], "1"})
	parents   = rapid.SampledFrom([]string{parentID, zeroID, "0", "-", "", parentID + "0"})
	decisions = rapid.SampledFrom([]string{"0", "1", "d", "", "true", "False", "2", "D"})
	flags     = rapid.SampledFrom([]string{"0", "1", "2", "3", "00", "01", "02", "03", "0f", "f", "ff", "10", "001", "", "x"})
	versions  = rapid.SampledFrom([]string{"00", "01", "cc", "ff", "0", "000"})
	members   = rapid.SampledFrom([]string{"a=1", "b= 2", "foo@bar=3", "foo@@bar=4", "0x=5", "", " ", "\t", "=", "a", "a=", "A=1", strings.Repeat("k", 257) + "=1", "c= ", "_=1"})
)

func TestNearValid(t *testing.T) {
	for name, draw := range map[string]func(*rapid.T) (Codec, []string){
		"b3 single": func(t *rapid.T) (Codec, []string) {
			n := rapid.IntRange(2, 4).Draw(t, "fields")
			return B3Single, []string{"b3", nearValid(t, "field", "-", []*rapid.Generator[string]{traceIDs, spanIDs, decisions, parents}[:n]...)}
		},
		"b3 multi": func(t *rapid.T) (Codec, []string) {
			return B3Multi, []string{
				"X-B3-TraceId", nearValid(t, "trace", "", traceIDs), "X-B3-SpanId", nearValid(t, "span", "", spanIDs),
				"X-B3-ParentSpanId", nearValid(t, "parent", "", parents), "X-B3-Sampled", decisions.Draw(t, "sampled"),
				"X-B3-Flags", flags.Draw(t, "flags"),
			}
		},
		"traceparent": func(t *rapid.T) (Codec, []string) {
			return TraceContext, []string{"traceparent", nearValid(t, "field", "-", versions, traceIDs, spanIDs, flags)}
		},
		"tracestate": func(t *rapid.T) (Codec, []string) {
			return TraceContext, []string{"traceparent", "00-" + ids128 + "-01", "tracestate", nearValid(t, "member", ",", members, members, members)}
		},
		"uber-trace-id": func(t *rapid.T) (Codec, []string) {
			return Jaeger, []string{"uber-trace-id", nearValid(t, "field", ":", traceIDs, spanIDs, parents, flags)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				codec, pairs := draw(rt)
				check(rt, codec, h(pairs...))
			})
		})
	}
}
