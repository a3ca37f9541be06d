//lint:file-ignore SA1019 The thrift of jaeger-client-go is frozen, and its other constructor needs a configuration it cannot share.

package tracing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/uber/jaeger-client-go/thrift"
	"github.com/uber/jaeger-client-go/thrift-gen/agent"
	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"github.com/uber/jaeger-client-go/thrift-gen/zipkincore"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/canarycontroller/canary-controller/middleware/tracing/jaegerudp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func setup(t *testing.T, opts ...Option) *Provider {
	t.Helper()
	p, err := Setup(t.Context(), append([]Option{WithoutGlobals(), WithLogger(quiet())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutdown(t, p) })
	return p
}

func shutdown(t *testing.T, p *Provider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// collect is an OTLP collector that keeps what it received.
type collect struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	got  []*collector.ExportTraceServiceRequest
	path string
}

func (c *collect) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, r)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *collect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	req := &collector.ExportTraceServiceRequest{}
	if err = errors.Join(err, proto.Unmarshal(body, req)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.path = r.URL.Path
	_, _ = c.Export(r.Context(), req)
}

// one returns the service and name of the only span received.
func (c *collect) one(t *testing.T) (service, version, name string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) != 1 {
		t.Fatalf("the collector got %d requests, want 1", len(c.got))
	}
	rs := c.got[0].ResourceSpans[0]
	for _, kv := range rs.Resource.Attributes {
		switch kv.Key {
		case "service.name":
			service = kv.Value.GetStringValue()
		case "service.version":
			version = kv.Value.GetStringValue()
		}
	}
	return service, version, rs.ScopeSpans[0].Spans[0].Name
}

func endSpan(t *testing.T, p *Provider, name string) trace.SpanContext {
	t.Helper()
	_, span := p.TracerProvider().Tracer("test").Start(t.Context(), name)
	span.End()
	return span.SpanContext()
}

func startGRPC(t *testing.T) (*collect, string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collect{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("gRPC collector: %v", err)
		}
	})
	return c, "http://" + lis.Addr().String()
}

func TestOTLP(t *testing.T) {
	grpcServer := func(t *testing.T) (*collect, string) { return startGRPC(t) }
	httpServer := func(t *testing.T) (*collect, string) {
		c := &collect{}
		server := httptest.NewServer(c)
		t.Cleanup(server.Close)
		return c, server.URL
	}
	for _, tc := range []struct {
		name   string
		server func(*testing.T) (*collect, string)
		opts   func(endpoint string) []Option
		env    func(endpoint string) map[string]string
	}{
		{"gRPC by option", grpcServer, func(e string) []Option { return []Option{WithOTLPGRPC(e)} }, nil},
		{"HTTP by option", httpServer, func(e string) []Option { return []Option{WithOTLPHTTP(e)} }, nil},
		{"gRPC by environment", grpcServer, nil, func(e string) map[string]string {
			return map[string]string{envOTLPProtocol: "grpc", envOTLPEndpoint: e}
		}},
		{"HTTP by environment", httpServer, nil, func(e string) map[string]string {
			return map[string]string{envOTLPEndpoint: e}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, endpoint := tc.server(t)
			opts := []Option{WithServiceVersion("v3")}
			if tc.opts != nil {
				opts = append(append(opts, WithServiceName("reviews")), tc.opts(endpoint)...)
				t.Setenv("OTEL_SERVICE_NAME", "the option wins")
			} else {
				t.Setenv("OTEL_SERVICE_NAME", "reviews")
				for k, v := range tc.env(endpoint) {
					t.Setenv(k, v)
				}
			}
			reg := prometheus.NewPedanticRegistry()
			p := setup(t, append(opts, WithRegisterer(reg))...)
			endSpan(t, p, "GET /reviews/{id}")
			shutdown(t, p) // flushes: the batch's timer is far off

			service, version, name := server.one(t)
			if service != "reviews" || version != "v3" || name != "GET /reviews/{id}" {
				t.Errorf("received service %q version %q span %q", service, version, name)
			}
			if strings.HasPrefix(tc.name, "HTTP") && server.path != "/v1/traces" {
				t.Errorf("posted to %q", server.path)
			}
			want := `
				# HELP tracing_spans_exported_total Spans handed to an exporter in batches, by whether the batch succeeded.
				# TYPE tracing_spans_exported_total counter
				tracing_spans_exported_total{exporter="otlp",result="failure"} 0
				tracing_spans_exported_total{exporter="otlp",result="success"} 1
				# HELP tracing_spans_queued_total Sampled spans handed to an exporter's queue. The queue drops spans when it is full: queued minus exported.
				# TYPE tracing_spans_queued_total counter
				tracing_spans_queued_total{exporter="otlp"} 1
				`
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
			if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
				t.Errorf("lint: %v %v", problems, err)
			}
		})
	}
}

