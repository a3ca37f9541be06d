package outlier

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one transport. Each name is Envoy's with envoy_cluster_ replaced by
// client_cluster_, and the label cluster_name is the one Istio's Envoys carry,
// so that one panel can show both. Every series exists from the start.
type metrics struct {
	detected     map[EjectionType]prometheus.Counter
	enforced     map[EjectionType]prometheus.Counter
	overflow     map[EjectionType]prometheus.Counter
	poolOverflow map[OverflowReason]prometheus.Counter

	connections   prometheus.Counter
	connectFailed prometheus.Counter
	retries       prometheus.Counter
	noneHealthy   prometheus.Counter
	offRequests   prometheus.Counter
	resolveFailed prometheus.Counter

	registerer prometheus.Registerer
	collectors []prometheus.Collector
}

// occupancy reads the gauges at scrape time.
type occupancy struct {
	ejected, healthy, members, off         func() float64
	connections, active, pending, retrying func() float64
}

func newMetrics(cluster string, now occupancy) *metrics {
	m := &metrics{}
	labels := prometheus.Labels{"cluster_name": cluster}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "client_cluster_" + name, Help: help, ConstLabels: labels})
		m.collectors = append(m.collectors, c)
		return c
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "client_cluster_" + name, Help: help, ConstLabels: labels}, []string{label})
		m.collectors = append(m.collectors, v)
		return v
	}
	gauge := func(name, help string, read func() float64) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "client_cluster_" + name, Help: help, ConstLabels: labels}, read))
	}

	m.detected = byType(vector("outlier_detection_ejections_detected_total",
		"Times an endpoint broke a rule, whether it was then ejected or not.", "type"))
	m.enforced = byType(vector("outlier_detection_ejections_enforced_total",
		"Endpoints ejected, by the rule they broke.", "type"))
	m.overflow = byType(vector("outlier_detection_ejections_overflow_total",
		"Ejections not made because of maxEjectionPercent, by the rule that was broken.", "type"))
	overflows := vector("upstream_overflow_total",
		"Requests that met a limit of the connection pool, by limit. connections: had to wait; the others: failed at once or were not retried.", "reason")
	m.poolOverflow = make(map[OverflowReason]prometheus.Counter, len(overflowReasons))
	for _, r := range overflowReasons {
		m.poolOverflow[r] = overflows.WithLabelValues(string(r))
	}
	m.connections = counter("upstream_cx_total", "Connections opened or attempted.")
	m.connectFailed = counter("upstream_cx_connect_fail_total", "Connections that could not be established.")
	m.retries = counter("upstream_rq_retry_total", "Requests sent again to another endpoint.")
	m.noneHealthy = counter("upstream_cx_none_healthy_total", "Requests refused because no endpoint was there or all were ejected.")
	m.offRequests = counter("lb_healthy_panic_total", "Requests balanced over all endpoints because fewer than minHealthPercent were healthy.")
	m.resolveFailed = counter("update_failure_total", "Failed attempts to resolve the endpoints.")

	gauge("outlier_detection_ejections_active", "Endpoints ejected now.", now.ejected)
	gauge("membership_healthy", "Endpoints that are not ejected.", now.healthy)
	gauge("membership_hosts", "Endpoints known.", now.members)
	gauge("lb_panic_active", "1 while fewer than minHealthPercent are healthy, so that ejection is off.", now.off)
	gauge("upstream_cx_active", "Connections open or being opened (tcp.maxConnections).", now.connections)
	gauge("upstream_rq_active", "Requests that hold a connection (http.http2MaxRequests).", now.active)
	gauge("upstream_rq_pending_active", "Requests that wait for a connection (http.http1MaxPendingRequests).", now.pending)
	gauge("upstream_rq_retry_active", "Retries outstanding (http.maxRetries).", now.retrying)
	return m
}

func byType(v *prometheus.CounterVec) map[EjectionType]prometheus.Counter {
	counters := make(map[EjectionType]prometheus.Counter, len(ejectionTypes))
	for _, t := range ejectionTypes {
		counters[t] = v.WithLabelValues(string(t))
	}
	return counters
}

// register puts the metrics on reg, all or none.
func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for i, c := range m.collectors {
		if err := reg.Register(c); err != nil {
			for _, done := range m.collectors[:i] {
				reg.Unregister(done)
			}
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	m.registerer = reg
	return nil
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
	m.registerer = nil
}
