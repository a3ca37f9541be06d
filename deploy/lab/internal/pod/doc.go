// Package pod is the lab's container runtime: it runs each pod's containers as
// processes of this machine, or as nothing at all (hollow), and reports them
// as a kubelet does.
//
// It implements virtual-kubelet's provider interface. Decisions (back-off,
// probe thresholds, environment, status) are pure functions with the time as
// an argument; pods are driven by events, so that an idle pod costs no
// goroutine. It imports internal/image, internal/process and client-go.
package pod
