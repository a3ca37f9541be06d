package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// probeQueue is the name of the queue that Install makes to see whether
// client-go asks our provider. It gets no series.
const probeQueue = "exporter-install-probe"

// Workqueues is a workqueue.MetricsProvider with the seven metrics that
// component-base and controller-runtime made customary, labelled name (the
// queue) and controller. Queues without a name get no metrics, and queues that
// share a name share their series.
//
// It serves one queue through its configuration's MetricsProvider, or all
// queues of the process through [Install].
type Workqueues struct {
	controller string
	probed     bool

	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*Workqueues)(nil)

// NewWorkqueues registers the metrics. The label controller is the given name,
// or with "" the name of the queue, as in controller-runtime.
func NewWorkqueues(reg prometheus.Registerer, controller string) (*Workqueues, error) {
	w := newWorkqueues(controller)
	return w, register(reg, "work queue metrics", w.collectors())
}

func newWorkqueues(controller string) *Workqueues {
	labels := []string{"name", "controller"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: "workqueue", Name: name, Help: help}, labels)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "workqueue", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "workqueue", Name: name, Help: help,
			// 10 ns to 1000 s, the boundaries of controller-runtime.
			Buckets:                         prometheus.ExponentialBuckets(10e-9, 10, 12),
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	return &Workqueues{
		controller: controller,
		depth:      gauge("depth", "Items waiting in the queue. Items that wait for a delay to pass are not among them."),
		adds:       counter("adds_total", "Items added to the queue."),
		latency:    histogram("queue_duration_seconds", "Time items waited in the queue before their processing began."),
		work:       histogram("work_duration_seconds", "Time the processing of an item took."),
		unfinished: gauge("unfinished_work_seconds", "Time that items now being processed have taken so far, added up. Large values point at stuck workers."),
		longest:    gauge("longest_running_processor_seconds", "Time that the longest-running worker has been at its item."),
		retries:    counter("retries_total", "Items added with a delay, be it a retry after an error or a planned return."),
	}
}

func (w *Workqueues) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.depth, w.adds, w.latency, w.work, w.unfinished, w.longest, w.retries}
}

func (w *Workqueues) labels(queue string) []string {
	if w.controller == "" {
		return []string{queue, queue}
	}
	return []string{queue, w.controller}
}

// NewDepthMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewDepthMetric(queue string) workqueue.GaugeMetric {
	if queue == probeQueue {
		w.probed = true
		return discard{}
	}
	return w.depth.WithLabelValues(w.labels(queue)...)
}

// NewAddsMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewAddsMetric(queue string) workqueue.CounterMetric {
	if queue == probeQueue {
		return discard{}
	}
	return w.adds.WithLabelValues(w.labels(queue)...)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewLatencyMetric(queue string) workqueue.HistogramMetric {
	if queue == probeQueue {
		return discard{}
	}
	return w.latency.WithLabelValues(w.labels(queue)...)
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewWorkDurationMetric(queue string) workqueue.HistogramMetric {
	if queue == probeQueue {
		return discard{}
	}
	return w.work.WithLabelValues(w.labels(queue)...)
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewUnfinishedWorkSecondsMetric(queue string) workqueue.SettableGaugeMetric {
	if queue == probeQueue {
		return discard{}
	}
	return w.unfinished.WithLabelValues(w.labels(queue)...)
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewLongestRunningProcessorSecondsMetric(queue string) workqueue.SettableGaugeMetric {
	if queue == probeQueue {
		return discard{}
	}
	return w.longest.WithLabelValues(w.labels(queue)...)
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (w *Workqueues) NewRetriesMetric(queue string) workqueue.CounterMetric {
	if queue == probeQueue {
		return discard{}
	}
	return w.retries.WithLabelValues(w.labels(queue)...)
}

// discard is what the probe's metrics do.
type discard struct{}

func (discard) Inc()            {}
func (discard) Dec()            {}
func (discard) Set(float64)     {}
func (discard) Observe(float64) {}
