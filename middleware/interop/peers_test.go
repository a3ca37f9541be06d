package interop

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/opentracing/opentracing-go"
	"github.com/openzipkin/zipkin-go"
	zipkinhttp "github.com/openzipkin/zipkin-go/middleware/http"
	zipkinb3 "github.com/openzipkin/zipkin-go/propagation/b3"
	zipkinrecorder "github.com/openzipkin/zipkin-go/reporter/recorder"
	jaegerclient "github.com/uber/jaeger-client-go"
	jaegerb3 "github.com/uber/jaeger-client-go/zipkin"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/contrib/propagators/b3"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
	"github.com/canarycontroller/canary-controller/middleware/tracing"
)

// span is what a test wants to know of anybody's span.
type span struct {
	trace, id, parent string // 16 or 32 hex digits, 16, 16
	sampled           bool
}

// peer is a service instrumented with some library: as the first hop, which
// begins the trace, and as the last, which must join it.
type peer interface {
	// first asks url within a new span that is sampled or not, and returns
	// the client span.
	first(t *testing.T, url string, sampled bool) span
	// last wraps a handler; spans arrive on the channel. Left alone it would
	// decide the opposite of sampled.
	last(t *testing.T, sampled bool, spans chan<- span) http.Handler
}

func idOf(sc trace.SpanContext) string { return sc.SpanID().String() }

func drain(t *testing.T, resp *http.Response, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if cerr := resp.Body.Close(); err != nil || cerr != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v %v", resp.Status, err, cerr)
	}
}

func otelSampler(sampled bool) sdktrace.Sampler {
	if sampled {
		return sdktrace.AlwaysSample()
	}
	return sdktrace.NeverSample()
}

// otelPeer is contrib's otelhttp with contrib's b3.
type otelPeer struct{ encoding b3.Encoding }

func (p otelPeer) first(t *testing.T, url string, sampled bool) span {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(otelSampler(sampled)))
	ctx, root := tp.Tracer("peer").Start(t.Context(), "root")
	defer root.End()
	var sent trace.SpanContext
	transport := otelhttp.NewTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = trace.SpanContextFromContext(r.Context())
		return http.DefaultTransport.RoundTrip(r)
	}), otelhttp.WithTracerProvider(tp), otelhttp.WithPropagators(b3.New(b3.WithInjectEncoding(p.encoding))))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	drain(t, resp, err)
	return span{trace: sent.TraceID().String(), id: idOf(sent), sampled: sent.IsSampled()}
}

func (p otelPeer) last(_ *testing.T, sampled bool, spans chan<- span) http.Handler {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(otelSampler(!sampled))))
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s := trace.SpanFromContext(r.Context())
		out := span{trace: s.SpanContext().TraceID().String(), id: idOf(s.SpanContext()), sampled: s.SpanContext().IsSampled()}
		if ro, ok := s.(sdktrace.ReadOnlySpan); ok {
			out.parent = idOf(ro.Parent())
		}
		spans <- out
	})
	return otelhttp.NewHandler(inner, "peer", otelhttp.WithTracerProvider(tp), otelhttp.WithPropagators(b3.New(b3.WithInjectEncoding(p.encoding))))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// zipkinPeer is zipkin-go's own middleware, without shared span ids, as B3
// peers of other kinds have it.
type zipkinPeer struct{ bits128 bool }

