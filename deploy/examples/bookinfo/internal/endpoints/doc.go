// Package endpoints finds the other services of the application: by name in
// DNS, from a fixed list, or from a file that someone else keeps up to date
// (for places without DNS, such as the laboratory's loopback network).
//
// It imports gRPC's resolver API and middleware/outlier.
package endpoints
