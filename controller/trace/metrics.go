package trace

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of canary_trace_spans_total.
const (
	resultSent    = "sent"
	resultFailed  = "failed"
	resultDropped = "dropped"
)

// metrics are the counters of a Recorder.
type metrics struct {
	sent, failed, dropped prometheus.Counter
	queued                prometheus.Gauge
}

// newMetrics registers the counters; reg may be nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "canary_trace_spans_total",
		Help: "Spans of rollouts by what became of them: sent to the collector, failed because it refused them, " +
			"or dropped because the queue was full or the process ended.",
	}, []string{"result"})
	m := &metrics{
		sent: spans.WithLabelValues(resultSent), failed: spans.WithLabelValues(resultFailed), dropped: spans.WithLabelValues(resultDropped),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "canary_trace_queued_spans",
			Help: "Spans of rollouts that wait to be sent.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{spans, m.queued} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of traces: %w", err)
		}
	}
	return m, nil
}
