// Package outlier is an http.RoundTripper for callers without a service mesh. It
// balances the requests of one cluster over endpoints from a list, from DNS or
// from any Resolver, round robin, and gives the caller what an Istio
// DestinationRule gives a sidecar, under the same names: connectionPool's limits
// and outlierDetection's ejections. ParsePolicy reads the DestinationRule's own
// YAML, strictly.
//
// # Ejection
//
// An endpoint is ejected when it has given consecutive5xxErrors 5xx in a row, or
// consecutiveGatewayErrors 502, 503 or 504. Failures to connect, resets,
// responses that break off (503) and timeouts (504) count as both, as in Envoy
// without splitExternalLocalOriginErrors. A caller that cancels, a request that
// net/http would refuse, a request body that fails and an overflow of the pool
// count against no endpoint.
//
// An ejection lasts baseEjectionTime times the ejections in a row, at most 300 s
// or the base if that is longer, and ends with the next sweep; there is a sweep
// each interval. Every sweep an interval or more after the return takes one off
// the multiplier again. At most maxEjectionPercent of the endpoints are ejected,
// but always one; an ejection beyond that is counted as an overflow and the
// endpoint's errors start anew. While fewer than minHealthPercent are healthy,
// ejection is off: all endpoints get traffic and none is ejected. Since one is
// always ejectable and minHealthPercent is 0 by default, a cluster of a single
// endpoint is without any while that is ejected (ErrNoHealthyEndpoint); set
// minHealthPercent where that is worse than a failing endpoint.
//
// # Limits
//
// The limits hold for all endpoints of the cluster together. Where one is
// reached the request fails at once with *OverflowError; only tcp.maxConnections
// lets it wait for a connection, among the pending requests. A failure to
// connect is tried again on the next endpoint, twice by default (WithRetry),
// within http.maxRetries.
//
// Differences from Envoy: http2MaxRequests is also checked before a request
// waits, not only when it gets its connection; while ejection is off, Envoy goes
// on marking endpoints that it then ignores; a connection that cannot be
// established counts once, also when the request it was for has given up.
//
// Semantics from Istio's API (networking.istio.io/v1 DestinationRule), its
// translation for Envoy, and Envoy's documentation of outlier detection, circuit
// breaking and panic threshold, as of 2026.
//
// # Metrics
//
// Names are Envoy's with envoy_cluster_ replaced by client_cluster_, with the
// label cluster_name: outlier_detection_ejections_active,
// outlier_detection_ejections_{detected,enforced,overflow}_total{type},
// upstream_{cx,rq,rq_pending,rq_retry}_active, upstream_overflow_total{reason},
// membership_{healthy,hosts} and others. No label carries an endpoint; those are
// in the log and in Transport.Endpoints.
//
// # Imports
//
// The package may import the standard library, prometheus/client_golang, a YAML
// decoder and golang.org/x/net, and nothing of Kubernetes. The detector is pure:
// it is given the time and returns decisions. All goroutines belong to the
// Transport and end with its Close.
package outlier
