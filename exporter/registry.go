package exporter

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Registry is where metrics are registered and read. *prometheus.Registry is
// one, and so is controller-runtime's metrics.Registry.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// NewRegistry returns a registry with the metrics of the Go runtime and of the
// process (go_* and process_*).
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return reg
}
