package prometheus

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

func TestProportionAsksBothVersions(t *testing.T) {
	f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch q := r.Form.Get("query"); {
		case r.URL.Path == "/prom/api/v1/query_exemplars":
			answer(w, []any{})
		case strings.Contains(q, "web-v2") && strings.Contains(q, "5.."):
			value(w, 3)
		case strings.Contains(q, "web-v2"):
			value(w, 100.5)
		case strings.Contains(q, "5.."):
			value(w, 0)
		default:
			value(w, 300)
		}
	})
	g := gatherer(t, Config{Addresses: []string{f.URL + "/prom"}})
	spec := &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "errors", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "1%"}}}}
	got := g.gather(t.Context(), spec)["errors"]
	if len(got) != 1 {
		t.Fatalf("%d pieces of evidence", len(got))
	}
	want := gate.Evidence{
		NewBad: gate.Sample{Value: 3}, NewTotal: gate.Sample{Value: 100.5}, OldBad: &gate.Sample{}, OldTotal: &gate.Sample{Value: 300},
		Queries: got[0].Queries,
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	asked := f.queries("/prom/api/v1/query")
	slices.Sort(asked)
	sent := slices.Sorted(slices.Values(got[0].Queries))
	if len(sent) != 4 || !slices.Equal(asked, sent) {
		t.Errorf("asked %q, evidence says %q", asked, sent)
	}
	for _, r := range f.seen() {
		if r.URL.Path != "/prom/api/v1/query" {
			continue
		}
		if r.Method != http.MethodPost || r.Form.Get("timeout") != "10s" || r.Form.Has("time") || !strings.Contains(r.Form.Get("query"), "[1m30s900ms]") {
			t.Errorf("%s with %v", r.Method, r.Form)
		}
	}
}

