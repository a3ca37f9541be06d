//go:build !race

// Under the race detector sync.Pool forgets at random, so counts say nothing.

package middleware

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

type null struct{ h http.Header }

func (w null) Header() http.Header          { return w.h }
func (null) Write(p []byte) (int, error)    { return len(p), nil }
func (null) WriteHeader(int)                {}
func (null) Read([]byte) (int, error)       { return 0, io.EOF }
func (null) Close() error                   { return nil }
func (null) Shutdown(context.Context) error { return nil }
func (null) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return nil
}

// TestAllocations holds what the benchmarks in ./bench measure: each count is
// the budget, of which some is left.
func TestAllocations(t *testing.T) {
	provider := func(s sdktrace.Sampler) *sdktrace.TracerProvider {
		tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithBatcher(null{}))
		t.Cleanup(func() { _ = tp.Shutdown(context.WithoutCancel(t.Context())) })
		return tp
	}
	sampled, unsampled := provider(sdktrace.AlwaysSample()), provider(sdktrace.NeverSample())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reviews", ok)
	for _, tc := range []struct {
		name   string
		budget float64
		opts   []HandlerOption
	}{
		{"sampled and metrics", 14, []HandlerOption{WithTracerProvider(sampled), WithRegisterer(prometheus.NewRegistry())}},
		{"unsampled and metrics", 8, []HandlerOption{WithTracerProvider(unsampled), WithRegisterer(prometheus.NewRegistry())}},
		{"forward only", 4, []HandlerOption{WithForwardOnly()}},
		{"forward only and metrics", 4, []HandlerOption{WithForwardOnly(), WithRegisterer(prometheus.NewRegistry())}},
	} {
		h := Handler(mux, tc.opts...)
		w := null{http.Header{}}
		r := request(t, "GET", "/reviews", "X-B3-Traceid", traceID, "X-B3-Spanid", spanID, "X-B3-Sampled", "1",
			"X-Request-Id", requestID, "User-Agent", "productpage")
		if n := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) }); n > tc.budget {
			t.Errorf("%s: %v allocations, the budget is %v", tc.name, n, tc.budget)
		}
	}

	rt := Transport(fixed{&http.Response{StatusCode: 200}}, WithTracerProvider(sampled), WithRegisterer(prometheus.NewRegistry()))
	ctx, cancel := context.WithCancel(propagation.ContextWithState(t.Context(), propagation.State{RequestID: requestID}))
	defer cancel()
	req := outbound(t, ctx, "http://ratings:9080/ratings/1")
	if n := testing.AllocsPerRun(200, func() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}); n > 16 {
		t.Errorf("client: %v allocations, the budget is 16", n)
	}
}

// fixed always answers the same, without allocating.
type fixed struct{ resp *http.Response }

func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	f.resp.Body, f.resp.Request = null{}, r
	return f.resp, nil
}
