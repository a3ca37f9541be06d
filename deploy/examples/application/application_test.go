package main

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func hello() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "examples.canarycontroller.tech.com/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": "hello", "namespace": "shop", "uid": "1234", "generation": int64(7)},
		"spec": map[string]any{
			"image": "registry/hello:v1", "replicas": int64(2), "port": int64(8080),
			"env": []any{map[string]any{"name": "GREETING", "value": "hello"}, map[string]any{"name": "EMPTY"}},
		},
	}}
}

func decoded(t *testing.T) *application {
	t.Helper()
	app, err := decode(hello())
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func TestDeployment(t *testing.T) {
	d := decoded(t).deployment()
	if *d.Name != "hello" || *d.Namespace != "shop" || *d.Spec.Replicas != 2 {
		t.Errorf("%s/%s with %d replicas", *d.Namespace, *d.Name, *d.Spec.Replicas)
	}
	owner := d.OwnerReferences[0]
	if *owner.UID != "1234" || *owner.Kind != "Application" || *owner.APIVersion != "examples.canarycontroller.tech.com/v1alpha1" || !*owner.Controller {
		t.Errorf("owner %+v", owner)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if *c.Image != "registry/hello:v1" || *c.Ports[0].ContainerPort != 8080 {
		t.Errorf("image %s, port %d", *c.Image, *c.Ports[0].ContainerPort)
	}
	if len(c.Env) != 2 || *c.Env[0].Name != "GREETING" || *c.Env[0].Value != "hello" || *c.Env[1].Value != "" {
		t.Errorf("env %+v", c.Env)
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the selector's %s=%s is not on the pods", k, v)
		}
	}
}

func TestService(t *testing.T) {
	a := decoded(t)
	s := a.service()
	if p := s.Spec.Ports[0]; *p.Port != 8080 || p.TargetPort.StrVal != *a.deployment().Spec.Template.Spec.Containers[0].Ports[0].Name {
		t.Errorf("port %+v", p)
	}
	for k, v := range s.Spec.Selector {
		if a.deployment().Spec.Template.Labels[k] != v {
			t.Errorf("the selector's %s=%s is not on the pods", k, v)
		}
	}
}

func TestStatus(t *testing.T) {
	long := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	deployment := func(generation, observed int64, updated, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: observed, UpdatedReplicas: updated, AvailableReplicas: available},
		}
	}
	for _, tc := range []struct {
		name   string
		before metav1.ConditionStatus
		d      *appsv1.Deployment
		want   metav1.ConditionStatus
		reason string
	}{
		{"all available", "", deployment(1, 1, 2, 2), metav1.ConditionTrue, reasonAsDesired},
		{"still all available", metav1.ConditionTrue, deployment(1, 1, 2, 2), metav1.ConditionTrue, reasonAsDesired},
		{"one missing", metav1.ConditionTrue, deployment(1, 1, 2, 1), metav1.ConditionFalse, reasonProgressing},
		{"old pods only", metav1.ConditionTrue, deployment(2, 2, 1, 2), metav1.ConditionFalse, reasonProgressing},
		{"new form not seen yet", metav1.ConditionTrue, deployment(2, 1, 2, 2), metav1.ConditionFalse, reasonProgressing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := decoded(t)
			if tc.before != "" {
				a.Status.Conditions = []metav1.Condition{{Type: conditionAvailable, Status: tc.before, Reason: reasonAsDesired, LastTransitionTime: long}}
			}
			before := a.Status.Conditions
			s := a.status(tc.d)
			c := s.Conditions[0]
			if len(s.Conditions) != 1 || c.Status != tc.want || c.Reason != tc.reason || c.ObservedGeneration != 7 || s.ObservedGeneration != 7 {
				t.Errorf("got %+v", s)
			}
			if s.AvailableReplicas != tc.d.Status.AvailableReplicas {
				t.Errorf("%d available, want %d", s.AvailableReplicas, tc.d.Status.AvailableReplicas)
			}
			if kept := c.LastTransitionTime.Equal(&long); kept != (tc.before == tc.want) {
				t.Errorf("transition at %v", c.LastTransitionTime)
			}
			if len(before) > 0 && before[0].Status != tc.before {
				t.Error("the given status was changed")
			}
		})
	}
}

func TestDecodeSharesNothing(t *testing.T) {
	obj := hello()
	app, err := decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	app.Spec.Env[0].Value = "changed"
	app.Status = app.failed(reasonRefused, "no")
	env, _, _ := unstructured.NestedSlice(obj.Object, "spec", "env")
	if env[0].(map[string]any)["value"] != "hello" || obj.Object["status"] != nil {
		t.Errorf("the cached object changed: %v", obj.Object)
	}
}

func TestOwnerName(t *testing.T) {
	yes := true
	object := func(owner ...metav1.OwnerReference) metav1.Object {
		return &metav1.ObjectMeta{Namespace: "shop", Name: "hello-x", OwnerReferences: owner}
	}
	mine := metav1.OwnerReference{APIVersion: "examples.canarycontroller.tech.com/v1alpha1", Kind: "Application", Name: "hello", Controller: &yes}
	other := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Application", Name: "hello", Controller: &yes}
	for _, tc := range []struct {
		name   string
		object metav1.Object
		want   string
	}{
		{"ours", object(mine), "shop/hello"},
		{"another group's", object(other), ""},
		{"nobody's", object(), "shop/hello-x"},
	} {
		got, ok := ownerName(tc.object)
		if ok != (tc.want != "") || (ok && got.String() != tc.want) {
			t.Errorf("%s: got %v, %v; want %q", tc.name, got, ok, tc.want)
		}
	}
}