func TestCustomQueriesAreRendered(t *testing.T) {
	f := startFake(t, values(1))
	g := gatherer(t, Config{Addresses: []string{f.URL}})
	spec := &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{
		{Name: "custom", Proportion: &v1alpha1.ProportionCheck{Bad: "b{{.Window}}", Total: "t{{ .New }}", Max: "1%"}},
		{Name: "value", Threshold: &v1alpha1.ThresholdCheck{Query: "q{{ .Namespace }}/{{ .Canary }}", Samples: "s{{ .Batch }}", MinSamples: 3, Max: "1"}},
	}}
	got := g.gather(t.Context(), spec)
	if diff := cmp.Diff(gate.Evidence{NewBad: gate.Sample{Value: 1}, NewTotal: gate.Sample{Value: 1}, Queries: []string{"b90s", "tweb-v2"}}, got["custom"][0]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(gate.Evidence{Value: gate.Sample{Value: 1}, Samples: &gate.Sample{Value: 1}, Queries: []string{"qshop/web", "s2"}}, got["value"][0]); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsAskedInTheFirstSecond(t *testing.T) {
	f := startFake(t, values(1))
	g := gatherer(t, Config{Addresses: []string{f.URL}})
	spec := threshold("up")
	spec.Checks = append(spec.Checks,
		v1alpha1.GateCheck{Name: "errors", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetIstio, Max: "1%"}},
		v1alpha1.GateCheck{Name: "ejected", Outlier: &v1alpha1.OutlierCheck{Max: "0%"}})
	got := g.Gather(t.Context(), spec, "shop", situation, start0.Add(999*time.Millisecond))
	for name, s := range map[string]gate.Sample{"check": got["check"][0].Value, "errors": got["errors"][0].NewTotal, "errors ": got["errors"][0].NewBad, "ejected": got["ejected"][0].Value} {
		if s.Verdict != v1alpha1.VerdictNoData {
			t.Errorf("%s: %+v, want NoData", name, s)
		}
	}
	if n := len(f.seen()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestEveryPrometheusIsAsked(t *testing.T) {
	good, bad := startFake(t, values(7)), startFake(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	g := gatherer(t, Config{Addresses: []string{good.URL, bad.URL}})
	got := g.gather(t.Context(), threshold("up"))["check"]
	if len(got) != 2 || got[0].Value != (gate.Sample{Value: 7}) || got[1].Value.Verdict != v1alpha1.VerdictError {
		t.Fatalf("evidence %+v", got)
	}
	contains(t, got[1].Value.Problem, strings.TrimPrefix(bad.URL, "http://"), "502 Bad Gateway")
}

func TestWithoutPrometheus(t *testing.T) {
	g := gatherer(t, Config{})
	contains(t, problem(t, g.gather(t.Context(), threshold("up"))), "spec.gate.prometheus.address", "--prometheus-url")
	spec := &v1alpha1.Gate{Alerts: []v1alpha1.GateAlert{{MatchLabels: map[string]string{"a": "b"}}}}
	got := g.gather(t.Context(), spec)[gate.AlertName(spec.Alerts[0])]
	if len(got) != 1 || got[0].RulesProblem == nil || got[0].RulesProblem.Verdict != v1alpha1.VerdictError {
		t.Fatalf("evidence %+v", got)
	}
}

func TestProxyThatKnowsOnlyGet(t *testing.T) {
	f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		value(w, 4)
	})
	got := gatherer(t, Config{Addresses: []string{f.URL}}).gather(t.Context(), threshold("up"))["check"]
	if got[0].Value != (gate.Sample{Value: 4}) {
		t.Errorf("evidence %+v", got)
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 100)
	f := startFake(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		value(w, 1)
	})
	g := gatherer(t, Config{Addresses: []string{f.URL}, MaxConcurrent: 3, QueriesPerSecond: 1e6})
	spec := &v1alpha1.Gate{}
	for _, name := range strings.Split("abcdefghij", "") {
		spec.Checks = append(spec.Checks, v1alpha1.GateCheck{Name: name, Threshold: &v1alpha1.ThresholdCheck{Query: name, Max: "1"}})
	}
	var group sync.WaitGroup
	for range 2 { // two Canaries share the bound
		group.Go(func() {
			for name, e := range g.gather(t.Context(), spec) {
				if e[0].Value != (gate.Sample{Value: 1}) {
					t.Errorf("%s: %+v", name, e)
				}
			}
		})
	}
	for range 3 {
		<-arrived
	}
	select {
	case <-arrived:
		t.Error("a fourth request at once")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	group.Wait()
	if f.max != 3 || len(f.seen()) != 20 {
		t.Errorf("%d at once, %d in all; want 3 and 20", f.max, len(f.seen()))
	}
}

// Twenty queries at 50 a second, of which four may come at once, take 16/50 of a second.
func TestRateIsBounded(t *testing.T) {
	f := startFake(t, values(1))
	g := gatherer(t, Config{Addresses: []string{f.URL}, MaxConcurrent: 4})
	spec := &v1alpha1.Gate{}
	for _, name := range strings.Split("abcdefghijklmnopqrst", "") {
		spec.Checks = append(spec.Checks, v1alpha1.GateCheck{Name: name, Threshold: &v1alpha1.ThresholdCheck{Query: name, Max: "1"}})
	}
	begin := time.Now()
	g.gather(t.Context(), spec)
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("20 queries in %s", took)
	}
	if n := len(f.seen()); n != 20 {
		t.Errorf("%d queries", n)
	}
}

