// Package outlier reports what Envoy proxies think of the two versions of a
// Canary: which endpoints the proxies of the callers have ejected, how many
// of the proxies eject, how many could be read at all, and how many ejections
// there have been.
//
// Every client proxy decides alone, so the numbers are counted from the
// callers' side: ejecting proxies out of observed proxies. A proxy that could
// not be read, a proxy that publishes no outlier statistics and a proxy that
// never connected to the version are not observed. With no observed proxy the
// ejection gauges are absent rather than 0: blindness never looks like health.
//
// # Sources
//
// A [Source] is one of
//
//   - [KindEnvoyStats]: Envoy's Prometheus statistics of each proxy
//     (/stats/prometheus; Istio serves them on ports 15090 and 15020). Istio
//     does not publish outlier statistics unless the *calling* pods opt in
//     (proxyStatsMatcher, applied when the pod starts). A version is visible
//     only through a DestinationRule subset, a Service of its own or explicit
//     cluster names. How many distinct endpoints are ejected is not in these
//     statistics: the largest number any one proxy reports is a lower bound.
//   - [KindEnvoyAdmin]: the admin endpoint /clusters?format=json of each
//     proxy. It names every ejected endpoint and needs no opt-in, so it also
//     tells versions behind one Service apart, by pod address. It has no
//     ejection counters: ejections are counted as changes from one sweep to
//     the next, type "unspecified", which is a lower bound. It cannot say
//     whether outlier detection is configured at all.
//   - [KindPrometheus]: a Prometheus that already scrapes the proxies.
//
// A [Collector] sweeps its source in the background, in bounded time; a
// scrape renders the last sweep and never waits for one.
//
// # Structure
//
// Parsing (statstext.go, clustersjson.go), attribution of clusters to roles
// (target.go, interest.go) and accounting (ledger.go) are pure: no clock, no
// network. This package imports nothing of this module; which Canaries exist
// is the caller's [Target] list.
package outlier
