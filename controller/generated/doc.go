// Package generated holds the clientset, informers, listers and applyconfigurations of
// the Canary API, written by tools/generate.sh with k8s.io/code-generator.
package generated
