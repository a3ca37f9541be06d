// Package propagation carries a request's trace context, request id and
// forwarded headers from the way in to the way out.
//
// One [State], kept once in the context, holds everything: ids with their
// original width, the four B3 sampling states, the W3C tracestate, the request
// id, allowlisted headers and baggage. [Extract] reads it from a request,
// [Inject] writes it to the next one, and [Current] merges it with the active
// OpenTelemetry span. [NewPropagator] offers the same through OpenTelemetry's
// TextMapPropagator.
//
// Formats: B3 single and multi header (github.com/openzipkin/b3-propagation),
// W3C Trace Context level 2 (w3.org/TR/trace-context-2) and Jaeger's
// uber-trace-id (jaegertracing.io, "Propagation Format").
//
// Everything here is a pure function of its arguments, apart from the random
// numbers new ids are made of, which [WithRand] replaces. Values are safe for
// concurrent use unless they are being written.
//
// The package may import the standard library and OpenTelemetry's API
// (go.opentelemetry.io/otel/trace, /propagation); no SDK, no gRPC, nothing of
// Kubernetes.
package propagation
