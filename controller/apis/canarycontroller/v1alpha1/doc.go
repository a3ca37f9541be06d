// Package v1alpha1 is the Canary API, canarycontroller.tech.com/v1alpha1: its types,
// defaults, strict decoding and validation.
//
// It imports only k8s.io/api, k8s.io/apimachinery and the standard library, so that
// command-line tools and other operators can use it without a client.
//
// +k8s:deepcopy-gen=package
// +groupName=canarycontroller.tech.com
package v1alpha1
