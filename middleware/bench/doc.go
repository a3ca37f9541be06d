// Package bench measures the middleware side by side with what Go services use
// for the same job: otelhttp with contrib's b3 propagator, zipkin-go,
// opentracing's nethttp on jaeger-client-go, and promhttp. It is a module of
// its own, so that none of them enters the product's go.mod.
//
//	go test -bench . -count 6 -cpu 1
//
// Every server gets the same request and writes to the same writer, which
// records nothing; every client the same stub instead of a network. Those that
// use OpenTelemetry's SDK use it with the same batch processor and an exporter
// that drops what it is given.
package bench
