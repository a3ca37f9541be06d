package reconcile

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

// view is what one sync has seen.
type view struct {
	plan rollout.Plan
	seen rollout.Observed
	// live holds the Deployments by name as cached; never to be changed.
	live map[string]*appsv1.Deployment
	// autoscalers names those that target the new or the old Deployment.
	autoscalers []string
	// scaled holds the minimum replicas of the autoscalers, by the Deployment they target.
	scaled map[string]int32
	// stale says that a cached Deployment is older than this process's last write of it.
	stale bool
}

// observe gathers from the caches what a decision needs.
func (c *Controller) observe(canary *v1alpha1.Canary, release *v1alpha1.Release) view {
	v := view{live: map[string]*appsv1.Deployment{}, scaled: map[string]int32{}}
	manifests := manifestsOf(release)
	names := slices.Collect(maps.Keys(manifests))
	names = append(names, canary.Status.Retiring...)
	if canary.Status.New != nil {
		// It is retired when another release supersedes it, in this very sync.
		names = append(names, canary.Status.New.Name)
	}
	for _, name := range names {
		deployment, err := c.deployments.Deployments(canary.Namespace).Get(name)
		if err != nil {
			continue
		}
		v.live[name] = deployment
		v.stale = v.stale || c.ledger.ahead(deployment)
	}
	v.findAutoscalers(c, canary.Namespace, manifests)
	v.plan = rollout.NewPlan(canary, release, v.total(release))
	if canary.Spec.Info.Type != v1alpha1.NormalDeploy {
		v.plan = v.plan.WithAutoscalers(v.scaled[v.plan.NewName], v.scaled[v.plan.OldName])
	}
	v.seen = rollout.Observed{Retiring: map[string]rollout.Workload{}}
	for _, name := range names {
		if manifests[name] == nil {
			v.seen.Retiring[name] = workload(v.live[name], nil)
		}
	}
	v.seen.New = workload(v.live[v.plan.NewName], manifests[v.plan.NewName])
	if v.plan.OldName != "" {
		v.seen.Old = workload(v.live[v.plan.OldName], manifests[v.plan.OldName])
	}
	return v
}

// manifestsOf returns a release's manifests by name. When both have one name, it is the
// old one: only CanaryRollback allows that, and it puts the old manifest in place.
func manifestsOf(release *v1alpha1.Release) map[string]*v1alpha1.Manifest {
	manifests := map[string]*v1alpha1.Manifest{release.New.ObjectMeta().Name: release.New}
	if release.Old != nil {
		manifests[release.Old.ObjectMeta().Name] = release.Old
	}
	return manifests
}

func (v *view) findAutoscalers(c *Controller, namespace string, manifests map[string]*v1alpha1.Manifest) {
	all, err := c.autoscalers.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, hpa := range all {
		target := hpa.Spec.ScaleTargetRef
		if target.Kind == "Deployment" && manifests[target.Name] != nil && hpa.DeletionTimestamp == nil {
			v.autoscalers = append(v.autoscalers, hpa.Name)
			v.scaled[target.Name] = 1
			if hpa.Spec.MinReplicas != nil {
				v.scaled[target.Name] = max(1, *hpa.Spec.MinReplicas)
			}
		}
	}
	slices.Sort(v.autoscalers)
}

// total is the number of replicas that the release is split over: those of the new
// manifest (of the old one when both are one Deployment), unless an autoscaler decides.
//
// An autoscaler on the old Deployment asks, at any moment, for as many as stand in its
// spec.replicas, besides those that the new version stands in for; the controller notes
// the latter on the Deployment in the same write that takes them away, so the sum follows
// the autoscaler and is never a number from the past. An autoscaler on the new Deployment
// alone decides once it is all there is.
func (v *view) total(release *v1alpha1.Release) int32 {
	manifest, name := release.New, release.New.ObjectMeta().Name
	if release.Old != nil {
		name = release.Old.ObjectMeta().Name
	}
	if release.SameName() {
		manifest = release.Old
	}
	live := v.live[name]
	switch {
	case v.scaled[name] == 0:
		return manifest.Replicas()
	case live != nil && live.DeletionTimestamp == nil && (release.Old == nil || release.SameName()):
		return replicasOf(live)
	case live != nil && live.DeletionTimestamp == nil:
		return replicasOf(live) + newShare(live)
	}
	// Somebody deleted it: what stands in for it by now is the least that is needed.
	if released := v.live[release.New.ObjectMeta().Name]; released != nil {
		return max(manifest.Replicas(), replicasOf(released))
	}
	return manifest.Replicas()
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

func newShare(old *appsv1.Deployment) int32 {
	share, err := strconv.ParseInt(old.Annotations[v1alpha1.AnnotationNewShare], 10, 32)
	// The annotation is open to editing; no release is this large.
	if err != nil || share < 0 || share > 1_000_000 {
		return 0
	}
	return int32(share)
}

// workload renders a Deployment for the decision.
func workload(d *appsv1.Deployment, manifest *v1alpha1.Manifest) rollout.Workload {
	if d == nil {
		return rollout.Workload{}
	}
	status := d.Status
	// Those above spec.replicas are on their way out, though the status still counts them.
	available := min(status.AvailableReplicas, replicasOf(d))
	unknown := max(0, status.Replicas-status.UpdatedReplicas)
	return rollout.Workload{
		Exists:    true,
		Deleting:  d.DeletionTimestamp != nil,
		Settled:   status.ObservedGeneration >= d.Generation,
		Shrinking: status.UpdatedReplicas > replicasOf(d) || status.AvailableReplicas > replicasOf(d) && !d.Spec.Paused,
		Current:   manifest != nil && d.Annotations[v1alpha1.AnnotationManifest] == hashOf(manifest.Canonical),
		Replicas:  replicasOf(d),
		Available: available,
		Updated:   min(status.UpdatedReplicas, max(0, available-unknown)),
	}
}

func keyOf(d *appsv1.Deployment) types.NamespacedName {
	return types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
}