func TestHangingPrometheus(t *testing.T) {
	ended := make(chan struct{})
	f := startFake(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	defer close(ended)
	var mu sync.Mutex
	observed := map[string]int{}
	g := gatherer(t, Config{Addresses: []string{f.URL}, Timeout: 200 * time.Millisecond, MaxConcurrent: 2, Observe: func(result string, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		observed[result]++
	}})
	spec := &v1alpha1.Gate{}
	for _, name := range strings.Split("abcdefghij", "") {
		spec.Checks = append(spec.Checks, v1alpha1.GateCheck{Name: name, Threshold: &v1alpha1.ThresholdCheck{Query: name, Max: "1"}})
	}
	begin := time.Now()
	got := g.gather(t.Context(), spec)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	asked, waited := 0, 0
	for name, e := range got {
		switch p := e[0].Value.Problem; {
		case e[0].Value.Verdict != v1alpha1.VerdictError:
			t.Errorf("%s: %+v", name, e)
		case strings.Contains(p, "no answer in 200ms"):
			asked++
		case strings.Contains(p, "had no turn in 200ms"):
			waited++
		default:
			t.Errorf("%s: %s", name, p)
		}
	}
	if asked < 2 || asked+waited != 10 || observed["timeout"] != 10 {
		t.Errorf("%d asked, %d waited, observed %v", asked, waited, observed)
	}
}

func TestContextEndsTheEvaluation(t *testing.T) {
	asked := make(chan struct{}, 10)
	f := startFake(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	observed := 0
	g := gatherer(t, Config{Addresses: []string{f.URL}, Observe: func(string, time.Duration) { observed++ }})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(errors.New("the leadership is lost"))
	}()
	contains(t, problem(t, g.gather(ctx, threshold("up"))), "the evaluation was ended: the leadership is lost")
	if observed != 0 {
		t.Errorf("%d queries observed, want none: it says nothing of Prometheus", observed)
	}
}

func TestObserve(t *testing.T) {
	f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Form.Get("query") {
		case "empty":
			answer(w, map[string]any{"resultType": "vector", "result": []any{}})
		case "bad":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"status":"error","errorType":"bad_data","error":"no"}`))
		case "inf":
			value(w, "+Inf")
		default:
			value(w, 1)
		}
	})
	for query, want := range map[string]string{"empty": "no_data", "bad": "error", "inf": "error", "up": "success"} {
		var got []string
		g := gatherer(t, Config{Addresses: []string{f.URL}, Observe: func(result string, took time.Duration) {
			if took <= 0 {
				t.Errorf("took %s", took)
			}
			got = append(got, result)
		}})
		g.gather(t.Context(), threshold(query))
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%s: observed %v, want %s", query, got, want)
		}
	}
}

func TestExemplars(t *testing.T) {
	const a, b, c, d = "0af7651916cd43dd8448eb211c80319a", "0af7651916cd43dd8448eb211c80319b", "0af7651916cd43dd8448eb211c80319c", "0af7651916cd43dd8448eb211c80319d"
	exemplar := func(label, id string, at float64) any {
		return map[string]any{"labels": map[string]string{label: id}, "value": "1", "timestamp": at}
	}
	bad := "2"
	fails := false
	f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/api/v1/query_exemplars":
			value(w, bad)
		case fails:
			w.WriteHeader(http.StatusNotFound)
		default:
			answer(w, []any{
				map[string]any{"seriesLabels": map[string]string{}, "exemplars": []any{exemplar("trace_id", a, 10), exemplar("trace_id", b, 30), exemplar("trace_id", "short", 40)}},
				map[string]any{"seriesLabels": map[string]string{}, "exemplars": []any{exemplar("traceID", c, 20), exemplar("traceID", b, 35), exemplar("span_id", d, 50), exemplar("trace_id", strings.ToUpper(d), 60), exemplar("traceID", d, 5)}},
			})
		}
	})
	var log bytes.Buffer
	var results []string
	g := gatherer(t, Config{
		Addresses: []string{f.URL}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Observe: func(result string, _ time.Duration) { results = append(results, result) }, MaxConcurrent: 1,
	})
	spec := &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "errors", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "1%"}}}}
	if got := g.gather(t.Context(), spec)["errors"][0].TraceIDs; !slices.Equal(got, []string{b, c, a}) {
		t.Errorf("trace ids %v, want the latest three once each", got)
	}
	asked := f.queries("/api/v1/query_exemplars")
	if want := `{__name__=~"http_server_request_duration_seconds(_bucket)?",namespace="shop",pod=~"web-v2-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}",http_response_status_code=~"5.."}`; len(asked) != 1 || asked[0] != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
	fails = true
	e := g.gather(t.Context(), spec)["errors"][0]
	if e.TraceIDs != nil || e.NewBad != (gate.Sample{Value: 2}) || log.Len() > 0 || slices.Contains(results, "error") {
		t.Errorf("evidence %+v, log %q, observed %v", e, &log, results)
	}
	bad = "0"
	g.gather(t.Context(), spec)
	if n := len(f.queries("/api/v1/query_exemplars")); n != 2 {
		t.Errorf("asked %d times, want not without bad requests", n)
	}
}
