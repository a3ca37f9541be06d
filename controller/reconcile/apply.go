package reconcile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

// rejection is a Deployment that the API server will not have, now or later.
type rejection struct{ err error }

func (r *rejection) Error() string { return r.err.Error() }
func (r *rejection) Unwrap() error { return r.err }

// act carries out one action on one Deployment.
func (c *Controller) act(ctx context.Context, canary *v1alpha1.Canary, release *v1alpha1.Release, v view, name string, action rollout.Action) error {
	live := v.live[name]
	switch action.Verb {
	case rollout.Apply:
		return c.apply(ctx, canary, release, v, name, action.Replicas)
	case rollout.Scale:
		return c.scale(ctx, live, action.Replicas)
	case rollout.Delete:
		return c.remove(ctx, canary, live)
	}
	return nil
}

// apply brings a Deployment to its manifest by server-side apply, if anything may have
// changed since this process last did. Fields that the manifest does not name stay with
// their owners.
func (c *Controller) apply(ctx context.Context, canary *v1alpha1.Canary, release *v1alpha1.Release, v view, name string, replicas int32) error {
	live := v.live[name]
	config, err := c.config(canary, release, v, name, replicas)
	if err != nil {
		return err
	}
	entry, known := c.ledger.get(canary.Namespace, name)
	if live != nil && known && entry.matches(live, config) {
		return nil
	}
	applied, err := c.patch(ctx, canary, name, config, live, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	c.ledger.put(applied, config)
	logger := klog.FromContext(ctx)
	switch {
	case live == nil && known && entry.uid == applied.UID:
		// The cache has not heard of it yet.
	case live == nil:
		logger.Info("Created Deployment", "deployment", name, "replicas", replicas)
		c.recorder.Eventf(canary, corev1.EventTypeNormal, string(v1alpha1.ReasonDeploymentCreated), "created Deployment %s with %d replicas", name, replicas)
	case known && v.scaled[name] == 0 && entry.uid == live.UID && entry.config == hashOf(config) && applied.Generation > live.Generation:
		logger.Info("Put right a Deployment that somebody changed", "deployment", name)
		c.recorder.Eventf(canary, corev1.EventTypeWarning, string(v1alpha1.ReasonDeploymentRepaired), "put Deployment %s right, somebody had changed it", name)
	case applied.ResourceVersion != live.ResourceVersion:
		logger.Info("Applied Deployment", "deployment", name, "replicas", replicas)
	}
	return nil
}

// dryRun asks the API server whether it would take everything that a new rollout may apply.
func (c *Controller) dryRun(ctx context.Context, canary *v1alpha1.Canary, release *v1alpha1.Release, v view, d rollout.Decision) error {
	for _, name := range sortedKeys(manifestsOf(release)) {
		config, err := c.config(canary, release, v, name, d.Actions[name].Replicas)
		if err != nil {
			return err
		}
		_, err = c.patch(ctx, canary, name, config, nil, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if refused(err) {
			field := "newDeploymentYaml"
			if release.Old != nil && release.Old.ObjectMeta().Name == name {
				field = "oldDeploymentYaml"
			}
			return &rejection{fmt.Errorf("spec.info.%s: %w", field, errors.Unwrap(err))}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refused says whether the API server will not have an object whatever is tried again. It
// answers duplicate keys of a list, such as a port named twice, as an internal error.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed to create typed patch object")
}

// patch applies a document, to the version that was seen if there was one: an autoscaler or
// another operator may have written since.
func (c *Controller) patch(ctx context.Context, canary *v1alpha1.Canary, name string, config []byte, live *appsv1.Deployment, options metav1.PatchOptions) (*appsv1.Deployment, error) {
	if live != nil {
		var tree map[string]any
		if err := json.Unmarshal(config, &tree); err != nil {
			return nil, fmt.Errorf("reading the apply configuration of Deployment %s: %w", name, err)
		}
		childMap(tree, "metadata")["resourceVersion"] = live.ResourceVersion
		var err error
		if config, err = json.Marshal(tree); err != nil {
			return nil, fmt.Errorf("writing the apply configuration of Deployment %s: %w", name, err)
		}
	}
	options.FieldManager, options.Force = v1alpha1.FieldManager, new(true)
	applied, err := c.kube.AppsV1().Deployments(canary.Namespace).Patch(ctx, name, types.ApplyPatchType, config, options)
	switch {
	case apierrors.IsConflict(err):
		return nil, fmt.Errorf("applying Deployment %s/%s: %w", canary.Namespace, name, errConflict)
	case err != nil:
		return nil, fmt.Errorf("applying Deployment %s/%s: %w", canary.Namespace, name, err)
	}
	return applied, nil
}

// config renders the server-side apply document of a Deployment: the author's own fields
// and the few that the controller adds.
func (c *Controller) config(canary *v1alpha1.Canary, release *v1alpha1.Release, v view, name string, replicas int32) ([]byte, error) {
	manifest, live := manifestsOf(release)[name], v.live[name]
	var tree map[string]any
	decoder := json.NewDecoder(bytes.NewReader(manifest.Canonical))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("reading the manifest of Deployment %s: %w", name, err)
	}
	meta := childMap(tree, "metadata")
	annotations := childMap(meta, "annotations")
	annotations[v1alpha1.AnnotationCanary] = canary.Name
	annotations[v1alpha1.AnnotationManifest] = hashOf(manifest.Canonical)
	isOld := release.Old != nil && name == release.Old.ObjectMeta().Name && !release.SameName()
	if isOld {
		annotations[v1alpha1.AnnotationNewShare] = strconv.Itoa(int(max(0, v.plan.Total-replicas)))
	}
	if canary.Spec.DeletionPolicy == v1alpha1.DeletionPolicyDelete && (live == nil || ownedBy(live, canary)) {
		owner := metav1.NewControllerRef(canary, v1alpha1.SchemeGroupVersion.WithKind("Canary"))
		meta["ownerReferences"] = []any{owner}
	}
	spec := childMap(tree, "spec")
	spec["replicas"] = replicas
	if canary.Spec.Info.Type == v1alpha1.NormalDeploy && v.scaled[name] > 0 && live != nil && replicasOwnedByOthers(live) {
		// Left out, the field stays as its owner has it, also when that changes this very moment.
		delete(spec, "replicas")
	}
	config, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("writing the apply configuration of Deployment %s: %w", name, err)
	}
	return config, nil
}

func childMap(tree map[string]any, key string) map[string]any {
	value, ok := tree[key].(map[string]any)
	if !ok {
		value = map[string]any{}
		tree[key] = value
	}
	return value
}

// replicasOwnedByOthers says whether another manager than the controller has set
// spec.replicas. A field that nobody else owns falls back to its default, 1, when the
// controller leaves it out.
func replicasOwnedByOthers(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Manager == v1alpha1.FieldManager || entry.FieldsV1 == nil {
			return false
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		// Fields that cannot be read are nobody's.
		_ = json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields)
		_, owned := fields.Spec["f:replicas"]
		return owned
	})
}

