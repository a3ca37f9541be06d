package canary

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/exporter"
)

func newTestInstruments(t testing.TB) (*Instruments, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	i, err := NewInstruments(reg)
	if err != nil {
		t.Fatal(err)
	}
	return i, reg
}

func TestInstrumentsAreThereFromTheStart(t *testing.T) {
	_, reg := newTestInstruments(t)
	for name, series := range map[string]int{
		"canary_batches_completed_total":     4,
		"canary_batch_duration_seconds":      4,
		"canary_rollouts_total":              4,
		"canary_rollout_duration_seconds":    4,
		"canary_gate_decisions_total":        16,
		"canary_gate_query_duration_seconds": 4,
		"canary_reconcile_total":             4,
		"canary_reconcile_duration_seconds":  1,
	} {
		got, err := testutil.GatherAndCount(reg, name)
		if err != nil || got != series {
			t.Errorf("%s has %d series, want %d (%v)", name, got, series, err)
		}
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestInstrumentsRegisterOnce(t *testing.T) {
	_, reg := newTestInstruments(t)
	if _, err := NewInstruments(reg); err == nil {
		t.Error("registered twice without an error")
	}
}

func scrape(t *testing.T, reg *prometheus.Registry, accept string) string {
	t.Helper()
	h, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestInstrumentsCount(t *testing.T) {
	i, reg := newTestInstruments(t)
	i.ObserveCompletions([]Completion{
		{Kind: BatchCompleted, Result: Finished, Batch: 1, Duration: 20 * time.Second, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"},
		{Kind: BatchCompleted, Result: Finished, Batch: 2, Duration: 100 * time.Second},
		{Kind: RolloutCompleted, Result: Completed, Duration: 120 * time.Second, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"},
	})
	i.ObserveReconcile(ReconcileConflict, 30*time.Millisecond, "")
	i.CountGateDecision(v1alpha1.CheckThreshold, v1alpha1.VerdictNoData)
	i.ObserveGateQuery(QueryTimeout, 3*time.Second, strings.Repeat("x", 500))
	text := scrape(t, reg, "application/openmetrics-text; version=1.0.0")
	for _, want := range []string{
		`canary_batches_completed_total{result="Finished"} 2.0`,
		`canary_batches_completed_total{result="RolledBack"} 0.0`,
		`canary_rollouts_total{outcome="Completed"} 1.0 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 1.0`,
		`canary_batch_duration_seconds_bucket{result="Finished",le="15.0"} 0`,
		`canary_batch_duration_seconds_bucket{result="Finished",le="30.0"} 1 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 20.0`,
		`canary_batch_duration_seconds_sum{result="Finished"} 120.0`,
		`canary_rollout_duration_seconds_bucket{outcome="Completed",le="14400.0"} 1`,
		`canary_gate_decisions_total{check_kind="threshold",verdict="NoData"} 1.0`,
		`canary_gate_query_duration_seconds_bucket{result="timeout",le="2.5"} 0`,
		`canary_gate_query_duration_seconds_bucket{result="timeout",le="5.0"} 1`,
		`canary_reconcile_total{result="conflict"} 1.0`,
		`canary_reconcile_duration_seconds_bucket{le="0.05"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
