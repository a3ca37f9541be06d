// Package docs lists the metrics of the operator in metrics.md. The list is
// generated from a scrape of every package's metrics, and a test fails when a
// scrape and the list differ, so that a rename or a new label is reviewed and
// not found out by somebody's dashboard. After a wanted change:
//
//	go test ./exporter/docs -update
//
// The package may import every package with metrics of the operator.
package docs
