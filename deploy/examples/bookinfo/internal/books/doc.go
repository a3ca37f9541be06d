// Package books is what the four services do: productpage asks details and
// reviews over HTTP, reviews of version v2 and v3 asks ratings over gRPC. Paths
// and JSON are those of Istio's bookinfo sample, so that tools made for it
// work; the text is our own.
//
// It imports middleware and its packages and the generated ratings contract.
package books
