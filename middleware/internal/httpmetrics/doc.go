// Package httpmetrics keeps the request metrics of servers and clients, named
// by the stable OpenTelemetry HTTP semantic conventions as Prometheus writes
// them:
//
//	http_server_request_duration_seconds{http_request_method,http_route,http_response_status_code}
//	http_server_active_requests{http_request_method}
//	http_client_request_duration_seconds{http_request_method,http_response_status_code,server_address}
//	http_forwarded_headers_dropped_total{reason}
//
// The durations are histograms, classic and native at once, and carry the
// trace id of a sampled request as an exemplar.
//
// Two properties matter more here than convenience. Nothing a client sends can
// create series without bound: whatever the callers pass, there is a limit on
// label sets beyond which the route (or server address) becomes "_OTHER". And
// the request path does not look labels up: a Series is found once and
// remembers its children by status.
//
// It imports github.com/prometheus/client_golang and nothing of the rest of
// this module.
package httpmetrics
