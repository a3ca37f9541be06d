package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is what most tests need: an SDK that remembers spans, a registry, and
// the options for both.
type lab struct {
	t     *testing.T
	spans *tracetest.SpanRecorder
	reg   *prometheus.Registry
	tp    *sdktrace.TracerProvider
}

func newLab(t *testing.T, opts ...sdktrace.TracerProviderOption) *lab {
	t.Helper()
	l := &lab{t: t, spans: tracetest.NewSpanRecorder(), reg: prometheus.NewRegistry()}
	l.tp = sdktrace.NewTracerProvider(append(opts, sdktrace.WithSpanProcessor(l.spans))...)
	return l
}

func (l *lab) handler(next http.Handler, opts ...HandlerOption) http.Handler {
	l.t.Helper()
	h, err := NewHandler(next, append([]HandlerOption{WithTracerProvider(l.tp), WithRegisterer(l.reg)}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

func (l *lab) transport(base http.RoundTripper, opts ...TransportOption) http.RoundTripper {
	l.t.Helper()
	rt, err := NewTransport(base, append([]TransportOption{WithTracerProvider(l.tp), WithRegisterer(l.reg)}, opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	return rt
}

// serve starts a real server.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// ended waits for n ended spans: a server's span ends after its client has the
// answer.
func (l *lab) ended(n int) []sdktrace.ReadOnlySpan {
	l.t.Helper()
	eventually(l.t, func() bool { return len(l.spans.Ended()) >= n })
	if got := len(l.spans.Ended()); got != n {
		l.t.Fatalf("%d spans, want %d", got, n)
	}
	return l.spans.Ended()
}

// span waits for the only span.
func (l *lab) span() sdktrace.ReadOnlySpan {
	l.t.Helper()
	return l.ended(1)[0]
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("did not happen within 10 s")
		}
		time.Sleep(time.Millisecond)
	}
}

func attrs(s sdktrace.ReadOnlySpan) map[string]string {
	out := map[string]string{}
	for _, kv := range s.Attributes() {
		out[string(kv.Key)] = kv.Value.String()
	}
	return out
}

func wantAttrs(t *testing.T, s sdktrace.ReadOnlySpan, want map[string]string) {
	t.Helper()
	got := attrs(s)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %q, want %q", s.Name(), k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d attributes %v, want %d", s.Name(), len(got), got, len(want))
	}
}

// counts gathers a histogram as "method route-or-address status" to count.
func (l *lab) counts(name string) map[string]uint64 {
	l.t.Helper()
	out := map[string]uint64{}
	for key, m := range l.metrics(name) {
		out[key] = m.GetHistogram().GetSampleCount()
	}
	return out
}

func (l *lab) metrics(name string) map[string]*dto.Metric {
	l.t.Helper()
	families, err := l.reg.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]*dto.Metric{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			v := map[string]string{}
			for _, p := range m.GetLabel() {
				v[p.GetName()] = p.GetValue()
			}
			out[v["http_request_method"]+" "+v["http_route"]+v["server_address"]+v["reason"]+" "+v["http_response_status_code"]] = m
		}
	}
	return out
}

// exemplar is the trace id of a histogram's first exemplar.
func exemplar(m *dto.Metric) string {
	for _, b := range m.GetHistogram().GetBucket() {
		for _, l := range b.GetExemplar().GetLabel() {
			if l.GetName() == "trace_id" {
				return l.GetValue()
			}
		}
	}
	return ""
}

func (l *lab) wantServerCounts(want map[string]uint64) {
	l.t.Helper()
	wantCounts(l.t, func() map[string]uint64 { return l.counts("http_server_request_duration_seconds") }, want)
}

func (l *lab) wantClientCounts(want map[string]uint64) {
	l.t.Helper()
	wantCounts(l.t, func() map[string]uint64 { return l.counts("http_client_request_duration_seconds") }, want)
}

func wantCounts(t *testing.T, get func() map[string]uint64, want map[string]uint64) {
	t.Helper()
	equal := func() bool {
		got := get()
		if len(got) != len(want) {
			return false
		}
		for k, n := range want {
			if got[k] != n {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(5 * time.Second); !equal(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("counted %v, want %v", get(), want)
		}
	}
}

func request(t *testing.T, method, target string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func hasAttr(s sdktrace.ReadOnlySpan, key attribute.Key) bool {
	_, ok := attrs(s)[string(key)]
	return ok
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
