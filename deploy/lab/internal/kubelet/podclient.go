package kubelet

import (
	"context"
	"strings"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/pod"
)

// podClient is the client of the pod controller with a kubelet's manners: a
// status report leaves the conditions of others alone, and a pod is removed
// only when nothing of it runs any more.
type podClient struct {
	corev1client.PodsGetter
	lister corev1listers.PodLister
	engine *pod.Engine
}

func (c *podClient) Pods(namespace string) corev1client.PodInterface {
	return &pods{PodInterface: c.PodsGetter.Pods(namespace), namespace: namespace, client: c}
}

type pods struct {
	corev1client.PodInterface
	namespace string
	client    *podClient
}

// owned are the conditions a kubelet reports.
var owned = map[corev1.PodConditionType]bool{
	corev1.PodReadyToStartContainers: true, corev1.PodInitialized: true, corev1.PodReady: true,
	corev1.ContainersReady: true, corev1.PodScheduled: true,
}

func (p *pods) UpdateStatus(ctx context.Context, update *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error) {
	if known, err := p.client.lister.Pods(p.namespace).Get(update.Name); err == nil && known.UID == update.UID {
		update = update.DeepCopy()
		update.Status.Conditions = mergeConditions(update.Status.Conditions, known.Status.Conditions)
	}
	return p.PodInterface.UpdateStatus(ctx, update, opts)
}

// mergeConditions is ours with what others have set.
func mergeConditions(ours, known []corev1.PodCondition) []corev1.PodCondition {
	var merged []corev1.PodCondition
	for _, c := range ours {
		if owned[c.Type] {
			merged = append(merged, c)
		}
	}
	for _, c := range known {
		if !owned[c.Type] {
			merged = append(merged, c)
		}
	}
	return merged
}

func (p *pods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if opts.Preconditions != nil && opts.Preconditions.UID != nil {
		// virtual-kubelet removes a pod none of whose containers runs without
		// telling the provider first.
		if known, err := p.client.lister.Pods(p.namespace).Get(name); err == nil && known.UID == *opts.Preconditions.UID {
			if err := p.client.engine.DeletePod(ctx, known.DeepCopy()); err != nil && !errdefs.IsNotFound(err) {
				return err
			}
		}
		p.client.engine.Stopped(ctx, types.NamespacedName{Namespace: p.namespace, Name: name}, *opts.Preconditions.UID)
	}
	return p.PodInterface.Delete(ctx, name, opts)
}

// quietRecorder drops the events of virtual-kubelet that no kubelet has.
type quietRecorder struct{ record.EventRecorder }

func (q quietRecorder) Event(object runtime.Object, kind, reason, message string) {
	if !strings.HasPrefix(reason, "Provider") || kind == corev1.EventTypeWarning {
		q.EventRecorder.Event(object, kind, reason, message)
	}
}

func (q quietRecorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	if !strings.HasPrefix(reason, "Provider") || kind == corev1.EventTypeWarning {
		q.EventRecorder.Eventf(object, kind, reason, format, args...)
	}
}
