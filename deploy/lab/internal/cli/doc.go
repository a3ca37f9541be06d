// Package cli is the lab's command line. It imports internal/cluster and
// internal/kubelet, and no server.
package cli
