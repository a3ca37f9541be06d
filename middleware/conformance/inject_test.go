package conformance

import (
	"context"
	"net/http"
	"testing"

	zipkinmodel "github.com/openzipkin/zipkin-go/model"
	zipkinb3 "github.com/openzipkin/zipkin-go/propagation/b3"
	jaegerclient "github.com/uber/jaeger-client-go"
	contribb3 "go.opentelemetry.io/contrib/propagators/b3"
	contribjaeger "go.opentelemetry.io/contrib/propagators/jaeger"
	otel "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// states draws a context in any form it can take on the wire.
func states(t *rapid.T) propagation.State {
	s := propagation.State{
		Sampling: rapid.SampledFrom([]propagation.Sampling{propagation.Defer, propagation.Deny, propagation.Accept, propagation.Debug}).Draw(t, "sampling"),
		Short:    rapid.Bool().Draw(t, "short"),
		Random:   rapid.Bool().Draw(t, "random"),
	}
	id := func(dst []byte) {
		for i := range dst {
			dst[i] = rapid.Byte().Draw(t, "byte")
		}
		dst[len(dst)-1] |= 1
	}
	if s.Short {
		id(s.TraceID[8:])
	} else {
		id(s.TraceID[:])
	}
	id(s.SpanID[:])
	if rapid.Bool().Draw(t, "parent") {
		id(s.ParentID[:])
	}
	if rapid.Bool().Draw(t, "state") {
		s.TraceState = "foo=1,bar=2"
	}
	return s
}

// What we write, every peer reads as we meant it, as far as the format can say
// it.
func TestPeersReadWhatWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := states(t)
		for _, tc := range []struct {
			format propagation.Format
			peer   Peer
			defers bool // the format has a deferred decision
			debug  bool // and debug
			parent bool
		}{
			{propagation.B3Single, ContribB3, true, true, true},
			{propagation.B3Single, Zipkin, true, true, s.Sampling != propagation.Defer},
			{propagation.B3Multi, ContribB3, true, true, true},
			{propagation.B3Multi, Zipkin, true, true, true},
			{propagation.TraceContext, OTelTraceContext, false, false, true},
			{propagation.Jaeger, ContribJaeger, false, true, true},
			{propagation.Jaeger, JaegerClient, false, true, true},
		} {
			cfg, err := propagation.NewConfig(propagation.WithInject(tc.format))
			if err != nil {
				t.Fatal(err)
			}
			out := http.Header{}
			propagation.Inject(s, out, cfg)
			want := fromState(s)
			if !tc.defers && want.Decision == "defer" {
				want.Decision = "deny"
			}
			if !tc.debug && want.Decision == "debug" {
				want.Decision = "accept"
			}
			if !tc.parent {
				want.ParentID = ""
			}
			if diff := Compare(want, tc.peer.Read(out), tc.peer.Keeps); len(diff) > 0 {
				t.Errorf("%v, %s: %v differ on %q", tc.format, tc.peer.Name, diff, out)
			}
		}
	})
}

// What peers write, we read as they meant it.
func TestWeReadWhatPeersWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := states(t)
		sampled := s.Sampled()
		sc := s.SpanContext().WithRemote(true)
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), sc)
		plain := "deny"
		if sampled {
			plain = "accept"
		}
		for _, tc := range []struct {
			name  string
			write func(http.Header)
			read  func(http.Header) Reading
			want  func(*Reading)
		}{
			{"contrib/b3 single", func(h http.Header) {
				contribb3.New(contribb3.WithInjectEncoding(contribb3.B3SingleHeader)).Inject(ctx, otel.HeaderCarrier(h))
			}, oursSingle, func(r *Reading) { r.ParentID, r.Decision = "", plain }},
			{"contrib/b3 multi", func(h http.Header) {
				contribb3.New(contribb3.WithInjectEncoding(contribb3.B3MultipleHeader)).Inject(ctx, otel.HeaderCarrier(h))
			}, oursMulti, func(r *Reading) { r.ParentID, r.Decision = "", plain }},
			{"otel/tracecontext", func(h http.Header) {
				otel.TraceContext{}.Inject(ctx, otel.HeaderCarrier(h))
			}, oursW3C, func(r *Reading) { r.ParentID, r.Decision, r.TraceState, r.Random = "", plain, s.TraceState, s.Random }},
			{"contrib/jaeger", func(h http.Header) {
				contribjaeger.Jaeger{}.Inject(ctx, otel.HeaderCarrier(h))
			}, oursJaeger, func(r *Reading) { r.ParentID, r.Decision = "", plain }},
			{"zipkin-go multi", func(h http.Header) {
				if err := zipkinb3.InjectHTTP(&http.Request{Header: h})(zipkinContext(s)); err != nil {
					t.Fatal(err)
				}
			}, oursMulti, func(*Reading) {}},
			{"zipkin-go single", func(h http.Header) {
				if err := zipkinb3.InjectHTTP(&http.Request{Header: h}, zipkinb3.WithSingleHeaderOnly())(zipkinContext(s)); err != nil {
					t.Fatal(err)
				}
			}, oursSingle, func(*Reading) {}},
			{"jaeger-client-go", func(h http.Header) { h.Set("uber-trace-id", jaegerContext(s).String()) }, oursJaeger, func(r *Reading) {
				if r.Decision == "defer" {
					r.Decision = "deny"
				}
			}},
		} {
			in := http.Header{}
			tc.write(in)
			want := fromState(s)
			want.TraceState, want.Random = "", false
			tc.want(&want)
			if got := tc.read(in); got != want {
				t.Errorf("%s: got  %+v\nwant %+v\nfrom %q", tc.name, got, want, in)
			}
		}
	})
}

func uint64Of(b []byte) (n uint64) {
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

func zipkinContext(s propagation.State) zipkinmodel.SpanContext {
	sc := zipkinmodel.SpanContext{
		TraceID: zipkinmodel.TraceID{High: uint64Of(s.TraceID[:8]), Low: uint64Of(s.TraceID[8:])},
		ID:      zipkinmodel.ID(uint64Of(s.SpanID[:])),
		Debug:   s.Sampling == propagation.Debug,
	}
	if s.ParentID.IsValid() {
		p := zipkinmodel.ID(uint64Of(s.ParentID[:]))
		sc.ParentID = &p
	}
	if s.Sampling == propagation.Deny || s.Sampling == propagation.Accept {
		sampled := s.Sampled()
		sc.Sampled = &sampled
	}
	return sc
}

func jaegerContext(s propagation.State) jaegerclient.SpanContext {
	id := jaegerclient.TraceID{High: uint64Of(s.TraceID[:8]), Low: uint64Of(s.TraceID[8:])}
	sc := jaegerclient.NewSpanContext(id, jaegerclient.SpanID(uint64Of(s.SpanID[:])), jaegerclient.SpanID(uint64Of(s.ParentID[:])), s.Sampled(), nil)
	if s.Sampling == propagation.Debug {
		// Debug can be had by parsing only.
		parsed, err := jaegerclient.ContextFromString(sc.String()[:len(sc.String())-1] + "3")
		if err != nil {
			panic(err)
		}
		return parsed
	}
	return sc
}
