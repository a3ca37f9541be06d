// Command demo shows releases from start to finish on a Kubernetes API server of its own:
// go-hello v1, a Canary to v2 in four batches with an approval after the first, and a
// rollback to v1. Then three releases of bookinfo's reviews under load, decided by the gate
// on evidence from Prometheus: a healthy one that is promoted, one with errors that is
// rolled back, and one that is held while Prometheus is down.
//
// It builds what is missing, starts the lab, Prometheus and Jaeger, installs the operator
// from deploy/kustomize/base, and goes through the steps, each with a deadline. A step that
// does not reach its state, or not by the decision that it should, fails the demo.
// Everything it starts ends with it. It imports the API, the generated client and
// deploy/servers, never the controller itself.
package main
