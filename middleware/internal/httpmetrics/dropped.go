package httpmetrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Reason says why a header was not forwarded.
type Reason string

const (
	// Invalid is a value no header may have: CR, LF, NUL, other control
	// characters, or bytes that are not UTF-8.
	Invalid Reason = "invalid"
	// TooLarge is a value over the limit for one header or for all together.
	TooLarge Reason = "too_large"
)

// Dropped counts headers that were not forwarded. It is safe for concurrent
// use.
type Dropped struct {
	vec               *prometheus.CounterVec
	invalid, tooLarge prometheus.Counter
}

// NewDropped registers the counter with reg, or finds the one that is there.
func NewDropped(reg prometheus.Registerer) (*Dropped, error) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "http_forwarded_headers_dropped_total",
		Help: "Headers not forwarded because their value is not valid in a header (invalid) or too long (too_large).",
	}, []string{"reason"})
	d, err := register(reg, &Dropped{
		vec:      vec,
		invalid:  vec.WithLabelValues(string(Invalid)),
		tooLarge: vec.WithLabelValues(string(TooLarge)),
	})
	if err != nil {
		return nil, fmt.Errorf("registering the counter of dropped headers: %w", err)
	}
	return d, nil
}

// Add counts n headers.
func (d *Dropped) Add(reason Reason, n int) {
	if reason == TooLarge {
		d.tooLarge.Add(float64(n))
		return
	}
	d.invalid.Add(float64(n))
}

// Describe implements prometheus.Collector.
func (d *Dropped) Describe(ch chan<- *prometheus.Desc) { d.vec.Describe(ch) }

// Collect implements prometheus.Collector.
func (d *Dropped) Collect(ch chan<- prometheus.Metric) { d.vec.Collect(ch) }
