// Package conformance holds middleware/propagation against other
// implementations of the same formats and against the W3C's test cases.
//
// The tests compare every codec with OpenTelemetry's, contrib's, zipkin-go's
// and jaeger-client-go's on the same input. Where they differ, the difference
// must be one of those listed, with the reason, in DISAGREEMENTS.md; any other
// fails the test. The fuzz targets do the same on inputs nobody thought of.
//
// It is a module of its own so that those libraries stay out of the product's
// go.mod. It may import anything it compares with, and is imported by nothing.
package conformance
