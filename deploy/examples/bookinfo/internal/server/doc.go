// Package server runs one service of the demonstration: its own port, the
// admin port with metrics, health and faults, tracing, and a shutdown that
// finishes what it began.
//
// It imports middleware and its packages, the Prometheus client, gRPC and
// package fault.
package server
