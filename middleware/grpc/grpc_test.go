package grpcmw

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
	"github.com/canarycontroller/canary-controller/middleware/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service runs what a test asks it to, within a call.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(context.Context) error
	stream func(testpb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{}, s.unary(ctx)
}

func (s *service) FullDuplexCall(ss testpb.TestService_FullDuplexCallServer) error {
	return s.stream(ss)
}

// rig is one server and one client with the middleware, and what they recorded.
type rig struct {
	service *service
	client  testpb.TestServiceClient
	spans   *tracetest.SpanRecorder
	reg     *prometheus.Registry
}

func newRig(t *testing.T, serverOpts, clientOpts []Option, extra ...grpc.ServerOption) *rig {
	t.Helper()
	r := &rig{service: &service{}, spans: tracetest.NewSpanRecorder(), reg: prometheus.NewPedanticRegistry()}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans), sdktrace.WithSampler(tracing.ParentBased(sdktrace.AlwaysSample())))
	common := []Option{WithTracerProvider(tp), WithRegisterer(r.reg)}
	server, err := NewServer(append(common, serverOpts...)...)
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(append(common, clientOpts...)...)
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 16)
	s := grpc.NewServer(append(extra, server.Options()...)...)
	testpb.RegisterTestServiceServer(s, r.service)
	server.Init(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///bufconn", append(client.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("closing the connection: %v", err)
		}
		s.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	r.client = testpb.NewTestServiceClient(conn)
	return r
}

// call makes one unary call within ctx and returns the server's context.
func (r *rig) call(t *testing.T, ctx context.Context, opts ...grpc.CallOption) context.Context {
	t.Helper()
	var seen context.Context
	r.service.unary = func(ctx context.Context) error { seen = ctx; return nil }
	if _, err := r.client.UnaryCall(ctx, &testpb.SimpleRequest{}, opts...); err != nil {
		t.Fatal(err)
	}
	return seen
}

// incoming is the context of an HTTP handler that got these headers.
func incoming(t *testing.T, cfg *propagation.Config, headers map[string]string) context.Context {
	t.Helper()
	h := http.Header{}
	for k, v := range headers {
		h.Set(k, v)
	}
	state := propagation.Extract(h, cfg)
	ctx := propagation.ContextWithState(t.Context(), state)
	if state.HasIDs() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, state.SpanContext())
	}
	return ctx
}

// outgoing is what an HTTP client within ctx would send.
func outgoing(ctx context.Context, cfg *propagation.Config) http.Header {
	h := http.Header{}
	propagation.Inject(propagation.Current(ctx), h, cfg)
	return h
}

func passthrough(t *testing.T) *propagation.Config {
	t.Helper()
	cfg, err := propagation.NewConfig(propagation.WithPassthrough())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const (
	traceID  = "80f198ee56343ba864fe8b2a57d3eff7"
	spanID   = "e457b5a2e4d86bd1"
	parentID = "05e3ac9a4f6e3b90"
)

// From HTTP into gRPC and out to HTTP again: what is text outside is bytes in
// the metadata under a "-bin" key, and comes out as it went in.
func TestBinaryValuesBetweenHTTPAndGRPC(t *testing.T) {
	raw := string([]byte{0, 0, 0x80, 0xf1, 0x98, 0xee, 0xff, '\n', ','})
	for _, tc := range []struct{ name, in, out string }{
		{"padded", base64.StdEncoding.EncodeToString([]byte(raw)), ""},
		{"unpadded", base64.RawStdEncoding.EncodeToString([]byte(raw)), ""},
		{"bytes that need padding", base64.StdEncoding.EncodeToString([]byte(raw + "x")), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, nil, nil)
			ctx := incoming(t, nil, map[string]string{"grpc-trace-bin": tc.in})
			server := r.call(t, ctx)

			want, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(tc.in, "="))
			if err != nil {
				t.Fatal(err)
			}
			md, _ := metadata.FromIncomingContext(server)
			if got := md.Get("grpc-trace-bin"); len(got) != 1 || got[0] != string(want) {
				t.Errorf("metadata has %q, want the bytes %q", got, want)
			}
			got := outgoing(server, nil).Get("Grpc-Trace-Bin")
			back, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(got, "="))
			if err != nil || string(back) != string(want) {
				t.Errorf("leaves as %q (%v), came as %q", got, err, tc.in)
			}
		})
	}
}

