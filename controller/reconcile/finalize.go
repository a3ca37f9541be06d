package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// ensureFinalizer adds the finalizer before anything is created that it must take care of.
func (c *Controller) ensureFinalizer(ctx context.Context, canary *v1alpha1.Canary) error {
	if slices.Contains(canary.Finalizers, v1alpha1.Finalizer) {
		return nil
	}
	if err := c.setFinalizers(ctx, canary, append(slices.Clone(canary.Finalizers), v1alpha1.Finalizer)); err != nil {
		return err
	}
	if !slices.Contains(canary.Finalizers, v1alpha1.Finalizer) {
		return fmt.Errorf("the Canary %s/%s is gone: %w", canary.Namespace, canary.Name, errConflict)
	}
	return nil
}

func (c *Controller) setFinalizers(ctx context.Context, canary *v1alpha1.Canary, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": canary.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("writing finalizers of Canary %s/%s: %w", canary.Namespace, canary.Name, err)
	}
	updated, err := c.canaries.CanarycontrollerV1alpha1().Canaries(canary.Namespace).Patch(ctx, canary.Name,
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("setting finalizers of Canary %s/%s: %w", canary.Namespace, canary.Name, errConflict)
	case err != nil:
		return fmt.Errorf("setting finalizers of Canary %s/%s: %w", canary.Namespace, canary.Name, err)
	}
	c.written.Store(cache.MetaObjectToName(canary), updated.ResourceVersion)
	canary.ResourceVersion = updated.ResourceVersion
	canary.Finalizers = updated.Finalizers
	return nil
}

// finalize takes care of the Deployments of a Canary that is being deleted. With Orphan
// every Deployment stays and is released. With Delete those that the controller created
// go with the Canary; if one of them holds a part of the capacity and the other was there
// before, the latter is brought back to full first, for at most the progress deadline.
func (c *Controller) finalize(ctx context.Context, canary *v1alpha1.Canary) error {
	if !slices.Contains(canary.Finalizers, v1alpha1.Finalizer) {
		return nil
	}
	if canary.Spec.DeletionPolicy == v1alpha1.DeletionPolicyOrphan {
		if err := c.releaseDeployments(ctx, canary); err != nil {
			return err
		}
	} else {
		wait, err := c.restoreOld(ctx, canary)
		if err != nil {
			return err
		}
		if wait > 0 {
			c.queue.AddAfter(cache.MetaObjectToName(canary), wait)
			return nil
		}
	}
	if c.observer != nil {
		c.observer.Deleted(canary)
	}
	return c.setFinalizers(ctx, canary, slices.DeleteFunc(slices.Clone(canary.Finalizers),
		func(f string) bool { return f == v1alpha1.Finalizer }))
}

// releaseDeployments takes the Canary's owner reference off every Deployment.
func (c *Controller) releaseDeployments(ctx context.Context, canary *v1alpha1.Canary) error {
	deployments, err := c.deployments.Deployments(canary.Namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Deployments of %s: %w", canary.Namespace, err)
	}
	for _, d := range deployments {
		if !ownedBy(d, canary) {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(d.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == canary.UID })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": d.ResourceVersion, "ownerReferences": rest,
		}})
		if err != nil {
			return fmt.Errorf("releasing Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
		_, err = c.kube.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
		switch {
		case apierrors.IsNotFound(err):
		case apierrors.IsConflict(err):
			return fmt.Errorf("releasing Deployment %s/%s: %w", d.Namespace, d.Name, errConflict)
		case err != nil:
			return fmt.Errorf("releasing Deployment %s/%s: %w", d.Namespace, d.Name, err)
		default:
			c.recorder.Eventf(canary, corev1.EventTypeNormal, string(v1alpha1.ReasonDeploymentsReleased), "released Deployment %s, it stays", d.Name)
		}
	}
	return nil
}

// restoreOld brings an old Deployment that outlives the Canary back to full and says how
// long to wait for it, or 0 when there is nothing to wait for.
func (c *Controller) restoreOld(ctx context.Context, canary *v1alpha1.Canary) (wait time.Duration, err error) {
	status := canary.Status
	if status.Old == nil || status.New == nil || status.Rollout == nil ||
		status.Rollout.Outcome == v1alpha1.OutcomeCompleted || status.Rollout.Outcome == v1alpha1.OutcomeRolledBack {
		return 0, nil
	}
	old := c.deploymentOf(canary, status.Old.Name)
	released := c.deploymentOf(canary, status.New.Name)
	if old == nil || old.DeletionTimestamp != nil || ownedBy(old, canary) || released == nil || !ownedBy(released, canary) {
		return 0, nil
	}
	if replicasOf(old) < status.TotalReplicas {
		if c.ledger.ahead(old) {
			return time.Second, nil
		}
		if err := c.scale(ctx, old, status.TotalReplicas); err != nil {
			return 0, err
		}
		c.recorder.Eventf(canary, corev1.EventTypeNormal, string(v1alpha1.ReasonDeploymentsRestored),
			"bringing Deployment %s back to %d replicas before the Canary goes", old.Name, status.TotalReplicas)
	}
	left := canary.DeletionTimestamp.Add(time.Duration(*canary.Spec.ProgressDeadlineSeconds) * time.Second).Sub(c.now())
	if w := workload(old, nil); left > 0 && (!w.Settled || w.Replicas < status.TotalReplicas || w.Available < status.TotalReplicas) {
		// Its own events bring the Canary back sooner.
		return left, nil
	}
	return 0, nil
}

func (c *Controller) deploymentOf(canary *v1alpha1.Canary, name string) *appsv1.Deployment {
	d, err := c.deployments.Deployments(canary.Namespace).Get(name)
	if err != nil {
		return nil
	}
	return d
}
