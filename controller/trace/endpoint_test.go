package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// collect is an OTLP collector over gRPC and HTTP.
type collect struct {
	collector.UnimplementedTraceServiceServer
	mu     sync.Mutex
	got    []*collector.ExportTraceServiceRequest
	path   string
	header string
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
	c.mu.Lock()
	c.path, c.header = r.URL.Path, r.Header.Get("X-Tenant")
	c.mu.Unlock()
	_, _ = c.Export(r.Context(), req)
}

func startCollectors(t *testing.T) (c *collect, grpcAddr, httpAddr string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = &collect{}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-done })
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	return c, lis.Addr().String(), web.Listener.Addr().String()
}

// TestOverOTLP sends over both protocols to both kinds of endpoints.
func TestOverOTLP(t *testing.T) {
	for _, test := range []struct {
		name  string
		setup func(t *testing.T, grpcAddr, httpAddr string) (endpoint string)
		path  string
	}{
		{"gRPC by variable", func(t *testing.T, grpcAddr, _ string) string {
			t.Setenv(envProtocol, "grpc")
			t.Setenv(envEndpoint, "http://"+grpcAddr)
			return ""
		}, ""},
		{"gRPC by flag", func(t *testing.T, grpcAddr, _ string) string {
			t.Setenv(envTracesProtocol, "grpc")
			return "http://" + grpcAddr
		}, ""},
		{"HTTP by variable", func(t *testing.T, _, httpAddr string) string {
			t.Setenv(envEndpoint, "http://"+httpAddr)
			return ""
		}, "/v1/traces"},
		{"HTTP by variable of traces", func(t *testing.T, _, httpAddr string) string {
			t.Setenv(envTracesEndpoint, "http://"+httpAddr+"/custom")
			return ""
		}, "/custom"},
		{"HTTP by flag", func(t *testing.T, _, httpAddr string) string { return "http://" + httpAddr }, "/v1/traces"},
		{"HTTP by flag with a path", func(t *testing.T, _, httpAddr string) string { return "http://" + httpAddr + "/in" }, "/in"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, grpcAddr, httpAddr := startCollectors(t)
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=prod,k8s.pod.name=canary-controller-7f,service.version=2,k8s.namespace.name=ops")
			r, err := New(Config{Endpoint: test.setup(t, grpcAddr, httpAddr), Logger: slog.New(slog.DiscardHandler)})
			if err != nil || !r.Enabled() {
				t.Fatal(err)
			}
			r.now = func() time.Time { return t0 }
			r.Resume(completedCourse()[4])
			if err := start(t, r)(); err != nil {
				t.Error(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.got) != 1 || len(c.got[0].ResourceSpans) != 1 {
				t.Fatalf("got %v", c.got)
			}
			rs := c.got[0].ResourceSpans[0]
			if diff := cmp.Diff(map[string]any{"service.name": "canary-controller", "k8s.cluster.name": "prod", "k8s.namespace.name": "ops"}, plain(rs.Resource.Attributes)); diff != "" {
				t.Errorf("resource: want, got:\n%s", diff)
			}
			var names []string
			for _, s := range rs.ScopeSpans[0].Spans {
				names = append(names, s.Name)
			}
			if diff := cmp.Diff(completed, names); diff != "" || rs.ScopeSpans[0].Scope.Name != scopeName {
				t.Errorf("scope %s: %s", rs.ScopeSpans[0].Scope.Name, diff)
			}
			if test.path != "" && (c.path != test.path || c.header != "a") {
				t.Errorf("sent to %s with header %q", c.path, c.header)
			}
		})
	}
}

// TestRealClientsAgainstNothing holds that both clients' errors of a collector that is not
// there are told from refusals.
func TestRealClientsAgainstNothing(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }))
	defer refuse.Close()
	for _, test := range []struct {
		d    destination
		want bool
	}{
		{destination{grpc: true, url: "http://" + addr}, true},
		{destination{url: "http://" + addr + "/v1/traces"}, true},
		{destination{url: refuse.URL}, false},
	} {
		client := test.d.client()
		if err := client.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := client.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{}})
		if err == nil || unreachable(err) != test.want {
			t.Errorf("%+v: unreachable is %t of %v", test.d, unreachable(err), err)
		}
		if err := client.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestFindDestination(t *testing.T) {
	for _, test := range []struct {
		name, endpoint string
		env            map[string]string
		want           destination
		err            string
	}{
		{name: "nothing", want: destination{off: true}},
		{name: "flag of gRPC", endpoint: "http://c:4317", want: destination{grpc: true, url: "http://c:4317"}},
		{name: "flag of HTTP", endpoint: "https://c:4318/", want: destination{url: "https://c:4318/v1/traces"}},
		{name: "flag without a port", endpoint: "https://c", want: destination{url: "https://c/v1/traces"}},
		{name: "protocol over port", endpoint: "http://c:4317", env: map[string]string{envProtocol: "http/protobuf"}, want: destination{url: "http://c:4317/v1/traces"}},
		{name: "protocol of traces first", endpoint: "http://c:1", env: map[string]string{envProtocol: "http/protobuf", envTracesProtocol: "grpc"}, want: destination{grpc: true, url: "http://c:1"}},
		{name: "variable", env: map[string]string{envEndpoint: "http://c:4317"}, want: destination{grpc: true}},
		{name: "variable of traces first", env: map[string]string{envEndpoint: "ftp://c", envTracesEndpoint: "http://c:4318"}, want: destination{}},
		{name: "flag over variables", endpoint: "http://c:4317", env: map[string]string{envTracesEndpoint: "nonsense", envExporter: "none"}, want: destination{grpc: true, url: "http://c:4317"}},
		{name: "disabled", endpoint: "http://c:4317", env: map[string]string{envDisabled: "TRUE"}, want: destination{off: true}},
		{name: "no exporter", env: map[string]string{envEndpoint: "http://c:4317", envExporter: "none"}, want: destination{off: true}},
		{name: "another exporter", env: map[string]string{envExporter: "jaeger"}, err: `OTEL_TRACES_EXPORTER: unknown exporter "jaeger": must be otlp or none`},
		{name: "no scheme", endpoint: "c:4317", err: `the OTLP endpoint: endpoint "c:4317" must start with http:// or https://`},
		{name: "no host", endpoint: "http://:4317", err: `the OTLP endpoint: endpoint "http://:4317" has no host`},
		{name: "no URL", endpoint: "http://u:p%zz@c", err: "the OTLP endpoint: must be a URL such as http://collector:4317"},
		{name: "password", endpoint: "ftp://u:secret@c", err: `the OTLP endpoint: endpoint "ftp://u:xxxxx@c" must start with http:// or https://`},
		{name: "bad variable", env: map[string]string{envEndpoint: "c"}, err: `OTEL_EXPORTER_OTLP_ENDPOINT: endpoint "c" must start with http:// or https://`},
		{name: "bad protocol", endpoint: "http://c", env: map[string]string{envProtocol: "udp"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL: unknown protocol "udp": must be grpc or http/protobuf`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := findDestination(test.endpoint, func(name string) string { return test.env[name] })
			if message := fmt.Sprint(err); test.err != "" && message != test.err || test.err == "" && err != nil {
				t.Fatalf("got error %v, want %s", err, test.err)
			}
			if got != test.want && test.err == "" {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	withEnv(t, nil)
	if _, err := New(Config{Endpoint: "c"}); err == nil || !strings.HasPrefix(err.Error(), "tracing rollouts: the OTLP endpoint") {
		t.Errorf("New: %v", err)
	}
}