func TestEachHeaderFormCrossesGRPC(t *testing.T) {
	single := map[string]string{"b3": traceID + "-" + spanID + "-1-" + parentID}
	forms := map[string]map[string]string{
		"b3 single":   single,
		"b3 multi":    {"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-sampled": "1", "x-b3-parentspanid": parentID},
		"traceparent": {"traceparent": "00-" + traceID + "-" + spanID + "-01", "tracestate": "vendor=1"},
		"uber":        {"uber-trace-id": traceID + ":" + spanID + ":" + parentID + ":1"},
	}
	opaque := map[string]string{
		"x-request-id": "ca761cf5-c4c8-4b2c-a2ee-fbb2e5bbb5ba", "x-ot-span-context": "opaque;value=1", "x-cloud-trace-context": "105445aa7843bc8bf206b12000100000/1;o=1",
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			headers := map[string]string{}
			for _, m := range []map[string]string{form, opaque} {
				for k, v := range m {
					headers[k] = v
				}
			}
			r := newRig(t, nil, nil)
			var echoed metadata.MD
			server := r.call(t, incoming(t, nil, headers), grpc.Header(&echoed))
			out := outgoing(server, nil)

			// The spans: client below the caller's, server below the client's.
			ended := r.ended(t, 2)
			client, serverSpan := ended[trace.SpanKindClient], ended[trace.SpanKindServer]
			if got := client.Parent().SpanID().String(); got != spanID {
				t.Errorf("the client span's parent is %s, want the caller %s", got, spanID)
			}
			if serverSpan.Parent().SpanID() != client.SpanContext().SpanID() || !serverSpan.Parent().IsRemote() {
				t.Errorf("the server span's parent is %v, want the client span %v", serverSpan.Parent().SpanID(), client.SpanContext().SpanID())
			}
			if serverSpan.SpanContext().TraceID().String() != traceID {
				t.Errorf("trace %s, want %s", serverSpan.SpanContext().TraceID(), traceID)
			}

			// What the server would send on.
			id := serverSpan.SpanContext().SpanID().String()
			want := map[string]string{
				"X-B3-Traceid": traceID, "X-B3-Spanid": id, "X-B3-Parentspanid": client.SpanContext().SpanID().String(), "X-B3-Sampled": "1",
				"Traceparent": "00-" + traceID + "-" + id + "-01",
			}
			if name == "traceparent" {
				want["Tracestate"] = "vendor=1"
			}
			for k, v := range opaque {
				want[http.CanonicalHeaderKey(k)] = v
			}
			for k, v := range want {
				if out.Get(k) != v {
					t.Errorf("leaves with %s %q, want %q", k, out.Get(k), v)
				}
			}
			if got := echoed.Get("x-request-id"); !slices.Equal(got, []string{opaque["x-request-id"]}) {
				t.Errorf("echoed request id %q", got)
			}
			if got := attributeOf(serverSpan, "guid:x-request-id"); got != opaque["x-request-id"] {
				t.Errorf("request id on the span: %q", got)
			}
		})
	}
}

// ended waits for n spans and returns them by kind.
func (r *rig) ended(t *testing.T, n int) map[trace.SpanKind]sdktrace.ReadOnlySpan {
	t.Helper()
	out := map[trace.SpanKind]sdktrace.ReadOnlySpan{}
	eventually(t, "the spans end", func() bool { return len(r.spans.Ended()) >= n })
	for _, s := range r.spans.Ended() {
		out[s.SpanKind()] = s
	}
	return out
}

func attributeOf(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.String()
		}
	}
	return ""
}

