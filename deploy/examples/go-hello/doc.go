// Command go-hello is the service that the example Canaries release: it answers
// with its version. It imports the standard library only.
package main
