package outlier

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func counterValue(t testing.TB, c prometheus.Collector) float64 {
	t.Helper()
	return testutil.ToFloat64(c)
}

// All series exist before the first request, with no more labels than the
// cluster's name and a closed set of types and reasons.
const initialMetrics = `
# HELP client_cluster_outlier_detection_ejections_active Endpoints ejected now.
# TYPE client_cluster_outlier_detection_ejections_active gauge
client_cluster_outlier_detection_ejections_active{cluster_name="reviews"} 0
# HELP client_cluster_outlier_detection_ejections_enforced_total Endpoints ejected, by the rule they broke.
# TYPE client_cluster_outlier_detection_ejections_enforced_total counter
client_cluster_outlier_detection_ejections_enforced_total{cluster_name="reviews",type="consecutive_5xx"} 0
client_cluster_outlier_detection_ejections_enforced_total{cluster_name="reviews",type="consecutive_gateway_failure"} 0
# HELP client_cluster_upstream_overflow_total Requests that met a limit of the connection pool, by limit. connections: had to wait; the others: failed at once or were not retried.
# TYPE client_cluster_upstream_overflow_total counter
client_cluster_upstream_overflow_total{cluster_name="reviews",reason="connections"} 0
client_cluster_upstream_overflow_total{cluster_name="reviews",reason="pending_requests"} 0
client_cluster_upstream_overflow_total{cluster_name="reviews",reason="requests"} 0
client_cluster_upstream_overflow_total{cluster_name="reviews",reason="retries"} 0
`

func TestMetricsAtStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	b := newBackend(t)
	tr := newTestTransport(t, Static(b.address), WithRegisterer(reg))
	if err := testutil.GatherAndCompare(reg, strings.NewReader(initialMetrics), "client_cluster_outlier_detection_ejections_active",
		"client_cluster_outlier_detection_ejections_enforced_total", "client_cluster_upstream_overflow_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	// 4 vectors of 2, 2, 2 and 4 series, 6 counters, 8 gauges.
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 24 {
		t.Errorf("%d series, want 24: %v", n, err)
	}
	// A second transport of the same cluster is refused and leaves nothing
	// behind; one of another cluster is not.
	if _, err := New("reviews", Static(b.address), WithRegisterer(reg)); err == nil || !strings.HasPrefix(err.Error(), "outlier: cluster reviews: registering metrics: ") {
		t.Errorf("same cluster: %v", err)
	}
	other, err := New("ratings", Static(b.address), WithRegisterer(reg))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 48 {
		t.Errorf("%d series, want 48: %v", n, err)
	}
	for _, c := range []*Transport{other, tr} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Errorf("%d series after Close: %v", n, err)
	}
}

// Three of four fail, half may be ejected: 2 enforced, then the third is an
// overflow at its second error and again at every second one after.
func TestMetricsOfEjections(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	backends, r := newBackends(t, 4)
	tr := newTestTransport(t, r, WithRegisterer(reg), WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{
		Consecutive5xxErrors: u32(2), MaxEjectionPercent: 50}}))
	for _, b := range backends[:3] {
		b.status.Store(500)
	}
	for backends[2].served.Load() < 4 {
		if _, _, err := get(t, tr); err != nil {
			t.Fatal(err)
		}
	}
	want := `
# HELP client_cluster_membership_healthy Endpoints that are not ejected.
# TYPE client_cluster_membership_healthy gauge
client_cluster_membership_healthy{cluster_name="reviews"} 2
# HELP client_cluster_membership_hosts Endpoints known.
# TYPE client_cluster_membership_hosts gauge
client_cluster_membership_hosts{cluster_name="reviews"} 4
# HELP client_cluster_outlier_detection_ejections_active Endpoints ejected now.
# TYPE client_cluster_outlier_detection_ejections_active gauge
client_cluster_outlier_detection_ejections_active{cluster_name="reviews"} 2
# HELP client_cluster_outlier_detection_ejections_detected_total Times an endpoint broke a rule, whether it was then ejected or not.
# TYPE client_cluster_outlier_detection_ejections_detected_total counter
client_cluster_outlier_detection_ejections_detected_total{cluster_name="reviews",type="consecutive_5xx"} 4
client_cluster_outlier_detection_ejections_detected_total{cluster_name="reviews",type="consecutive_gateway_failure"} 0
# HELP client_cluster_outlier_detection_ejections_enforced_total Endpoints ejected, by the rule they broke.
# TYPE client_cluster_outlier_detection_ejections_enforced_total counter
client_cluster_outlier_detection_ejections_enforced_total{cluster_name="reviews",type="consecutive_5xx"} 2
client_cluster_outlier_detection_ejections_enforced_total{cluster_name="reviews",type="consecutive_gateway_failure"} 0
# HELP client_cluster_outlier_detection_ejections_overflow_total Ejections not made because of maxEjectionPercent, by the rule that was broken.
# TYPE client_cluster_outlier_detection_ejections_overflow_total counter
client_cluster_outlier_detection_ejections_overflow_total{cluster_name="reviews",type="consecutive_5xx"} 2
client_cluster_outlier_detection_ejections_overflow_total{cluster_name="reviews",type="consecutive_gateway_failure"} 0
# HELP client_cluster_upstream_cx_active Connections open or being opened (tcp.maxConnections).
# TYPE client_cluster_upstream_cx_active gauge
client_cluster_upstream_cx_active{cluster_name="reviews"} 4
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "client_cluster_membership_healthy", "client_cluster_membership_hosts",
		"client_cluster_outlier_detection_ejections_active", "client_cluster_outlier_detection_ejections_detected_total",
		"client_cluster_outlier_detection_ejections_enforced_total", "client_cluster_outlier_detection_ejections_overflow_total",
		"client_cluster_upstream_cx_active"); err != nil {
		t.Error(err)
	}
}