func TestSamplingDecisionsCrossGRPC(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers map[string]string
		sampled bool
		out     map[string]string // exactly these of the three
	}{
		{"deny", map[string]string{"b3": traceID + "-" + spanID + "-0"}, false, map[string]string{"X-B3-Sampled": "0"}},
		{"deny alone", map[string]string{"b3": "0"}, false, map[string]string{"X-B3-Sampled": "0"}},
		{"debug", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-flags": "1"}, true, map[string]string{"X-B3-Flags": "1"}},
		{"defer", map[string]string{"b3": traceID + "-" + spanID}, true, map[string]string{"X-B3-Sampled": "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, nil, nil)
			server := r.call(t, incoming(t, nil, tc.headers))
			if got := trace.SpanContextFromContext(server).IsSampled(); got != tc.sampled {
				t.Errorf("sampled %v, want %v", got, tc.sampled)
			}
			out := outgoing(server, nil)
			for _, k := range []string{"X-B3-Sampled", "X-B3-Flags"} {
				if out.Get(k) != tc.out[k] {
					t.Errorf("leaves with %s %q, want %q", k, out.Get(k), tc.out[k])
				}
			}
		})
	}
}

func TestForwardOnly(t *testing.T) {
	cfg := passthrough(t)
	r := newRig(t, []Option{WithPropagation(cfg)}, []Option{WithPropagation(cfg)})
	in := map[string]string{
		"x-b3-traceid": "48485a3953bb6124", "x-b3-spanid": spanID, "x-b3-parentspanid": parentID, "x-b3-sampled": "1", "x-request-id": "abc",
	}
	out := outgoing(r.call(t, incoming(t, cfg, in)), cfg)
	for k, v := range in {
		if got := out.Get(k); got != v {
			t.Errorf("%s leaves as %q, came as %q", k, got, v)
		}
	}
	if n := len(r.spans.Ended()); n != 0 {
		t.Errorf("%d spans in forward-only mode", n)
	}
}

func TestUntrustedCallerGetsANewRootWithALink(t *testing.T) {
	public, err := propagation.NewConfig(propagation.WithTrust(propagation.TrustNone()))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, []Option{WithPropagation(public)}, nil)
	server := r.call(t, incoming(t, nil, map[string]string{
		"b3": traceID + "-" + spanID + "-d", "x-request-id": "from-outside", "x-ot-span-context": "outside",
	}))
	span := r.ended(t, 2)[trace.SpanKindServer]
	if span.SpanContext().TraceID().String() == traceID || span.Parent().IsValid() {
		t.Errorf("joined the trace of an untrusted caller: %v below %v", span.SpanContext().TraceID(), span.Parent())
	}
	if links := span.Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != traceID {
		t.Errorf("links %v, want one to the caller", links)
	}
	out := outgoing(server, nil)
	if id := out.Get("X-Request-Id"); id == "from-outside" || id == "" {
		t.Errorf("request id %q, want one made here", id)
	}
	if got := out.Get("X-Ot-Span-Context"); got != "" {
		t.Errorf("forwarded %q from an untrusted caller", got)
	}
	if out.Get("X-B3-Flags") != "" {
		t.Error("kept the debug flag of an untrusted caller")
	}
}

func TestWithoutForwardingKeepsTheTrace(t *testing.T) {
	r := newRig(t, nil, []Option{WithoutForwarding()})
	ctx := incoming(t, nil, map[string]string{"b3": traceID + "-" + spanID + "-1", "x-request-id": "inside", "x-ot-span-context": "inside"})
	md, _ := metadata.FromIncomingContext(r.call(t, ctx))
	if got := md.Get("x-b3-traceid"); len(got) != 1 || got[0] != traceID {
		t.Errorf("trace id %q", got)
	}
	for _, k := range []string{"x-request-id", "x-ot-span-context"} {
		if got := md.Get(k); len(got) > 0 {
			t.Errorf("sent %s %q outside", k, got)
		}
	}
}

