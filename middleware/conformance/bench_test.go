package conformance

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	zipkinb3 "github.com/openzipkin/zipkin-go/propagation/b3"
	contribb3 "go.opentelemetry.io/contrib/propagators/b3"
	contribjaeger "go.opentelemetry.io/contrib/propagators/jaeger"
	otel "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// codecOnly reads and writes one format and nothing else, like the peers.
func codecOnly(b testing.TB, f propagation.Format) *propagation.Config {
	cfg, err := propagation.NewConfig(propagation.WithExtract(f), propagation.WithInject(f),
		propagation.WithForwardList(), propagation.WithoutRequestID())
	if err != nil {
		b.Fatal(err)
	}
	return cfg
}

var (
	multiHeaders = h("X-B3-TraceId", trace128, "X-B3-SpanId", spanID, "X-B3-ParentSpanId", parentID, "X-B3-Sampled", "1")
	w3cHeaders   = h("traceparent", "00-"+ids128+"-01")
	stateHeaders = h("traceparent", "00-"+ids128+"-01", "tracestate", "foo=1,bar=2")

	multiEncoding = contribb3.New(contribb3.WithInjectEncoding(contribb3.B3MultipleHeader))
	composite     = otel.NewCompositeTextMapPropagator(
		contribjaeger.Jaeger{}, otel.TraceContext{}, contribb3.New(contribb3.WithInjectEncoding(contribb3.B3MultipleHeader|contribb3.B3SingleHeader)))
)

// BenchmarkExtract compares codecs on the same headers. Ours returns a State;
// the peers put theirs into a context, so "state in context" does that too.
func BenchmarkExtract(b *testing.B) {
	all, err := propagation.NewConfig(propagation.WithForwardList(), propagation.WithoutRequestID())
	if err != nil {
		b.Fatal(err)
	}
	for _, bc := range []struct {
		name string
		in   http.Header
		cfg  *propagation.Config
		peer otel.TextMapPropagator
		zip  bool
	}{
		{"b3 multi", multiHeaders, codecOnly(b, propagation.B3Multi), multiEncoding, true},
		{"b3 single", h("b3", ids128+"-1-"+parentID), codecOnly(b, propagation.B3Single), contribb3.New(), true},
		{"traceparent", w3cHeaders, codecOnly(b, propagation.TraceContext), otel.TraceContext{}, false},
		{"traceparent and tracestate", stateHeaders, codecOnly(b, propagation.TraceContext), otel.TraceContext{}, false},
		{"uber-trace-id", h("uber-trace-id", trace128+":"+spanID+":0:1"), codecOnly(b, propagation.Jaeger), contribjaeger.Jaeger{}, false},
		{"all formats, b3 multi sent", multiHeaders, all, composite, false},
		{"all formats, nothing sent", h("Accept", "*/*"), all, composite, false},
	} {
		b.Run(bc.name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = propagation.ExtractWith(bc.in, bc.cfg, propagation.TrustEverything)
			}
		})
		b.Run(bc.name+"/ours, state in context", func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			for b.Loop() {
				contextSink = propagation.ContextWithState(ctx, propagation.ExtractWith(bc.in, bc.cfg, propagation.TrustEverything))
			}
		})
		b.Run(bc.name+"/otel", func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			for b.Loop() {
				contextSink = bc.peer.Extract(ctx, otel.HeaderCarrier(bc.in))
			}
		})
		if !bc.zip {
			continue
		}
		b.Run(bc.name+"/zipkin-go", func(b *testing.B) {
			b.ReportAllocs()
			r := &http.Request{Header: bc.in}
			for b.Loop() {
				if _, err := zipkinb3.ExtractHTTP(r)(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInject compares codecs writing the same context into headers that
// are reused.
func BenchmarkInject(b *testing.B) {
	state := propagation.ExtractWith(multiHeaders, nil, propagation.TrustEverything).WithoutForwarded()
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), state.SpanContext())
	all, err := propagation.NewConfig(propagation.WithInject(propagation.B3Single, propagation.B3Multi, propagation.TraceContext, propagation.Jaeger))
	if err != nil {
		b.Fatal(err)
	}
	for _, bc := range []struct {
		name string
		cfg  *propagation.Config
		peer otel.TextMapPropagator
	}{
		{"b3 multi", codecOnly(b, propagation.B3Multi), multiEncoding},
		{"b3 single", codecOnly(b, propagation.B3Single), contribb3.New()},
		{"traceparent", codecOnly(b, propagation.TraceContext), otel.TraceContext{}},
		{"uber-trace-id", codecOnly(b, propagation.Jaeger), contribjaeger.Jaeger{}},
		{"all formats", all, composite},
	} {
		b.Run(bc.name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			out := http.Header{}
			for b.Loop() {
				propagation.Inject(state, out, bc.cfg)
			}
		})
		b.Run(bc.name+"/otel", func(b *testing.B) {
			b.ReportAllocs()
			out := http.Header{}
			for b.Loop() {
				bc.peer.Inject(ctx, otel.HeaderCarrier(out))
			}
		})
	}
}

// BenchmarkForwardOnly is the server side of forward-only mode: a request with
// B3 headers and five others of the default allowlist.
func BenchmarkForwardOnly(b *testing.B) {
	in := multiHeaders.Clone()
	for _, name := range []string{"User-Agent", "X-Request-Id", "X-Ot-Span-Context", "X-Cloud-Trace-Context", "Grpc-Trace-Bin"} {
		in.Set(name, "value-of-20-characters")
	}
	without := in.Clone()
	without.Del("X-Request-Id")
	cfg, err := propagation.NewConfig(propagation.WithPassthrough())
	if err != nil {
		b.Fatal(err)
	}
	w := &nullWriter{header: http.Header{}}
	for name, in := range map[string]http.Header{"request id sent": in, "request id made": without} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header = in
		b.Run("propagation/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := propagation.ExtractWith(in, cfg, propagation.TrustEverything)
				contextSink = propagation.ContextWithState(context.Background(), s)
			}
		})
		b.Run("middleware.Handler/"+name, func(b *testing.B) {
			b.ReportAllocs()
			handler := middleware.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), middleware.WithForwardOnly())
			// The handler sets the request id it made on the request, which
			// would be there the next time round.
			id, sent := request.Header["X-Request-Id"]
			for b.Loop() {
				if !sent {
					delete(request.Header, "X-Request-Id")
				} else {
					request.Header["X-Request-Id"] = id
				}
				clear(w.header)
				handler.ServeHTTP(w, request)
			}
		})
	}
}

type nullWriter struct{ header http.Header }

func (w *nullWriter) Header() http.Header         { return w.header }
func (w *nullWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *nullWriter) WriteHeader(int)             {}

var (
	sink        propagation.State
	contextSink context.Context
)
