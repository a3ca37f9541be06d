package bench

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/opentracing-contrib/go-stdlib/nethttp"
	"github.com/opentracing/opentracing-go"
	"github.com/openzipkin/zipkin-go"
	zipkinhttp "github.com/openzipkin/zipkin-go/middleware/http"
	"github.com/openzipkin/zipkin-go/propagation/b3"
	"github.com/openzipkin/zipkin-go/reporter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/uber/jaeger-client-go"
	jaegerzipkin "github.com/uber/jaeger-client-go/zipkin"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	otelb3 "go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/canarycontroller/canary-controller/middleware"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// dropping is the exporter of all OpenTelemetry contestants.
type dropping struct{}

func (dropping) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropping) Shutdown(context.Context) error                             { return nil }

func provider(tb testing.TB, sampled bool) *sdktrace.TracerProvider {
	sampler := sdktrace.NeverSample()
	if sampled {
		sampler = sdktrace.AlwaysSample()
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(dropping{}))
	tb.Cleanup(func() {
		if err := tp.Shutdown(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return tp
}

func ours(tb testing.TB, sampled, metrics bool, more ...middleware.Option) []middleware.Option {
	opts := []middleware.Option{middleware.WithTracerProvider(provider(tb, sampled))}
	if metrics {
		opts = append(opts, middleware.WithRegisterer(prometheus.NewRegistry()))
	}
	return append(opts, more...)
}

func server(opts []middleware.Option) []middleware.HandlerOption {
	var out []middleware.HandlerOption
	for _, o := range opts {
		out = append(out, o)
	}
	return out
}

func client(opts []middleware.Option) []middleware.TransportOption {
	var out []middleware.TransportOption
	for _, o := range opts {
		out = append(out, o)
	}
	return out
}

func otelOptions(tb testing.TB, sampled, metrics bool) []otelhttp.Option {
	var mp metric.MeterProvider = metricnoop.NewMeterProvider()
	if metrics {
		mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	}
	return []otelhttp.Option{
		otelhttp.WithTracerProvider(provider(tb, sampled)),
		otelhttp.WithMeterProvider(mp),
		otelhttp.WithPropagators(otelb3.New(otelb3.WithInjectEncoding(otelb3.B3MultipleHeader))),
	}
}

func zipkinTracer(tb testing.TB) *zipkin.Tracer {
	t, err := zipkin.NewTracer(reporter.NewNoopReporter(), zipkin.WithSampler(zipkin.AlwaysSample))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func jaegerTracer(tb testing.TB) opentracing.Tracer {
	b3 := jaegerzipkin.NewZipkinB3HTTPHeaderPropagator()
	t, closer := jaeger.NewTracer("bench", jaeger.NewConstSampler(true), jaeger.NewNullReporter(),
		jaeger.TracerOptions.Extractor(opentracing.HTTPHeaders, b3),
		jaeger.TracerOptions.Injector(opentracing.HTTPHeaders, b3))
	tb.Cleanup(func() {
		if err := closer.Close(); err != nil {
			tb.Error(err)
		}
	})
	return t
}

// contestant is a server or, with ServeHTTP's sense, a client under test.
type contestant struct {
	name string
	wrap func(tb testing.TB, next http.Handler) http.Handler
}

var servers = []contestant{
	{"bare", func(_ testing.TB, next http.Handler) http.Handler { return next }},
	{"ours/sampled+metrics", func(tb testing.TB, next http.Handler) http.Handler {
		return middleware.Handler(next, server(ours(tb, true, true))...)
	}},
	{"ours/sampled+metrics+recommended", func(tb testing.TB, next http.Handler) http.Handler {
		return middleware.Handler(next, server(ours(tb, true, true, middleware.WithRecommendedAttributes()))...)
	}},
	{"ours/sampled", func(tb testing.TB, next http.Handler) http.Handler {
		return middleware.Handler(next, server(ours(tb, true, false))...)
	}},
	{"ours/unsampled+metrics", func(tb testing.TB, next http.Handler) http.Handler {
		return middleware.Handler(next, server(ours(tb, false, true))...)
	}},
	{"ours/forward-only", func(tb testing.TB, next http.Handler) http.Handler {
		return middleware.Handler(next, middleware.WithForwardOnly())
	}},
	{"ours/forward-only+metrics", func(tb testing.TB, next http.Handler) http.Handler {
		return middleware.Handler(next, middleware.WithForwardOnly(), middleware.WithRegisterer(prometheus.NewRegistry()))
	}},
	{"otelhttp/sampled+metrics", func(tb testing.TB, next http.Handler) http.Handler {
		return otelhttp.NewHandler(next, "op", otelOptions(tb, true, true)...)
	}},
	{"otelhttp/sampled", func(tb testing.TB, next http.Handler) http.Handler {
		return otelhttp.NewHandler(next, "op", otelOptions(tb, true, false)...)
	}},
	{"otelhttp/unsampled+metrics", func(tb testing.TB, next http.Handler) http.Handler {
		return otelhttp.NewHandler(next, "op", otelOptions(tb, false, true)...)
	}},
	{"zipkin-go/sampled", func(tb testing.TB, next http.Handler) http.Handler {
		return zipkinhttp.NewServerMiddleware(zipkinTracer(tb))(next)
	}},
	{"nethttp+jaeger/sampled", func(tb testing.TB, next http.Handler) http.Handler {
		return nethttp.Middleware(jaegerTracer(tb), next)
	}},
	{"promhttp/metrics", func(_ testing.TB, next http.Handler) http.Handler {
		inFlight := prometheus.NewGauge(prometheus.GaugeOpts{Name: "in_flight", Help: "x"})
		total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "x"}, []string{"code", "method"})
		duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "duration_seconds", Help: "x"}, []string{"code", "method"})
		return promhttp.InstrumentHandlerInFlight(inFlight,
			promhttp.InstrumentHandlerCounter(total, promhttp.InstrumentHandlerDuration(duration, next)))
	}},
}