// Values gRPC cannot carry are dropped; the call goes through.
func TestValuesThatMetadataCannotCarry(t *testing.T) {
	r := newRig(t, nil, nil)
	ctx := propagation.ContextWithState(t.Context(), propagation.State{Forwarded: []propagation.Field{
		{Name: "X-Ot-Span-Context", Value: "caf\xc3\xa9"}, {Name: "X-Cloud-Trace-Context", Value: "ok"}, {Name: "Grpc-Trace-Bin", Value: "not base64!"},
	}})
	md, _ := metadata.FromIncomingContext(r.call(t, ctx))
	if got := md.Get("x-cloud-trace-context"); len(got) != 1 || got[0] != "ok" {
		t.Errorf("the good value arrived as %q", got)
	}
	for _, k := range []string{"x-ot-span-context", "grpc-trace-bin"} {
		if got := md.Get(k); len(got) != 0 {
			t.Errorf("%s arrived as %q", k, got)
		}
	}
}

func TestCallersMetadataIsNotChanged(t *testing.T) {
	r := newRig(t, nil, nil)
	mine := metadata.Pairs("x-request-id", "set-by-the-caller", "tenant", "a")
	ctx := metadata.NewOutgoingContext(incoming(t, nil, map[string]string{"b3": traceID + "-" + spanID + "-1", "x-request-id": "inbound"}), mine)
	md, _ := metadata.FromIncomingContext(r.call(t, ctx))
	if got := md.Get("x-request-id"); !slices.Equal(got, []string{"set-by-the-caller"}) {
		t.Errorf("request id %q, want what the caller set", got)
	}
	if got := md.Get("tenant"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("tenant %q", got)
	}
	if len(mine) != 2 {
		t.Errorf("the caller's metadata became %v", mine)
	}
}

func TestSpanFilterDoesNotFilterPropagation(t *testing.T) {
	none := WithSpanFilter(func(string) bool { return false })
	r := newRig(t, []Option{none}, []Option{none})
	server := r.call(t, incoming(t, nil, map[string]string{"b3": traceID + "-" + spanID + "-1"}))
	if got := outgoing(server, nil).Get("X-B3-Spanid"); got != spanID {
		t.Errorf("leaves with span id %q, want the caller's %s", got, spanID)
	}
	if n := len(r.spans.Ended()); n != 0 {
		t.Errorf("%d spans of filtered calls", n)
	}
}

func TestPanicIsRecordedAndGoesOn(t *testing.T) {
	var recovered any
	outer := grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if recovered = recover(); recovered != nil {
				err = status.Error(codes.Internal, "recovered")
			}
		}()
		return h(ctx, req)
	})
	r := newRig(t, nil, nil, outer)
	boom := errors.New("boom")
	r.service.unary = func(context.Context) error { panic(boom) }
	if _, err := r.client.UnaryCall(t.Context(), &testpb.SimpleRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("error %v", err)
	}
	if recovered != boom {
		t.Errorf("the outer interceptor recovered %v, want the handler's value", recovered)
	}
	span := r.ended(t, 2)[trace.SpanKindServer]
	if events := span.Events(); len(events) != 1 || events[0].Name != "exception" {
		t.Errorf("events %v, want the exception", events)
	}
	if got := r.count(t, "rpc_server_call_duration_seconds", "grpc.testing.TestService/UnaryCall", "INTERNAL"); got != 1 {
		t.Errorf("counted %d, want 1", got)
	}
}

func TestErrorsOfOptions(t *testing.T) {
	for name, opt := range map[string]Option{
		"WithPropagation": WithPropagation(nil), "WithTracerProvider": WithTracerProvider(nil), "WithSpanFilter": WithSpanFilter(nil),
	} {
		if _, err := NewServer(opt); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("NewServer: %v, want an error that names %s", err, name)
		}
		if _, err := NewClient(opt); err == nil {
			t.Errorf("NewClient took a nil %s", name)
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "rpc_server_call_duration_seconds"}))
	if _, err := NewServer(WithRegisterer(reg)); err == nil {
		t.Error("a metric of the same name was not noticed")
	}
}

func TestMetricsLint(t *testing.T) {
	r := newRig(t, nil, nil)
	r.call(t, t.Context())
	problems, err := testutil.GatherAndLint(r.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
