// Package elasticsearch stands in for the Elasticsearch client when Jaeger is
// built here. The real one is 847 packages, a third of the time that Jaeger
// takes to compile, and only a Jaeger that stores its traces in Elasticsearch 8
// or later calls it; the one that tests and the demo start keeps them in
// memory. It imports the standard library only.
package elasticsearch
