// Package prometheus gathers what package gate judges from Prometheus: counts of requests,
// single values, the state of alerting rules, and the trace ids of failing requests.
//
// A [Gatherer] never judges. What is a number becomes a number; everything else becomes
// NoData or Error with the reason, so that an unreachable server, a renamed metric or an
// ambiguous query holds a batch instead of passing for health or harm. Queries are instant
// ones at the server's own clock, over the time since the batch became available.
//
// # Where it may go
//
// Addresses in a Canary are written by people who may not be trusted with the network of
// the controller. They may name Services of the cluster and the controller's own
// Prometheus, and what the operator allows beyond that; see [ParseAllowList]. The IP
// address that is dialled is checked, not only the name. Credentials of the controller go
// to the controller's Prometheus alone, credentials of a Secret to the Canary's addresses
// alone, and none appear in what a Gatherer returns or logs.
//
// # Structure
//
// Queries (preset.go, outlier.go), the reading of answers (sample.go, problem.go, rules.go)
// and the address policy (allow.go) are pure. It may import package gate, the API types,
// client_golang/api, prometheus/common/model and libraries that know nothing of either;
// nothing of client-go: Secrets come through a function.
package prometheus
