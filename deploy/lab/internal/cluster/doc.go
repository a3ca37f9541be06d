// Package cluster runs a Kubernetes control plane as child processes: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, each the lab
// binary itself under another subcommand.
//
// It imports internal/process and client-go, and nothing of the servers.
package cluster