type batchReceiver chan *jaeger.Batch

func (r batchReceiver) EmitBatch(_ context.Context, b *jaeger.Batch) error { r <- b; return nil }
func (r batchReceiver) EmitZipkinBatch(context.Context, []*zipkincore.Span) error {
	return errors.New("unexpected")
}

func TestJaegerAgentByEnvironment(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	host, port, _ := net.SplitHostPort(conn.LocalAddr().String())
	t.Setenv(envExporter, "jaeger")
	t.Setenv(envJaegerHost, host)
	t.Setenv(envJaegerPort, port)
	reg := prometheus.NewPedanticRegistry()
	p := setup(t, WithServiceName("ratings"), WithRegisterer(reg))
	want := endSpan(t, p, "Rate")
	shutdown(t, p)

	buf := make([]byte, 1<<16)
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, _, err := conn.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	trans := thrift.NewTMemoryBuffer()
	trans.Write(buf[:n])
	compact := thrift.NewTCompactProtocolFactory().GetProtocol(trans)
	got := make(batchReceiver, 1)
	if _, err := agent.NewAgentProcessor(got).Process(t.Context(), compact, compact); err != nil {
		t.Fatal(err)
	}
	b := <-got
	if b.Process.ServiceName != "ratings" || len(b.Spans) != 1 || b.Spans[0].OperationName != "Rate" {
		t.Errorf("received %+v", b)
	}
	id := want.SpanID()
	if got := uint64(b.Spans[0].SpanId); got != uint64(id[0])<<56|uint64(id[1])<<48|uint64(id[2])<<40|uint64(id[3])<<32|uint64(id[4])<<24|uint64(id[5])<<16|uint64(id[6])<<8|uint64(id[7]) {
		t.Errorf("span id %x, want %s", got, id)
	}
	if n, err := testutil.GatherAndCount(reg, "jaeger_agent_exporter_spans_sent_total"); n != 1 || err != nil {
		t.Errorf("the exporter's metrics are not registered: %d %v", n, err)
	}
}

func TestRemoteSampler(t *testing.T) {
	rates := make(chan string, 1)
	rates <- "1"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("service"); got != "details" {
			t.Errorf("asked for service %q", got)
		}
		rate := <-rates
		rates <- rate
		_, _ = io.WriteString(w, `{"strategyType":"PROBABILISTIC","probabilisticSampling":{"samplingRate":`+rate+`}}`)
	}))
	defer server.Close()
	p := setup(t, WithServiceName("details"), WithExporter(tracetest.NewInMemoryExporter()),
		WithNamedSampler("parentbased_jaeger_remote", "endpoint="+server.URL+",pollingIntervalMs=5,initialSamplingRate=0"))
	for _, tc := range []struct {
		rate string
		want bool
	}{{"1", true}, {"0", false}} {
		<-rates
		rates <- tc.rate
		deadline := time.Now().Add(5 * time.Second)
		for endSpan(t, p, "op").IsSampled() != tc.want {
			if time.Now().After(deadline) {
				t.Fatalf("the rate %s of the server is not used", tc.rate)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestShutdownDoesNotWaitForASamplingServerThatHangs(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		<-r.Context().Done()
	}))
	defer server.Close()
	p := setup(t, WithoutExporter(), WithNamedSampler("jaeger_remote", "endpoint="+server.URL))
	<-asked
	begin := time.Now()
	shutdown(t, p)
	if took := time.Since(begin); took > remoteTimeout/2 {
		t.Errorf("shutdown took %s", took)
	}
}

// slowExporter holds its spans until released.
type slowExporter struct {
	tracetest.InMemoryExporter
	release chan struct{}
}

