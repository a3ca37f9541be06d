package reconcile

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// byDeployment indexes Canaries by namespace/name of every Deployment they speak of.
const byDeployment = "deployment"

// watch registers the event handlers and the index. Handlers only add to the queue.
func (c *Controller) watch(logger klog.Logger) error {
	err := c.canary.AddIndexers(cache.Indexers{byDeployment: func(obj any) ([]string, error) {
		canary, ok := obj.(*v1alpha1.Canary)
		if !ok {
			return nil, fmt.Errorf("indexing Canaries by Deployment: got a %T", obj)
		}
		return deploymentKeys(canary), nil
	}})
	if err != nil {
		return fmt.Errorf("adding the index by Deployment: %w", err)
	}
	handlers := []struct {
		informer cache.SharedIndexInformer
		enqueue  func(obj any)
		what     string
	}{
		{c.canary, c.enqueueCanary, "Canaries"},
		{c.deployment, c.enqueueDeployment, "Deployments"},
		{c.autoscaler, c.enqueueAutoscaler, "HorizontalPodAutoscalers"},
	}
	for _, h := range handlers {
		enqueue := func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			h.enqueue(obj)
		}
		_, err := h.informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
			DeleteFunc: func(obj any) {
				if deployment, ok := obj.(*appsv1.Deployment); ok {
					c.ledger.forget(deployment)
				}
				enqueue(obj)
			},
		}, cache.HandlerOptions{Logger: &logger})
		if err != nil {
			return fmt.Errorf("watching %s: %w", h.what, err)
		}
	}
	return nil
}

// deploymentKeys returns the keys of the Deployments in a Canary's manifests and status.
func deploymentKeys(canary *v1alpha1.Canary) []string {
	names := v1alpha1.DeploymentNames(canary)
	for _, w := range []*v1alpha1.WorkloadStatus{canary.Status.New, canary.Status.Old} {
		if w != nil {
			names = append(names, w.Name)
		}
	}
	names = append(names, canary.Status.Retiring...)
	keys := make([]string, 0, len(names))
	for _, name := range names {
		keys = append(keys, types.NamespacedName{Namespace: canary.Namespace, Name: name}.String())
	}
	return keys
}

// enqueueCanary adds a Canary, and those that share a Deployment with it: when it ends or
// goes, they may begin.
func (c *Controller) enqueueCanary(obj any) {
	canary, ok := obj.(*v1alpha1.Canary)
	if !ok {
		return
	}
	c.queue.Add(cache.MetaObjectToName(canary))
	for _, key := range deploymentKeys(canary) {
		for _, other := range c.canariesOf(key) {
			if other.Status.Phase == v1alpha1.PhaseInvalid {
				c.queue.Add(cache.MetaObjectToName(other))
			}
		}
	}
}

func (c *Controller) enqueueDeployment(obj any) {
	if deployment, ok := obj.(*appsv1.Deployment); ok {
		c.enqueueFor(deployment.Namespace, deployment.Name)
	}
}

func (c *Controller) enqueueAutoscaler(obj any) {
	if hpa, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler); ok && hpa.Spec.ScaleTargetRef.Kind == "Deployment" {
		c.enqueueFor(hpa.Namespace, hpa.Spec.ScaleTargetRef.Name)
	}
}

func (c *Controller) enqueueFor(namespace, deployment string) {
	for _, canary := range c.canariesOf(types.NamespacedName{Namespace: namespace, Name: deployment}.String()) {
		c.queue.Add(cache.MetaObjectToName(canary))
	}
}

// canariesOf returns the Canaries that speak of a Deployment.
func (c *Controller) canariesOf(key string) []*v1alpha1.Canary {
	objects, err := c.canary.GetIndexer().ByIndex(byDeployment, key)
	if err != nil {
		// Only possible when the index does not exist, and watch adds it.
		panic(fmt.Sprintf("index of Canaries by Deployment %s: %v", key, err))
	}
	canaries := make([]*v1alpha1.Canary, 0, len(objects))
	for _, obj := range objects {
		if canary, ok := obj.(*v1alpha1.Canary); ok {
			canaries = append(canaries, canary)
		}
	}
	return canaries
}
