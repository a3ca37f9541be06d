module github.com/canarycontroller/canary-controller/middleware/conformance

go 1.26.0

replace github.com/canarycontroller/canary-controller => ../..

require (
	github.com/canarycontroller/canary-controller v0.0.0-00010101000000-000000000000
	github.com/openzipkin/zipkin-go v0.4.3
	github.com/uber/jaeger-client-go v2.30.0+incompatible
	go.opentelemetry.io/contrib/propagators/b3 v1.47.0
	go.opentelemetry.io/contrib/propagators/jaeger v1.47.0
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/trace v1.47.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/opentracing/opentracing-go v1.2.0 // indirect
	github.com/uber/jaeger-lib v2.4.1+incompatible // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/grpc v1.85.0 // indirect
)
