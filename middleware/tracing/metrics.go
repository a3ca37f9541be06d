package tracing

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// metrics count spans on both sides of the queue. What the queue itself
// dropped, which the SDK does silently, is the difference.
type metrics struct {
	queued   *prometheus.CounterVec
	exported *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		queued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tracing_spans_queued_total",
			Help: "Sampled spans handed to an exporter's queue. The queue drops spans when it is full: queued minus exported.",
		}, []string{"exporter"}),
		exported: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tracing_spans_exported_total",
			Help: "Spans handed to an exporter in batches, by whether the batch succeeded.",
		}, []string{"exporter", "result"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []**prometheus.CounterVec{&m.queued, &m.exported} {
		err := reg.Register(*c)
		if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			if existing, same := already.ExistingCollector.(*prometheus.CounterVec); same {
				*c, err = existing, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("registering the tracing metrics: %w", err)
		}
	}
	return m, nil
}

// exporterMetrics are the series of one exporter.
type exporterMetrics struct {
	queued, success, failure prometheus.Counter
}

func (m *metrics) exporter(name string) exporterMetrics {
	return exporterMetrics{
		queued:  m.queued.WithLabelValues(name),
		success: m.exported.WithLabelValues(name, "success"),
		failure: m.exported.WithLabelValues(name, "failure"),
	}
}

func (m exporterMetrics) wrap(e sdktrace.SpanExporter) sdktrace.SpanExporter {
	return countedExporter{SpanExporter: e, metrics: m}
}

func (m exporterMetrics) processor(p sdktrace.SpanProcessor) sdktrace.SpanProcessor {
	return countedProcessor{SpanProcessor: p, queued: m.queued}
}

type countedExporter struct {
	sdktrace.SpanExporter
	metrics exporterMetrics
}

func (e countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		e.metrics.failure.Add(float64(len(spans)))
		return err
	}
	e.metrics.success.Add(float64(len(spans)))
	return nil
}

type countedProcessor struct {
	sdktrace.SpanProcessor
	queued prometheus.Counter
}

func (p countedProcessor) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		p.queued.Inc()
	}
	p.SpanProcessor.OnEnd(s)
}