var clients = []struct {
	name string
	wrap func(tb testing.TB, base http.RoundTripper) http.RoundTripper
}{
	{"bare", func(_ testing.TB, base http.RoundTripper) http.RoundTripper { return base }},
	{"ours/sampled+metrics", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		return middleware.Transport(base, client(ours(tb, true, true, middleware.WithPropagation(propagation.WithInject(propagation.B3Multi))))...)
	}},
	{"ours/sampled+metrics,b3+w3c", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		return middleware.Transport(base, client(ours(tb, true, true))...)
	}},
	{"ours/unsampled+metrics", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		return middleware.Transport(base, client(ours(tb, false, true, middleware.WithPropagation(propagation.WithInject(propagation.B3Multi))))...)
	}},
	{"ours/forward-only", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		return middleware.Transport(base, middleware.WithForwardOnly(), middleware.WithPropagation(propagation.WithInject(propagation.B3Multi)))
	}},
	{"otelhttp/sampled+metrics", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(base, otelOptions(tb, true, true)...)
	}},
	{"otelhttp/unsampled+metrics", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(base, otelOptions(tb, false, true)...)
	}},
	{"zipkin-go/sampled", func(tb testing.TB, base http.RoundTripper) http.RoundTripper {
		rt, err := zipkinhttp.NewTransport(zipkinTracer(tb), zipkinhttp.RoundTripper(base), zipkinhttp.TransportErrHandler(nil))
		if err != nil {
			tb.Fatal(err)
		}
		return rt
	}},
}

// b3Request has what a request within a mesh has.
func b3Request(tb testing.TB) *http.Request {
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://reviews:9080/reviews/17", nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.6:41234"
	r.Header.Set(b3.TraceID, "463ac35c9f6413ad48485a3953bb6124")
	r.Header.Set(b3.SpanID, "a2fb4a1d1a96d312")
	r.Header.Set(b3.ParentSpanID, "0020000000000001")
	r.Header.Set(b3.Sampled, "1")
	r.Header.Set("X-Request-Id", "5b1f2c0e-7c57-4d8e-9a53-2f3f3a1e8a11")
	r.Header.Set("User-Agent", "productpage/1.2")
	return r
}

// discard is an http.ResponseWriter that records nothing.
type discard struct{ h http.Header }

func (d discard) Header() http.Header             { return d.h }
func (discard) Write(p []byte) (int, error)       { return len(p), nil }
func (discard) WriteHeader(int)                   {}
func (discard) Flush()                            {}
func (discard) WriteString(s string) (int, error) { return len(s), nil }

// stub answers without a network and without allocating. The body is not
// http.NoBody, which some treat specially, so spans end when it is read.
type stub struct{ resp *http.Response }

func newStub() stub {
	return stub{&http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
	}}
}

func (s stub) RoundTrip(r *http.Request) (*http.Response, error) {
	s.resp.Body, s.resp.Request = emptyBody{}, r
	return s.resp, nil
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }
