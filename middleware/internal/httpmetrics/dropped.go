package httpmetrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Dropped counts headers that were not forwarded. It is safe for concurrent
// use.
type Dropped struct {
	vec *prometheus.CounterVec
}

// NewDropped registers the counter with reg, or finds the one that is there,
// and starts every reason at zero.
func NewDropped(reg prometheus.Registerer, reasons []string) (*Dropped, error) {
	d, err := register(reg, &Dropped{vec: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "http_forwarded_headers_dropped_total",
		Help: "Headers not forwarded because of their value, by what is wrong with it.",
	}, []string{"reason"})})
	if err != nil {
		return nil, fmt.Errorf("registering the counter of dropped headers: %w", err)
	}
	for _, reason := range reasons {
		d.vec.WithLabelValues(reason)
	}
	return d, nil
}

// Inc counts one header. reason must be one of those given to NewDropped.
func (d *Dropped) Inc(reason string) { d.vec.WithLabelValues(reason).Inc() }

// Describe implements prometheus.Collector.
func (d *Dropped) Describe(ch chan<- *prometheus.Desc) { d.vec.Describe(ch) }

// Collect implements prometheus.Collector.
func (d *Dropped) Collect(ch chan<- prometheus.Metric) { d.vec.Collect(ch) }
