package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// TestMain lets the thread be that package servers forks from in the tests with a real Jaeger.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/canarycontroller/canary-controller/deploy/servers.fork"))
}

// fake is an OTLP client that answers as it is told and keeps what it took.
type fake struct {
	mu      sync.Mutex
	got     [][]*tracepb.Span
	calls   int
	stopped bool
	// answer is called for each upload, from 1; nil accepts all.
	answer func(ctx context.Context, call int) error
}

func (f *fake) Start(context.Context) error { return nil }

func (f *fake) Stop(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	return nil
}

func (f *fake) UploadTraces(ctx context.Context, list []*tracepb.ResourceSpans) error {
	f.mu.Lock()
	f.calls++
	call := f.calls
	f.mu.Unlock()
	if f.answer != nil {
		if err := f.answer(ctx, call); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, list[0].ScopeSpans[0].Spans)
	return nil
}

func (f *fake) names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, batch := range f.got {
		for _, s := range batch {
			names = append(names, s.Name)
		}
	}
	return names
}

// withEnv puts an environment in place of the process's.
func withEnv(t *testing.T, values map[string]string) {
	t.Helper()
	before := environment
	environment = func(name string) string { return values[name] }
	t.Cleanup(func() { environment = before })
}

func recorder(t *testing.T, client *fake, c Config) (*Recorder, *prometheus.Registry) {
	t.Helper()
	withEnv(t, nil)
	reg := prometheus.NewPedanticRegistry()
	c.Registerer = reg
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Endpoint = "http://collector.invalid:4317"
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.client = client
	r.backoff = backoff{first: time.Millisecond, longest: 4 * time.Millisecond, refusals: time.Minute}
	r.now = func() time.Time { return at(100).Time }
	return r, reg
}

// start runs r and returns how to end it.
func start(t *testing.T, r *Recorder) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case err = <-done:
			case <-time.After(30 * time.Second):
				err = errors.New("Run does not return")
			}
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come true", what)
		}
	}
}

