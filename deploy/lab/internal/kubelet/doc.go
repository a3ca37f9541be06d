// Package kubelet joins nodes to the lab's cluster with virtual-kubelet: one
// node controller for each, and one pod controller and one kubelet API server
// for all of them.
package kubelet
