// Command demo shows a release from start to finish on a Kubernetes API server
// of its own: go-hello v1, a Canary to v2 in four batches with an approval after
// the first, and a rollback to v1.
//
// It builds what is missing, starts the lab, installs the operator from
// deploy/kustomize/base, starts a Prometheus that scrapes it, and goes through
// the steps, each with a deadline. Everything it starts ends with it. It imports
// the API, the generated client and deploy/servers, never the controller itself.
package main
