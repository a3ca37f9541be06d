package outlier

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// PodProxies lists the proxies that run in pods, from an informer's cache.
// The pods must be those of the callers and gateways: a proxy knows about the
// endpoints it calls, not about itself.
type PodProxies struct {
	// Pods is an informer's lister.
	Pods corelisters.PodLister
	// Namespace limits the pods to one namespace; empty is all.
	Namespace string
	// Selector picks the pods; nil picks none, since reading every pod of a
	// cluster by mistake would be costly.
	Selector labels.Selector
	// Container is the proxy's container, "istio-proxy" if empty. Its start
	// time tells restarts apart; pods without such a container are read too.
	Container string
}

var _ ProxyLister = PodProxies{}

// Proxies lists the pods that run and have an address.
func (l PodProxies) Proxies(context.Context) ([]Proxy, error) {
	if l.Selector == nil {
		return nil, errors.New("no label selector for the proxies' pods")
	}
	pods, err := l.Pods.Pods(l.Namespace).List(l.Selector)
	if err != nil {
		return nil, fmt.Errorf("listing pods %q in namespace %q: %w", l.Selector, l.Namespace, err)
	}
	out := make([]Proxy, 0, len(pods))
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
			continue
		}
		out = append(out, Proxy{
			ID:      string(pod.UID),
			Name:    pod.Namespace + "/" + pod.Name,
			Address: pod.Status.PodIP,
			Created: containerStart(pod, l.Container),
		})
	}
	return out, nil
}

// containerStart is when the proxy's container started. Istio runs it either
// as an ordinary container or as an init container that restarts always.
func containerStart(pod *corev1.Pod, name string) time.Time {
	if name == "" {
		name = "istio-proxy"
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name && statuses[i].State.Running != nil {
				return statuses[i].State.Running.StartedAt.Time
			}
		}
	}
	return time.Time{}
}
