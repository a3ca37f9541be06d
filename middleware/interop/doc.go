// Package interop holds no code, only tests of the middleware against what it
// has to work with: the bookinfo application as real processes, a real Jaeger
// (over OTLP and over the agent's UDP protocol), and services instrumented
// with other libraries.
//
// It is a module of its own so that those libraries stay out of the product's
// go.mod. The Jaeger is built by deploy/servers, or taken from
// $CANARY_JAEGER when that names one.
package interop
