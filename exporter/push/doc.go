// Package push hands the metrics of short-lived jobs - a CI step, a one-shot
// command - to a Prometheus Pushgateway, and takes them back when the job is
// done with: a Pushgateway never forgets by itself, and what nobody deletes is
// scraped for ever.
//
// Long-running processes serve /metrics and do not push; the controller of
// this module never does.
//
//	err := push.Run(ctx, push.Config{URL: gateway, Job: "release-check", Gatherer: registry}, check)
//
// The package is a layer over client_golang's push package: timeouts, retries,
// the life of the group. It imports nothing of this module.
package push
