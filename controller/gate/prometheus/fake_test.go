package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

// runTests has a server around the tests that need one (build tag e2e).
var runTests = func(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMain(m *testing.M) { runTests(m) }

// fake is a server with Prometheus's API whose answers a test decides. What the real one
// does is tested against the real one (build tag e2e).
type fake struct {
	*httptest.Server

	mu       sync.Mutex
	requests []*http.Request // forms parsed
	now, max int
}

// startFake serves with answer, which gets the parsed request.
func startFake(t testing.TB, answer http.HandlerFunc) *fake {
	return start(t, answer, httptest.NewServer)
}

func start(t testing.TB, answer http.HandlerFunc, serve func(http.Handler) *httptest.Server) *fake {
	t.Helper()
	f := &fake{}
	f.Server = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		f.mu.Lock()
		f.requests = append(f.requests, r)
		f.now++
		f.max = max(f.max, f.now)
		f.mu.Unlock()
		answer(w, r)
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) seen() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*http.Request(nil), f.requests...)
}

// queries are the queries of path so far.
func (f *fake) queries(path string) []string {
	var out []string
	for _, r := range f.seen() {
		if r.URL.Path == path {
			out = append(out, r.Form.Get("query"))
		}
	}
	return out
}

// value answers an instant query with one number.
func value(w http.ResponseWriter, v any) {
	answer(w, map[string]any{"resultType": "vector", "result": []any{map[string]any{"metric": map[string]string{}, "value": []any{1, fmt.Sprint(v)}}}})
}

func answer(w http.ResponseWriter, data any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
}

func values(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { value(w, v) }
}

// gatherer is one whose Prometheus is at the addresses.
func gatherer(t testing.TB, c Config) *Gatherer {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

var (
	start0    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	situation = gate.Situation{
		RolloutID: "v1-x", Namespace: "shop", Canary: "web", New: "web-v2", Old: "web-v1",
		Batch: 2, Batches: 3, WindowStart: start0, OldReplicas: 2,
	}
)

// gather asks 90.9 s after the batch became available.
func (g *Gatherer) gather(ctx context.Context, spec *v1alpha1.Gate) gate.Gathered {
	return g.Gather(ctx, spec, "shop", situation, start0.Add(90*time.Second+900*time.Millisecond))
}

// threshold is a gate with one threshold check, named check.
func threshold(query string) *v1alpha1.Gate {
	return &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "check", Threshold: &v1alpha1.ThresholdCheck{Query: query, Max: "1"}}}}
}

func at(spec *v1alpha1.Gate, addresses ...string) *v1alpha1.Gate {
	spec.Prometheus = &v1alpha1.PrometheusSource{Addresses: addresses}
	return spec
}

func within1s(spec *v1alpha1.Gate) *v1alpha1.Gate {
	spec.Prometheus.Timeout = &metav1.Duration{Duration: time.Second}
	return spec
}

// problem is the only evidence's problem with the check, an Error.
func problem(t testing.TB, g gate.Gathered) string {
	t.Helper()
	e := g["check"]
	if len(e) != 1 || e[0].Value.Verdict != v1alpha1.VerdictError {
		t.Fatalf("evidence %+v, want one Error", e)
	}
	return e[0].Value.Problem
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}
