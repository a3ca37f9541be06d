// Package middleware gives an HTTP service what a mesh's sidecar cannot: it
// carries the trace context and the request id from the requests that come in
// to the requests that go out, makes spans of both, and counts them.
//
//	reg := prometheus.NewRegistry()
//	mux := http.NewServeMux()
//	mux.HandleFunc("GET /products/{id}", product)
//	server := &http.Server{Handler: middleware.Handler(mux, middleware.WithRegisterer(reg))}
//	client := &http.Client{Transport: middleware.Transport(nil, middleware.WithRegisterer(reg))}
//
// A request sent by client with the context of a request received by server
// continues its trace. Nothing else is needed: the formats are found and
// written as package propagation documents, and package tracing sets a process
// up to export spans. Without a tracer provider, or with WithForwardOnly,
// headers are still carried over.
//
// # Server
//
// Handler extracts the caller's state, resolves the request id (echoed on the
// response, set on the span, added to log records by NewLogHandler), starts a
// server span and counts the request. The span is named and labelled by the
// route of the http.ServeMux that served it; see Handler for when the mux must
// be named. Panics are recorded and go on. The http.ResponseWriter handed on
// implements exactly what the server's does.
//
// # Client
//
// Transport injects the state of the request's context into a copy of the
// request. It starts a client span per attempt, which ends when the body is
// read to its end or closed, or the context is done.
//
// # Trust
//
// What a caller sends is believed as far as the trust policy goes, one for
// trace ids, sampling flags, request id, baggage and forwarded headers
// (propagation.WithTrust). A caller whose ids are not trusted gets a new trace
// with a link to its own; WithPublicEndpoint trusts nothing.
//
// # Metrics
//
// With WithRegisterer:
//
//	http_server_request_duration_seconds{http_request_method,http_route,http_response_status_code}
//	http_server_active_requests{http_request_method}
//	http_client_request_duration_seconds{http_request_method,http_response_status_code,server_address}
//	http_forwarded_headers_dropped_total{reason}
//
// No label takes values a client can make up: unknown methods are "_OTHER",
// the route comes from the ServeMux's pattern, the status label is empty when
// none was sent or received, and the number of label sets has a limit.
//
// # What is imported
//
// The OpenTelemetry API (not its SDK), github.com/prometheus/client_golang and
// package propagation. Nothing of Kubernetes.
package middleware