func (p zipkinPeer) tracer(t *testing.T, sampled bool) *zipkin.Tracer {
	t.Helper()
	opts := []zipkin.TracerOption{zipkin.WithSharedSpans(false), zipkin.WithTraceID128Bit(p.bits128), zipkin.WithSampler(zipkin.NewModuloSampler(1))}
	if !sampled {
		opts = append(opts, zipkin.WithSampler(zipkin.NeverSample))
	}
	reporter := zipkinrecorder.NewReporter()
	t.Cleanup(func() { _ = reporter.Close() })
	tracer, err := zipkin.NewTracer(reporter, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func zipkinSpan(s zipkin.Span) span {
	c := s.Context()
	out := span{trace: c.TraceID.String(), id: c.ID.String(), sampled: c.Sampled != nil && *c.Sampled}
	if c.ParentID != nil {
		out.parent = c.ParentID.String()
	}
	return out
}

func (p zipkinPeer) first(t *testing.T, url string, sampled bool) span {
	tracer := p.tracer(t, sampled)
	root := tracer.StartSpan("root")
	defer root.Finish()
	var sent span
	transport, err := zipkinhttp.NewTransport(tracer, zipkinhttp.RoundTripper(roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = zipkinSpan(zipkin.SpanFromContext(r.Context()))
		// The context has the parent; the transport's own span is in the headers.
		c, err := zipkinb3.ParseHeaders(r.Header.Get(zipkinb3.TraceID), r.Header.Get(zipkinb3.SpanID), "", r.Header.Get(zipkinb3.Sampled), "")
		if err != nil {
			return nil, err
		}
		sent.id, sent.sampled = c.ID.String(), c.Sampled != nil && *c.Sampled
		return http.DefaultTransport.RoundTrip(r)
	})))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(zipkin.NewContext(t.Context(), root), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	drain(t, resp, err)
	return sent
}

func (p zipkinPeer) last(t *testing.T, sampled bool, spans chan<- span) http.Handler {
	return zipkinhttp.NewServerMiddleware(p.tracer(t, !sampled))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		spans <- zipkinSpan(zipkin.SpanFromContext(r.Context()))
	}))
}

// jaegerPeer is jaeger-client-go's own tracer, with its uber-trace-id or its
// B3 propagator.
type jaegerPeer struct{ b3 bool }

func (p jaegerPeer) tracer(t *testing.T, sampled bool) opentracing.Tracer {
	t.Helper()
	opts := []jaegerclient.TracerOption{jaegerclient.TracerOptions.Gen128Bit(true)}
	if p.b3 {
		propagator := jaegerb3.NewZipkinB3HTTPHeaderPropagator()
		opts = append(opts, jaegerclient.TracerOptions.Injector(opentracing.HTTPHeaders, propagator), jaegerclient.TracerOptions.Extractor(opentracing.HTTPHeaders, propagator))
	}
	tracer, closer := jaegerclient.NewTracer("peer", jaegerclient.NewConstSampler(sampled), jaegerclient.NewNullReporter(), opts...)
	t.Cleanup(func() { _ = closer.Close() })
	return tracer
}

func jaegerSpan(s opentracing.Span) span {
	c := s.Context().(jaegerclient.SpanContext)
	return span{
		trace: fmt.Sprintf("%016x%016x", c.TraceID().High, c.TraceID().Low), id: fmt.Sprintf("%016x", uint64(c.SpanID())),
		parent: fmt.Sprintf("%016x", uint64(c.ParentID())), sampled: c.IsSampled(),
	}
}

func (p jaegerPeer) first(t *testing.T, url string, sampled bool) span {
	tracer := p.tracer(t, sampled)
	s := tracer.StartSpan("client")
	defer s.Finish()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Inject(s.Context(), opentracing.HTTPHeaders, opentracing.HTTPHeadersCarrier(req.Header)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	drain(t, resp, err)
	return jaegerSpan(s)
}

func (p jaegerPeer) last(t *testing.T, sampled bool, spans chan<- span) http.Handler {
	tracer := p.tracer(t, !sampled)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parent, err := tracer.Extract(opentracing.HTTPHeaders, opentracing.HTTPHeadersCarrier(r.Header))
		if err != nil {
			t.Errorf("jaeger-client-go found no trace in %v: %v", r.Header, err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s := tracer.StartSpan("server", opentracing.ChildOf(parent))
		defer s.Finish()
		spans <- jaegerSpan(s)
	})
}

// ours is a hop of this middleware between two peers; its root sampler would
// decide the opposite.
func ours(t *testing.T, sampled bool, next string, opts ...propagation.Option) (*httptest.Server, *tracetest.SpanRecorder, func() span) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(tracing.ParentBased(otelSampler(!sampled))), sdktrace.WithSpanProcessor(recorder))
	var (
		mu   sync.Mutex
		seen span
	)
	client := &http.Client{Transport: middleware.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		state := propagation.Extract(r.Header, nil)
		if !state.HasIDs() { // only uber-trace-id was configured
			t.Errorf("we sent no trace: %v", r.Header)
		}
		mu.Lock()
		seen = span{trace: state.SpanContext().TraceID().String(), id: state.SpanID.String(), parent: state.ParentID.String(), sampled: state.Sampled()}
		mu.Unlock()
		return http.DefaultTransport.RoundTrip(r)
	}), middleware.WithTracerProvider(tp), middleware.WithPropagation(opts...))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hop", func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, next, http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
		_ = resp.Body.Close()
	})
	server := httptest.NewServer(middleware.Handler(mux, middleware.WithTracerProvider(tp), middleware.WithPropagation(opts...)))
	t.Cleanup(server.Close)
	return server, recorder, func() span { mu.Lock(); defer mu.Unlock(); return seen }
}

