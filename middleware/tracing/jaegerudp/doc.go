// Package jaegerudp exports OpenTelemetry spans to a Jaeger agent, or to a
// Jaeger collector with the agent's receiver, as compact Thrift over UDP
// (port 6831 by convention).
//
// It exists for installations that still run agents; OTLP is the better path
// everywhere else, because UDP neither confirms nor retries.
//
// Of github.com/uber/jaeger-client-go only the generated Thrift types and the
// Thrift runtime are used. The client's own sender is not: it is not safe for
// concurrent use, guesses the size of a batch, and panics on a second Close.
// Here every packet is serialised and measured before it is sent, one
// goroutine owns the socket and the buffers, and every span that does not
// leave the process is counted with the reason.
//
// The package may import the OpenTelemetry SDK, the Thrift types and the
// Prometheus client. It imports no other package of this module.
package jaegerudp
