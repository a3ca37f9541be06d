// Package fault makes a service slow or wrong on purpose: the demonstration's
// bad releases. What to do to a request is a pure decision; the HTTP and gRPC
// parts apply it inside the middleware, so that metrics and spans show it.
//
// It imports the standard library and gRPC.
package fault
