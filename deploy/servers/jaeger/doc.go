// Command memory is a Jaeger that keeps its traces in memory: the receivers,
// the storage, the query API and the pages of cmd/jaeger, put together without
// its brokers, processors and exporters, which are some 600 packages that no
// test and no demo uses. Its configuration is Jaeger's own, and what is not in
// it is refused as unknown.
//
// Jaeger's components are internal packages, which Go opens to import paths
// below their parent's; that is why this module is named as it is.
//
// It imports Jaeger and the OpenTelemetry collector only.
package main
