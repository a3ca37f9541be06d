// Package servers builds and runs the real servers that tests and the demo
// talk to: the lab's Kubernetes, Prometheus, Jaeger and Helm.
//
// Each server is a program of a Go module of its own beside this package, so
// that none of its imports reach the product's go.mod. A built program is kept
// in the user's cache directory under a name that changes with everything it
// was built from. The package imports the standard library only. Linux.
package servers
