// Package e2e tests the exporter against a real API server and a real
// Prometheus: scrapes over TLS with ServiceAccount tokens in each exposition
// format, a scraper without the right, values, types and exemplars as Prometheus
// has them. The tests have the build tag e2e; make e2e runs them.
package e2e
