package httpmetrics

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Server has the metrics of a server. It is safe for concurrent use.
type Server struct {
	durations *durations
	active    *prometheus.GaugeVec
}

// Client has the metrics of a client. It is safe for concurrent use.
type Client struct {
	durations *durations
}

// NewServer registers a server's metrics with reg, or finds the ones an
// earlier call registered there, so that any number of handlers count into one
// set of series. It fails when reg has other metrics of these names, or these
// with other settings.
func NewServer(reg prometheus.Registerer, buckets []float64, bounds Bounds) (*Server, error) {
	s := &Server{
		durations: newDurations("http_server_request_duration_seconds",
			"Duration of HTTP server requests, from the first byte of the header read to the handler's return.",
			"http_route", buckets, bounds),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "http_server_active_requests",
			Help: "HTTP server requests being handled.",
		}, []string{labelMethod}),
	}
	existing, err := register(reg, s)
	if err != nil {
		return nil, fmt.Errorf("registering the HTTP server metrics: %w", err)
	}
	if err := existing.durations.same(s.durations); err != nil {
		return nil, fmt.Errorf("registering the HTTP server metrics: %w", err)
	}
	return existing, nil
}

// NewClient does for a client what NewServer does for a server.
func NewClient(reg prometheus.Registerer, buckets []float64, bounds Bounds) (*Client, error) {
	c := &Client{durations: newDurations("http_client_request_duration_seconds",
		"Duration of HTTP client requests, from sending to the response's header.",
		"server_address", buckets, bounds)}
	existing, err := register(reg, c)
	if err != nil {
		return nil, fmt.Errorf("registering the HTTP client metrics: %w", err)
	}
	if err := existing.durations.same(c.durations); err != nil {
		return nil, fmt.Errorf("registering the HTTP client metrics: %w", err)
	}
	return existing, nil
}

// Series finds the durations of a method, which must come from a bounded set,
// and a route, "" for none.
func (s *Server) Series(method, route string) *Series { return s.durations.lookup(method, route) }

// Active is the gauge of the requests of a method being handled.
func (s *Server) Active(method string) prometheus.Gauge { return s.active.WithLabelValues(method) }

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) {
	s.durations.vec.Describe(ch)
	s.active.Describe(ch)
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	s.durations.vec.Collect(ch)
	s.active.Collect(ch)
}

// Series finds the durations of a method, which must come from a bounded set,
// and the address of a server.
func (c *Client) Series(method, address string) *Series { return c.durations.lookup(method, address) }

// Describe implements prometheus.Collector.
func (c *Client) Describe(ch chan<- *prometheus.Desc) { c.durations.vec.Describe(ch) }

// Collect implements prometheus.Collector.
func (c *Client) Collect(ch chan<- prometheus.Metric) { c.durations.vec.Collect(ch) }

// register registers c or returns the collector of its kind that is there.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	err := reg.Register(c)
	if err == nil {
		return c, nil
	}
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if existing, ok := there.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return c, err
}

// same says what differs in the settings of two histograms of one name.
func (d *durations) same(other *durations) error {
	switch {
	case !slices.Equal(d.buckets, other.buckets):
		return fmt.Errorf("already registered with the buckets %v, not %v", d.buckets, other.buckets)
	case d.bounds != other.bounds:
		return fmt.Errorf("already registered with the limits %+v, not %+v", d.bounds, other.bounds)
	}
	return nil
}