// A peer, then our hop, then the same kind of peer: one trace, each span below
// the one before, and the first hop's sampling decision everywhere.
func TestPeersBeforeAndAfterOurs(t *testing.T) {
	uber := propagation.WithInject(propagation.B3Multi, propagation.TraceContext, propagation.Jaeger)
	peers := []struct {
		name string
		peer peer
		opts []propagation.Option
	}{
		{"otelhttp with b3 multi", otelPeer{b3.B3MultipleHeader}, nil},
		{"otelhttp with b3 single", otelPeer{b3.B3SingleHeader}, nil},
		{"zipkin-go 64 bits", zipkinPeer{false}, nil},
		{"zipkin-go 128 bits", zipkinPeer{true}, nil},
		{"jaeger-client-go with uber-trace-id", jaegerPeer{false}, []propagation.Option{uber}},
		{"jaeger-client-go with b3", jaegerPeer{true}, nil},
	}
	for _, before := range peers {
		for _, after := range peers {
			for _, sampled := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s to %s sampled %v", before.name, after.name, sampled), func(t *testing.T) {
					spans := make(chan span, 1)
					end := httptest.NewServer(after.peer.last(t, sampled, spans))
					defer end.Close()
					opts := append(append([]propagation.Option{}, before.opts...), after.opts...)
					hop, recorder, sent := ours(t, sampled, end.URL, opts...)
					began := before.peer.first(t, hop.URL+"/hop", sampled)
					check(t, began, sent(), recv(t, spans), recorder, sampled)
				})
			}
		}
	}
}

func recv(t *testing.T, spans <-chan span) span {
	t.Helper()
	select {
	case s := <-spans:
		return s
	case <-time.After(5 * time.Second):
		t.Fatal("the last hop was not asked")
		return span{}
	}
}

// pad makes ids of 64 and 128 bits comparable.
func pad(trace string) string { return fmt.Sprintf("%032s", trace) }

func check(t *testing.T, began, sent, ended span, recorder *tracetest.SpanRecorder, sampled bool) {
	t.Helper()
	for who, s := range map[string]span{"the first hop": began, "our hop": sent, "the last hop": ended} {
		if s.sampled != sampled {
			t.Errorf("%s decided sampled %v, want %v", who, s.sampled, sampled)
		}
		if pad(s.trace) != pad(began.trace) {
			t.Errorf("%s is in trace %s, want %s", who, s.trace, began.trace)
		}
	}
	// otelhttp's unsampled spans do not tell their parent.
	if ended.parent != sent.id && (sampled || ended.parent != "") {
		t.Errorf("the last hop's parent is %q, want our client span %s", ended.parent, sent.id)
	}
	if !sampled {
		if n := len(recorder.Ended()); n != 0 {
			t.Errorf("we recorded %d spans of an unsampled trace", n)
		}
		return
	}
	byKind := map[trace.SpanKind]sdktrace.ReadOnlySpan{}
	for deadline := time.Now().Add(5 * time.Second); len(byKind) < 2; time.Sleep(time.Millisecond) {
		for _, s := range recorder.Ended() {
			byKind[s.SpanKind()] = s
		}
		if time.Now().After(deadline) {
			t.Fatalf("our hop recorded %d of 2 spans", len(byKind))
		}
	}
	server, client := byKind[trace.SpanKindServer], byKind[trace.SpanKindClient]
	if got := idOf(server.Parent()); got != began.id {
		t.Errorf("our server span's parent is %s, want the first hop's %s", got, began.id)
	}
	if idOf(client.Parent()) != idOf(server.SpanContext()) || idOf(client.SpanContext()) != sent.id {
		t.Errorf("our client span %s below %s was sent as %s; the server span is %s", idOf(client.SpanContext()), idOf(client.Parent()), sent.id, idOf(server.SpanContext()))
	}
}
