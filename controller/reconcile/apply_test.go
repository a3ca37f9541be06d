package reconcile

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

func manifestYAML(name string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, annotations: {team: blue}}
spec:
  replicas: 4
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: main, image: "%[1]s:1"}]}
`, name)
}

func release(t *testing.T, change ...func(*v1alpha1.Canary)) (*v1alpha1.Canary, *v1alpha1.Release) {
	t.Helper()
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Name: "release", Namespace: "prod", UID: "canary-uid"}}
	c.Spec.Info = v1alpha1.CanaryInfo{Type: v1alpha1.CanaryDeploy, NewDeploymentYaml: manifestYAML("new"), OldDeploymentYaml: manifestYAML("old")}
	for _, f := range change {
		f(c)
	}
	v1alpha1.SetDefaults(c)
	r, errs := v1alpha1.Validate(c)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return c, r
}

func live(name string, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID(name), Generation: 3, ResourceVersion: "10"}}
	d.Spec.Replicas = new(int32(4))
	for _, f := range change {
		f(d)
	}
	return d
}

func TestConfigIsTheManifestAndLittleElse(t *testing.T) {
	owned := func(d *appsv1.Deployment) { d.OwnerReferences = []metav1.OwnerReference{{UID: "canary-uid"}} }
	scaledByHPA := func(d *appsv1.Deployment) {
		d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)}}
	}
	normal := func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.NormalDeploy }
	orphan := func(c *v1alpha1.Canary) { c.Spec.DeletionPolicy = v1alpha1.DeletionPolicyOrphan }
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.Canary)
		name     string
		live     *appsv1.Deployment
		scaled   int32
		owner    bool
		replicas any
		share    string
	}{
		"created by us":             {name: "new", owner: true, replicas: 2.0},
		"there before":              {name: "new", live: live("new"), replicas: 2.0},
		"created by us before":      {name: "new", live: live("new", owned), owner: true, replicas: 2.0},
		"orphaned":                  {change: orphan, name: "new", live: live("new", owned), replicas: 2.0},
		"old with an autoscaler":    {name: "old", live: live("old"), scaled: 1, replicas: 2.0, share: "2"},
		"old":                       {name: "old", live: live("old"), replicas: 2.0, share: "2"},
		"normal":                    {change: normal, name: "new", live: live("new"), replicas: 2.0},
		"normal, drifted":           {change: normal, name: "new", live: live("new", scaledByHPA), replicas: 2.0},
		"normal with an autoscaler": {change: normal, name: "new", live: live("new", scaledByHPA), scaled: 1, replicas: nil},
		"normal with an autoscaler that has not scaled": {change: normal, name: "new", live: live("new"), scaled: 1, replicas: 2.0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = func(*v1alpha1.Canary) {}
			}
			canary, r := release(t, tc.change)
			v := view{live: map[string]*appsv1.Deployment{tc.name: tc.live}, scaled: map[string]int32{tc.name: tc.scaled}, plan: rollout.NewPlan(canary, r, 4)}
			raw, err := (&Controller{}).config(canary, r, v, tc.name, 2)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Metadata metav1.ObjectMeta
				Spec     map[string]any
				Status   any
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if got.Spec["replicas"] != tc.replicas {
				t.Errorf("replicas are %v, want %v", got.Spec["replicas"], tc.replicas)
			}
			if (len(got.Metadata.OwnerReferences) == 1) != tc.owner {
				t.Errorf("owners are %v", got.Metadata.OwnerReferences)
			}
			if got.Metadata.Annotations["team"] != "blue" || got.Metadata.Annotations[v1alpha1.AnnotationCanary] != "release" ||
				got.Metadata.Annotations[v1alpha1.AnnotationNewShare] != tc.share {
				t.Errorf("annotations are %v", got.Metadata.Annotations)
			}
			if got.Status != nil || got.Spec["strategy"] != nil {
				t.Errorf("fields that the author did not write: %s", raw)
			}
		})
	}
}

func TestTotalFollowsAutoscalers(t *testing.T) {
	_, both := release(t)
	_, first := release(t, func(c *v1alpha1.Canary) { c.Spec.Info.OldDeploymentYaml = "" })
	replicas := func(n int32, share string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Replicas = new(n)
			d.Annotations = map[string]string{v1alpha1.AnnotationNewShare: share}
		}
	}
	for name, tc := range map[string]struct {
		release *v1alpha1.Release
		live    []*appsv1.Deployment
		scaled  string
		want    int32
	}{
		"nobody":                {both, []*appsv1.Deployment{live("old", replicas(9, ""))}, "", 4},
		"old, before the start": {both, []*appsv1.Deployment{live("old", replicas(9, ""))}, "old", 9},
		"old, new stands for 3": {both, []*appsv1.Deployment{live("old", replicas(6, "3")), live("new", replicas(3, ""))}, "old", 9},
		"old, share unreadable": {both, []*appsv1.Deployment{live("old", replicas(6, "-x"))}, "old", 6},
		"old, not there":        {both, nil, "old", 4},
		"new, while old stands": {both, []*appsv1.Deployment{live("new", replicas(2, ""))}, "new", 4},
		"new, alone":            {first, []*appsv1.Deployment{live("new", replicas(7, ""))}, "new", 7},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{live: map[string]*appsv1.Deployment{}, scaled: map[string]int32{tc.scaled: 1}}
			for _, d := range tc.live {
				v.live[d.Name] = d
			}
			if got := v.total(tc.release); got != tc.want {
				t.Errorf("total is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestWorkloadCountsCautiously(t *testing.T) {
	status := func(replicas, generation int32, s appsv1.DeploymentStatus) *appsv1.Deployment {
		return live("new", func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Generation, d.Status = &replicas, int64(generation), s
		})
	}
	for name, tc := range map[string]struct {
		d    *appsv1.Deployment
		want rollout.Workload
	}{
		"absent": {nil, rollout.Workload{}},
		"whole": {status(3, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}),
			rollout.Workload{Exists: true, Settled: true, Replicas: 3, Available: 3, Updated: 3}},
		"status of an earlier spec": {status(3, 2, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}),
			rollout.Workload{Exists: true, Replicas: 3, Available: 3, Updated: 3}},
		"half replaced: one of two available is new at least": {status(3, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 4, UpdatedReplicas: 3, AvailableReplicas: 2}),
			rollout.Workload{Exists: true, Settled: true, Replicas: 3, Available: 2, Updated: 1}},
		"replaced but none available": {status(3, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 4, UpdatedReplicas: 1, AvailableReplicas: 3}),
			rollout.Workload{Exists: true, Settled: true, Replicas: 3, Available: 3, Updated: 0}},
		"scaled down, status behind": {status(3, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 4, UpdatedReplicas: 4, AvailableReplicas: 4}),
			rollout.Workload{Exists: true, Settled: true, Shrinking: true, Replicas: 3, Available: 3, Updated: 3}},
		"scaled down to fewer than are available of all": {status(2, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 1, AvailableReplicas: 3}),
			rollout.Workload{Exists: true, Settled: true, Shrinking: true, Replicas: 2, Available: 2}},
	} {
		if got := workload(tc.d, nil); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestLedger(t *testing.T) {
	l := ledger{entries: map[types.NamespacedName]ledgerEntry{}}
	config := []byte(`{"metadata":{"annotations":{"a":"1"}}}`)
	applied := live("new", func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "1", "b": "2"} })
	l.put(applied, config)
	entry, known := l.get("prod", "new")
	for name, tc := range map[string]struct {
		d      *appsv1.Deployment
		config string
		want   bool
	}{
		"as applied":         {applied, string(config), true},
		"other config":       {applied, `{}`, false},
		"edited":             {live("new", func(d *appsv1.Deployment) { d.Annotations, d.Generation = applied.Annotations, 4 }), string(config), false},
		"annotation removed": {live("new"), string(config), false},
		"made anew":          {live("new", func(d *appsv1.Deployment) { d.Annotations, d.UID = applied.Annotations, "other" }), string(config), false},
	} {
		if got := known && entry.matches(tc.d, []byte(tc.config)); got != tc.want {
			t.Errorf("%s: matches is %t", name, got)
		}
	}
	version := func(v string) func(*appsv1.Deployment) { return func(d *appsv1.Deployment) { d.ResourceVersion = v } }
	if !l.ahead(live("new", version("9"))) || l.ahead(live("new", version("10"))) || l.ahead(live("new", version("11"))) {
		t.Error("a cache is stale exactly when it is older than the last write")
	}
	l.deleted(live("new"))
	if !l.ahead(live("new", version("11"))) {
		t.Error("a Deployment that was deleted and shows no sign of it is stale")
	}
	l.forget(live("new"))
	if l.ahead(live("new", version("9"))) {
		t.Error("forgotten Deployments are remembered")
	}
}