func ownedBy(d *appsv1.Deployment, canary *v1alpha1.Canary) bool {
	return slices.ContainsFunc(d.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == canary.UID })
}

// scale changes a Deployment's replicas and nothing else, on the version that was seen.
func (c *Controller) scale(ctx context.Context, live *appsv1.Deployment, replicas int32) error {
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"replicas":%d}}`, live.ResourceVersion, replicas)
	scaled, err := c.kube.AppsV1().Deployments(live.Namespace).Patch(ctx, live.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("scaling Deployment %s/%s: %w", live.Namespace, live.Name, errConflict)
	case err != nil:
		return fmt.Errorf("scaling Deployment %s/%s: %w", live.Namespace, live.Name, err)
	}
	c.ledger.seen(scaled)
	klog.FromContext(ctx).Info("Scaled Deployment", "deployment", live.Name, "from", replicasOf(live), "to", replicas)
	return nil
}

// remove deletes the very Deployment that was seen, not one of the same name made since.
func (c *Controller) remove(ctx context.Context, canary *v1alpha1.Canary, live *appsv1.Deployment) error {
	err := c.kube.AppsV1().Deployments(live.Namespace).Delete(ctx, live.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &live.UID},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("deleting Deployment %s/%s: %w", live.Namespace, live.Name, errConflict)
	case err != nil:
		return fmt.Errorf("deleting Deployment %s/%s: %w", live.Namespace, live.Name, err)
	}
	c.ledger.deleted(live)
	klog.FromContext(ctx).Info("Deleted Deployment", "deployment", live.Name)
	c.recorder.Eventf(canary, corev1.EventTypeNormal, string(v1alpha1.ReasonDeploymentDeleted), "deleted Deployment %s", live.Name)
	return nil
}

func hashOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:8])
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