func (e *slowExporter) ExportSpans(ctx context.Context, s []sdktrace.ReadOnlySpan) error {
	select {
	case <-e.release:
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.InMemoryExporter.ExportSpans(ctx, s)
}

func TestShutdownIsIdempotentAndBounded(t *testing.T) {
	e := &slowExporter{release: make(chan struct{})}
	p, err := Setup(t.Context(), WithoutGlobals(), WithLogger(quiet()), WithExporter(e))
	if err != nil {
		t.Fatal(err)
	}
	endSpan(t, p, "op")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	first := p.Shutdown(ctx)
	if !errors.Is(first, context.DeadlineExceeded) {
		t.Errorf("shutdown with an exporter that hangs: %v, want the deadline", first)
	}
	close(e.release)
	if again := p.Shutdown(t.Context()); !errors.Is(again, context.DeadlineExceeded) {
		t.Errorf("second shutdown: %v, want the first's error", again)
	}
}

func TestGlobals(t *testing.T) {
	before, beforeP := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() { otel.SetTracerProvider(before); otel.SetTextMapPropagator(beforeP) })
	var logged bytes.Buffer
	p, err := Setup(t.Context(), WithoutExporter(), WithLogger(slog.New(slog.NewJSONHandler(&logged, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer shutdown(t, p)
	if otel.GetTracerProvider() != p.TracerProvider() {
		t.Error("the process-wide provider is another one")
	}
	fields := strings.Join(otel.GetTextMapPropagator().Fields(), " ")
	for _, want := range []string{"x-b3-traceid", "traceparent", "tracestate", "uber-trace-id"} {
		if !strings.Contains(fields, want) {
			t.Errorf("the process-wide propagator has fields %q, not %q", fields, want)
		}
	}
	otel.Handle(errors.New("collector is gone"))
	if !strings.Contains(logged.String(), `"err":"collector is gone"`) {
		t.Errorf("logged %q", logged.String())
	}
}

func TestDisabled(t *testing.T) {
	t.Setenv(envDisabled, "true")
	p := setup(t)
	if sc := endSpan(t, p, "op"); sc.IsValid() {
		t.Errorf("made span %v", sc)
	}
	if len(p.Propagator().Fields()) == 0 {
		t.Error("a disabled SDK must still propagate")
	}
	if err := p.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestResource(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,host.name=from-env,service.name=from-env")
	p := setup(t, WithoutExporter(), WithServiceName("reviews"), WithResource(attribute.String("service.namespace", "bookinfo")))
	got := map[attribute.Key]string{}
	for _, kv := range p.Resource() {
		got[kv.Key] = kv.Value.String()
	}
	for key, want := range map[attribute.Key]string{
		"service.name": "reviews", "service.namespace": "bookinfo", "deployment.environment.name": "prod",
		"host.name": "from-env", "telemetry.sdk.language": "go", "process.runtime.name": "go",
	} {
		if got[key] != want {
			t.Errorf("%s = %q, want %q", key, got[key], want)
		}
	}
}

func TestSetupErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  map[string]string
		opts []Option
		want string
	}{
		{"sampler", map[string]string{envSampler: "often"}, nil, envSampler},
		{"propagator", map[string]string{envPropagators: "b3,xray"}, nil, `unknown propagator "xray"`},
		{"none among others", map[string]string{envPropagators: "b3,none"}, nil, "must stand alone"},
		{"resource", map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "novalue"}, nil, "OTEL_RESOURCE_ATTRIBUTES"},
		{"endpoint", nil, []Option{WithOTLPGRPC("collector:4317")}, "must start with http:// or https://"},
		{"nil exporter", nil, []Option{WithExporter(nil)}, "the exporter is nil"},
		{"nil sampler", nil, []Option{WithSampler(nil)}, "the sampler is nil"},
		{"none and some", nil, []Option{WithoutExporter(), WithConsole(io.Discard)}, "other options name exporters"},
		{"second exporter wrong", nil, []Option{WithConsole(io.Discard), WithJaegerAgent(jaegerudp.Options{MaxPacketSize: 1})}, "max packet size 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			p, err := Setup(t.Context(), append(tc.opts, WithoutGlobals(), WithLogger(quiet()))...)
			if err == nil {
				shutdown(t, p)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}
