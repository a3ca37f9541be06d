// Package kustomize holds the operator's manifests: base for a whole cluster,
// overlays/single-namespace for one namespace, and the tests of both. The unit
// tests read the files; those with the build tag e2e apply them to the lab's API
// server and run the operator from them. The package exports nothing.
package kustomize
