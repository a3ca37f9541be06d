package jaegerudp

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons a span is dropped, the values of the label "reason".
const (
	reasonTooLarge   = "too_large"   // does not fit a packet even without tags
	reasonSendFailed = "send_failed" // the socket did not take the packet
	reasonRefused    = "refused"     // nobody listened: reported after they were counted as sent
	reasonUnresolved = "unresolved"  // the agent's name has no address yet
	reasonCanceled   = "canceled"    // the export's context ended first
	reasonShutdown   = "shutdown"    // handed over after Shutdown
)

var reasons = []string{reasonTooLarge, reasonSendFailed, reasonRefused, reasonUnresolved, reasonCanceled, reasonShutdown}

type metrics struct {
	sent      prometheus.Counter
	packets   prometheus.Counter
	truncated prometheus.Counter
	dropped   *prometheus.CounterVec
}

// newMetrics makes the exporter's counters and registers them, or takes those
// an earlier exporter of the process registered.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jaeger_agent_exporter_spans_sent_total",
			Help: "Spans written to the Jaeger agent's UDP port. UDP does not confirm that they arrived.",
		}),
		packets: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jaeger_agent_exporter_packets_sent_total",
			Help: "UDP packets written to the Jaeger agent.",
		}),
		truncated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "jaeger_agent_exporter_spans_truncated_total",
			Help: "Spans sent without some of their events, links or attributes because they did not fit one UDP packet.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "jaeger_agent_exporter_spans_dropped_total",
			Help: "Spans that did not reach the Jaeger agent, by reason. Refused ones were counted as sent before.",
		}, []string{"reason"}),
	}
	if reg != nil {
		var err error
		m.sent = register(reg, m.sent, &err)
		m.packets = register(reg, m.packets, &err)
		m.truncated = register(reg, m.truncated, &err)
		m.dropped = register(reg, m.dropped, &err)
		if err != nil {
			return nil, fmt.Errorf("registering the Jaeger agent exporter's metrics: %w", err)
		}
	}
	for _, r := range reasons {
		m.dropped.WithLabelValues(r)
	}
	return m, nil
}

// register registers c and returns it, or the collector registered before
// under the same name. Errors collect in errp.
func register[C prometheus.Collector](reg prometheus.Registerer, c C, errp *error) C {
	err := reg.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, same := already.ExistingCollector.(C); same {
			return existing
		}
	}
	*errp = errors.Join(*errp, err)
	return c
}
