// Package e2e tests the operator, as a process of its own, against a real API server: the
// lab's, or that of the cluster in $E2E_KUBECONFIG with the image $E2E_IMAGE for pods, on
// which the tests that need to restart servers, to read the audit log or to make pods
// fail are skipped and say so.
//
// Tests with the build tag e2e run by `make e2e`. Serial tests, which restart the API server
// or measure time, run before the parallel ones. Those share one operator, or run operators
// of their own on a second lab.
package e2e
