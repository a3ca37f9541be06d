package outlier

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestPodProxies(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	pod := func(namespace, name, ip string, change func(*corev1.Pod)) {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"mesh": "in"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
		}
		if change != nil {
			change(p)
		}
		if err := store.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	running := func(name string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "app"}, {Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}}}
	}
	pod("shop", "sidecar", "10.0.0.1", func(p *corev1.Pod) { p.Status.ContainerStatuses = running("istio-proxy") })
	pod("shop", "native", "fd00::1", func(p *corev1.Pod) { p.Status.InitContainerStatuses = running("istio-proxy") })
	pod("shop", "gateway", "10.0.0.3", func(p *corev1.Pod) { p.Status.ContainerStatuses = running("envoy") })
	pod("shop", "pending", "", nil)
	pod("shop", "done", "10.0.0.4", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pod("shop", "leaving", "10.0.0.5", func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now })
	pod("shop", "unlabelled", "10.0.0.6", func(p *corev1.Pod) { p.Labels = nil })
	pod("office", "elsewhere", "10.0.0.7", nil)

	lister := PodProxies{Pods: corelisters.NewPodLister(store), Namespace: "shop", Selector: labels.SelectorFromSet(labels.Set{"mesh": "in"})}
	got, err := lister.Proxies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Proxy{
		"uid-sidecar": {ID: "uid-sidecar", Name: "shop/sidecar", Address: "10.0.0.1", Created: t0},
		"uid-native":  {ID: "uid-native", Name: "shop/native", Address: "fd00::1", Created: t0},
		"uid-gateway": {ID: "uid-gateway", Name: "shop/gateway", Address: "10.0.0.3", Created: time.Time{}},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for _, p := range got {
		if p != want[p.ID] {
			t.Errorf("got %+v, want %+v", p, want[p.ID])
		}
	}

	lister.Namespace = ""
	if got, err := lister.Proxies(t.Context()); err != nil || len(got) != 4 {
		t.Errorf("all namespaces: %d proxies, %v; want 4", len(got), err)
	}
	lister.Selector = nil
	if _, err := lister.Proxies(t.Context()); err == nil || !strings.Contains(err.Error(), "no label selector") {
		t.Errorf("no selector: %v", err)
	}
}
