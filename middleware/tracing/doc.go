// Package tracing sets a process up for tracing in one call: resource,
// sampler, exporter, and the process-wide OpenTelemetry tracer provider and
// propagator.
//
//	p, err := tracing.Setup(ctx, tracing.WithServiceName("reviews"))
//	if err != nil { ... }
//	defer p.Shutdown(shutdownCtx) // flushes
//
// Everything can be given as an option or in the OTEL_* environment of the
// OpenTelemetry specification; an option wins over the environment. A value
// that is not understood is an error of Setup, never a silent default.
//
// Spans go to an OTLP collector by default, and to a Jaeger agent's UDP port
// with WithJaegerAgent or OTEL_TRACES_EXPORTER=jaeger.
//
// Samplers that follow the caller do so by the rules of the B3 specification:
// debug forces a span, deny and accept are followed, also when they come
// without ids, and a caller that deferred the decision leaves it to the root
// sampler. OpenTelemetry's own ParentBased sampler reads a deferred decision
// as "no".
//
// The package may import the OpenTelemetry SDK and contrib, the Prometheus
// client, middleware/propagation and middleware/tracing/jaegerudp. It imports
// nothing of Kubernetes.
package tracing