func checkMetrics(t *testing.T, reg *prometheus.Registry, sent, failed, dropped int) {
	t.Helper()
	want := fmt.Sprintf(`
# HELP canary_trace_spans_total Spans of rollouts by what became of them: sent to the collector, failed because it refused them, or dropped because the queue was full or the process ended.
# TYPE canary_trace_spans_total counter
canary_trace_spans_total{result="dropped"} %d
canary_trace_spans_total{result="failed"} %d
canary_trace_spans_total{result="sent"} %d
# HELP canary_trace_queued_spans Spans of rollouts that wait to be sent.
# TYPE canary_trace_queued_spans gauge
canary_trace_queued_spans 0
`, dropped, failed, sent)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestMetricsAreClean(t *testing.T) {
	_, reg := recorder(t, &fake{}, Config{})
	checkMetrics(t, reg, 0, 0, 0)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if _, err := New(Config{Registerer: reg}); err == nil {
		t.Error("two recorders share a registerer")
	}
}

var completed = []string{SpanApply, SpanWait, "batch 1", SpanRollout}

func completedCourse() []*v1alpha1.Canary {
	return course(applied(1), available(2), finished(3), over(4, v1alpha1.OutcomeCompleted))
}

func TestSendsWhatEnded(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{})
	states := completedCourse()
	// What is written before Run begins waits for it.
	r.StatusWritten(states[0], states[1])
	stop := start(t, r)
	for n := 1; n < len(states)-1; n++ {
		r.StatusWritten(states[n], states[n+1])
		r.StatusWritten(states[n+1], states[n+1])
	}
	eventually(t, "sending", func() bool { return len(client.names()) == 4 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(completed, client.names()); diff != "" {
		t.Error(diff)
	}
	if !client.stopped {
		t.Error("the client was not stopped")
	}
	checkMetrics(t, reg, 4, 0, 0)
}

// TestWhatWasMissedIsSentOnce holds that it does not matter which changes the Recorder
// hears of, and how often, as long as it hears of the last.
func TestWhatWasMissedIsSentOnce(t *testing.T) {
	states := course(applied(1), available(2), finished(3), over(4, v1alpha1.OutcomeCompleted), goingBack(50, "requested"), over(60, v1alpha1.OutcomeRolledBack), replaced(70), applied(71))
	want := []string{"apply", "apply", "batch 1", "rollback", "rollout", "wait available"}
	for missed := range 1 << (len(states) - 2) {
		client := &fake{}
		r, _ := recorder(t, client, Config{})
		from := 0
		for n := 1; n < len(states); n++ {
			// The change to another attempt is not missed: nothing else tells of the former one.
			if n < len(states)-2 && missed>>(n-1)&1 == 1 {
				continue
			}
			before := states[n-1]
			if n%2 == 0 {
				before = states[from]
			}
			for range 2 {
				r.StatusWritten(before, states[n])
			}
			from = n
		}
		if err := start(t, r)(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, sortedNames(client)); diff != "" {
			t.Fatalf("missed %b: want, got:\n%s", missed, diff)
		}
	}
}

func sortedNames(client *fake) []string { return slices.Sorted(slices.Values(client.names())) }

// TestResumeFromAStaleCache holds that a Canary resumed in an older state is told the rest
// with its next change, whichever comes first.
func TestResumeFromAStaleCache(t *testing.T) {
	states := completedCourse()
	for _, late := range []bool{false, true} {
		client := &fake{}
		r, _ := recorder(t, client, Config{})
		if late {
			r.StatusWritten(states[3], states[4])
		}
		r.Resume(states[1])
		stop := start(t, r)
		eventually(t, "sending", func() bool { return len(client.names()) > 0 })
		r.StatusWritten(states[3], states[4])
		if err := stop(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(completed, client.names()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestWhatDidNotFitComesLater holds that spans dropped for want of room are sent when the
// Canary changes again.
func TestWhatDidNotFitComesLater(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{QueueSize: 2})
	states := completedCourse()
	other := course(applied(1), available(2))
	for _, c := range other {
		c.UID = "uid-2"
	}
	r.StatusWritten(other[1], other[2])
	r.StatusWritten(states[2], states[3])
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 2 })
	r.StatusWritten(states[3], states[4])
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(append([]string{SpanApply, SpanWait}, completed...), client.names()); diff != "" {
		t.Error(diff)
	}
	checkMetrics(t, reg, 6, 0, 3)
}

// TestForgetsDeletedCanaries holds that nothing is kept of what is gone.
func TestForgetsDeletedCanaries(t *testing.T) {
	r, _ := recorder(t, &fake{}, Config{})
	states := course(applied(1), available(2), deleted(9))
	r.StatusWritten(states[0], states[2])
	if len(r.told) != 1 {
		t.Errorf("%d Canaries are known", len(r.told))
	}
	r.Deleted(states[3])
	r.StatusWritten(states[2], states[3])
	if len(r.told) != 0 {
		t.Errorf("%d Canaries are known still", len(r.told))
	}
}

func TestResume(t *testing.T) {
	states := completedCourse()
	for _, test := range []struct {
		name string
		now  int
		c    *v1alpha1.Canary
		want int
	}{
		{"under way", 1e6, states[2], 2},
		{"just ended", 60, states[4], 4},
		{"ended within the hour", 4 + 3600, states[4], 4},
		{"ended before", 4 + 3601, states[4], 0},
		{"going back", 1e6, course(applied(1), goingBack(4, "requested"))[2], 3},
		{"nothing to tell", 60, canary(), 0},
		{"no trace", 60, &v1alpha1.Canary{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := &fake{}
			r, reg := recorder(t, client, Config{})
			r.now = func() time.Time { return at(test.now).Time }
			r.Resume(test.c)
			if err := start(t, r)(); err != nil {
				t.Error(err)
			}
			if got := client.names(); len(got) != test.want {
				t.Errorf("sent %v, want %d spans", got, test.want)
			}
			checkMetrics(t, reg, test.want, 0, 0)
		})
	}
}

// TestResumeOfMany holds that what is sent again needs no room in the queue.
func TestResumeOfMany(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{QueueSize: 5, BatchSize: 3})
	for i := range 200 {
		c := completedCourse()[4]
		c.UID = types.UID(fmt.Sprint(i))
		r.Resume(c)
	}
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 800 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, batch := range client.got {
		if len(batch) > 3 {
			t.Fatalf("a batch of %d spans", len(batch))
		}
	}
	checkMetrics(t, reg, 800, 0, 0)
}

func TestDeleted(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{})
	states := course(applied(1), available(2), deleted(9))
	r.StatusWritten(states[1], states[2])
	r.Deleted(states[2])
	r.Deleted(states[3])
	if err := start(t, r)(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(completed, client.names()); diff != "" {
		t.Error(diff)
	}
	if states[3].DeletionTimestamp == nil {
		t.Error("the Canary was changed")
	}
	checkMetrics(t, reg, 4, 0, 0)
}

// TestNeverBlocks holds that without a collector statuses go on being written, and that
// what does not fit is counted.
func TestNeverBlocks(t *testing.T) {
	var log bytes.Buffer
	r, reg := recorder(t, &fake{}, Config{QueueSize: 9, FlushTimeout: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 100 {
		c := completedCourse()[4]
		c.UID = types.UID(fmt.Sprint(i))
		r.StatusWritten(nil, c)
	}
	if got := testutil.ToFloat64(r.metrics.queued); got != 8 {
		t.Errorf("%g spans are queued", got)
	}
	if got := strings.Count(log.String(), "queue of spans is full"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, log.String())
	}
	if err := start(t, r)(); err != nil {
		t.Error(err)
	}
	checkMetrics(t, reg, 8, 0, 392)
}

func TestUnreachableCollectorIsWaitedFor(t *testing.T) {
	client := &fake{answer: func(_ context.Context, call int) error {
		if call < 6 {
			return status.Error(codes.Unavailable, "down")
		}
		return nil
	}}
	r, reg := recorder(t, client, Config{})
	r.backoff.refusals = 0
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 4 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if client.calls != 6 {
		t.Errorf("%d calls", client.calls)
	}
	checkMetrics(t, reg, 4, 0, 0)
}

func TestRefusedSpansAreGivenUp(t *testing.T) {
	var mu sync.Mutex
	now := at(100).Time
	client := &fake{answer: func(_ context.Context, call int) error {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(20 * time.Second)
		if call <= 4 {
			return errors.New("failed to send to collector: 401 Unauthorized")
		}
		return nil
	}}
	r, reg := recorder(t, client, Config{BatchSize: 2})
	r.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	// Refused at 20, 40, 60 and 80 s: a minute after the first the first batch is given up.
	if diff := cmp.Diff([]string{"batch 1", SpanRollout}, client.names()); diff != "" {
		t.Error(diff)
	}
	checkMetrics(t, reg, 2, 2, 0)
}

func TestPartlyRefusedSpansAreNotSentAgain(t *testing.T) {
	client := &fake{answer: func(context.Context, int) error {
		return errors.New("OTLP partial success: no room (2 spans rejected)")
	}}
	r, reg := recorder(t, client, Config{})
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	eventually(t, "giving up", func() bool { return testutil.ToFloat64(r.metrics.failed) == 4 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if client.calls != 1 {
		t.Errorf("%d calls", client.calls)
	}
	checkMetrics(t, reg, 0, 4, 0)
}

// TestShutdownFlushes holds that what an upload, cut short by the end, had on the way is
// sent again before Run returns.
func TestShutdownFlushes(t *testing.T) {
	begun := make(chan struct{})
	client := &fake{answer: func(ctx context.Context, call int) error {
		if call == 1 {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	r, reg := recorder(t, client, Config{BatchSize: 1})
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(completed, client.names()); diff != "" {
		t.Error(diff)
	}
	checkMetrics(t, reg, 4, 0, 0)
}

func TestShutdownEndsInTime(t *testing.T) {
	client := &fake{answer: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	r, reg := recorder(t, client, Config{FlushTimeout: 20 * time.Millisecond, BatchSize: 1})
	r.Resume(completedCourse()[4])
	if err := start(t, r)(); err == nil || !strings.Contains(err.Error(), "4 spans of rollouts were not sent") {
		t.Errorf("got %v", err)
	}
	if !client.stopped {
		t.Error("the client was not stopped")
	}
	checkMetrics(t, reg, 0, 0, 4)
}

func TestOff(t *testing.T) {
	withEnv(t, nil)
	r, err := New(Config{})
	if err != nil || r.Enabled() {
		t.Fatalf("enabled without an endpoint, %v", err)
	}
	states := completedCourse()
	r.StatusWritten(states[0], states[4])
	r.Resume(states[4])
	r.Deleted(states[4])
	if len(r.queue)+len(r.resumed) > 0 {
		t.Error("something is queued that nobody sends")
	}
	if err := start(t, r)(); err != nil {
		t.Error(err)
	}
}

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
