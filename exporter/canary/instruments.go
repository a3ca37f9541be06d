package canary

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// ReconcileResult is how one sync of a Canary ended.
type ReconcileResult string

// The results of a sync.
const (
	ReconcileSuccess ReconcileResult = "success"
	// ReconcileRequeue is a success that asked to come back after a time.
	ReconcileRequeue ReconcileResult = "requeue"
	// ReconcileConflict is a write that lost to another writer and is retried.
	ReconcileConflict ReconcileResult = "conflict"
	ReconcileError    ReconcileResult = "error"
)

// QueryResult is how a query of the gate ended.
type QueryResult string

// The results of a query.
const (
	QuerySuccess QueryResult = "success"
	QueryNoData  QueryResult = "no_data"
	QueryTimeout QueryResult = "timeout"
	QueryError   QueryResult = "error"
)

// Instruments are the metrics of what the controller does. None has a label
// with the name of an object, and every combination of labels is there from the
// start, so that the first increment shows in rate(). All methods are safe for
// concurrent use.
type Instruments struct {
	batches, rollouts, decisions, reconciles                         *prometheus.CounterVec
	batchDuration, rolloutDuration, queryDuration, reconcileDuration *prometheus.HistogramVec
}

// NewInstruments registers the instruments.
func NewInstruments(reg prometheus.Registerer) (*Instruments, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(buckets []float64, name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	slow := []float64{15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400}
	quick := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	i := &Instruments{
		batches:           counter("canary_batches_completed_total", "Batches that ended, by result.", "result"),
		rollouts:          counter("canary_rollouts_total", "Rollouts that ended, by outcome.", "outcome"),
		batchDuration:     histogram(slow, "canary_batch_duration_seconds", "Time batches took until their replicas were available or they were given up, without pauses.", "result"),
		rolloutDuration:   histogram(slow, "canary_rollout_duration_seconds", "Time rollouts made progress: their batches and their rollback, without pauses and waiting for approval.", "outcome"),
		decisions:         counter("canary_gate_decisions_total", "Verdicts of the gate's checks.", "check_kind", "verdict"),
		queryDuration:     histogram(quick, "canary_gate_query_duration_seconds", "Time the gate's queries took.", "result"),
		reconciles:        counter("canary_reconcile_total", "Syncs of Canaries, by result.", "result"),
		reconcileDuration: histogram(quick, "canary_reconcile_duration_seconds", "Time syncs of Canaries took."),
	}
	i.initialise()
	for _, c := range []prometheus.Collector{
		i.batches, i.rollouts, i.batchDuration, i.rolloutDuration,
		i.decisions, i.queryDuration, i.reconciles, i.reconcileDuration,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the controller's instruments: %w", err)
		}
	}
	return i, nil
}

// initialise makes every combination of labels, at zero.
func (i *Instruments) initialise() {
	for _, r := range []Result{Finished, RolledBack, Failed, Superseded} {
		i.batches.WithLabelValues(string(r))
		i.batchDuration.WithLabelValues(string(r))
	}
	for _, r := range []Result{Completed, RolledBack, Failed, Superseded} {
		i.rollouts.WithLabelValues(string(r))
		i.rolloutDuration.WithLabelValues(string(r))
	}
	for _, k := range v1alpha1.CheckKinds() {
		for _, v := range v1alpha1.Verdicts() {
			i.decisions.WithLabelValues(string(k), string(v))
		}
	}
	for _, r := range []QueryResult{QuerySuccess, QueryNoData, QueryTimeout, QueryError} {
		i.queryDuration.WithLabelValues(string(r))
	}
	for _, r := range []ReconcileResult{ReconcileSuccess, ReconcileRequeue, ReconcileConflict, ReconcileError} {
		i.reconciles.WithLabelValues(string(r))
	}
	i.reconcileDuration.WithLabelValues()
}

// ObserveCompletions counts what Completions derived. Call it after the write
// of the status succeeded, once.
func (i *Instruments) ObserveCompletions(completions []Completion) {
	for _, c := range completions {
		counter, duration := i.batches, i.batchDuration
		if c.Kind == RolloutCompleted {
			counter, duration = i.rollouts, i.rolloutDuration
		}
		inc(counter.WithLabelValues(string(c.Result)), c.TraceID)
		observe(duration.WithLabelValues(string(c.Result)), c.Duration, c.TraceID)
	}
}

// ObserveReconcile counts one sync. With a trace id it leaves an exemplar.
func (i *Instruments) ObserveReconcile(r ReconcileResult, took time.Duration, traceID string) {
	i.reconciles.WithLabelValues(string(r)).Inc()
	observe(i.reconcileDuration.WithLabelValues(), took, traceID)
}

// CountGateDecision counts the verdict of one check.
func (i *Instruments) CountGateDecision(kind v1alpha1.CheckKind, verdict v1alpha1.Verdict) {
	i.decisions.WithLabelValues(string(kind), string(verdict)).Inc()
}

// ObserveGateQuery counts one query of the gate. With a trace id it leaves an
// exemplar.
func (i *Instruments) ObserveGateQuery(r QueryResult, took time.Duration, traceID string) {
	observe(i.queryDuration.WithLabelValues(string(r)), took, traceID)
}

// exemplar returns nil for what is no trace id: client_golang panics when an
// exemplar is over 128 characters or not UTF-8, and a trace id comes from an
// object that people can write.
func exemplar(traceID string) prometheus.Labels {
	if traceID == "" || len(traceID) > 64 || !utf8.ValidString(traceID) {
		return nil
	}
	return prometheus.Labels{"trace_id": traceID}
}

func inc(c prometheus.Counter, traceID string) {
	if e := exemplar(traceID); e != nil {
		c.(prometheus.ExemplarAdder).AddWithExemplar(1, e)
		return
	}
	c.Inc()
}

func observe(o prometheus.Observer, took time.Duration, traceID string) {
	if e := exemplar(traceID); e != nil {
		o.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), e)
		return
	}
	o.Observe(took.Seconds())
}
