// Package grpcmw gives gRPC servers and clients what package middleware gives
// net/http: the caller's trace context, request id and allowlisted headers
// carried from what comes in to what goes out, spans, and request metrics.
//
//	server, err := grpcmw.NewServer(grpcmw.WithRegisterer(reg))
//	...
//	s := grpc.NewServer(server.Options()...)
//	ratings.RegisterRatingsServer(s, impl)
//	server.Init(s)
//
//	client, err := grpcmw.NewClient(grpcmw.WithRegisterer(reg))
//	...
//	conn, err := grpc.NewClient("dns:///ratings:9080", append(client.DialOptions(), creds)...)
//
// Spans are otelgrpc's; it is given no propagator, because
// middleware/propagation reads and writes the metadata: with B3, W3C and
// Jaeger formats, the trust policy, and "-bin" keys, which are text in HTTP
// and bytes in gRPC metadata, right in both directions.
//
// Two things gRPC does not allow: "user-agent" is the library's own and cannot
// be set per call, and values outside printable ASCII can only travel under a
// "-bin" key, so others are dropped (and counted by the configuration's drop
// hook).
//
// The package may import google.golang.org/grpc, otelgrpc, the OpenTelemetry
// API, the Prometheus client and middleware/propagation. It imports nothing of
// Kubernetes.
package grpcmw
