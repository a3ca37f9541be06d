package main

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/server"
)

// read reads a Canary as the API server would and checks it.
func read(t *testing.T, file string) (*v1alpha1.Canary, *v1alpha1.Release) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c v1alpha1.Canary
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	v1alpha1.SetDefaults(&c)
	release, errs := v1alpha1.Validate(&c)
	if len(errs) > 0 {
		t.Fatalf("%s: %v", file, errs.ToAggregate())
	}
	return &c, release
}

// running is a Deployment of kubernetes.yaml.
func running(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var d appsv1.Deployment
		if yaml.Unmarshal(document, &d) == nil && d.Kind == "Deployment" && d.Name == name {
			return &d
		}
	}
	t.Fatalf("kubernetes.yaml has no Deployment %s", name)
	return nil
}

// version is the Deployment without its version, and its variables apart.
func version(d *appsv1.Deployment, name string) (same string, env map[string]string) {
	d = d.DeepCopy()
	d.TypeMeta = metav1.TypeMeta{} // apps/v1 is not the version meant
	d.Namespace = ""
	env = map[string]string{}
	for _, variable := range d.Spec.Template.Spec.Containers[0].Env {
		env[variable.Name] = variable.Value
	}
	d.Spec.Template.Spec.Containers[0].Env = nil
	text, err := yaml.Marshal(d)
	if err != nil {
		return err.Error(), env
	}
	return strings.ReplaceAll(string(text), name, "VERSION"), env
}

func TestReleasesOfReviews(t *testing.T) {
	want, _ := version(running(t, "reviews-v1"), "v1")
	var gate *v1alpha1.Gate
	for _, c := range []struct {
		file, old, new string
		env            map[string]string
	}{
		{"reviews-v2.yaml", "v1", "v2", map[string]string{"VERSION": "v2"}},
		{"reviews-v3.yaml", "v2", "v3", map[string]string{"VERSION": "v3", "FAULT_ERROR_PERCENT": "5"}},
		{"reviews-v4.yaml", "v2", "v4", map[string]string{"VERSION": "v4"}},
	} {
		canary, release := read(t, c.file)
		for _, d := range []struct {
			deployment *appsv1.Deployment
			version    string
			env        map[string]string
		}{{release.Old.Deployment, c.old, map[string]string{"VERSION": c.old}}, {release.New.Deployment, c.new, c.env}} {
			got, env := version(d.deployment, d.version)
			if got != want {
				t.Errorf("%s: reviews-%s is not the others but for its version:\n%s", c.file, d.version, got)
			}
			d.env["SHUTDOWN_DELAY"], d.env["POD_IP"] = "3s", ""
			if !reflect.DeepEqual(env, d.env) {
				t.Errorf("%s: variables of reviews-%s are %v, not %v", c.file, d.version, env, d.env)
			}
			config, err := server.ConfigFromEnv("reviews", func(name string) string { return env[name] })
			if err != nil || (config.Faults.ErrorPercent == 5) != (d.version == "v3") {
				t.Errorf("%s: reviews-%s fails %v %% of its requests (%v)", c.file, d.version, config.Faults.ErrorPercent, err)
			}
		}
		if gate == nil {
			gate = canary.Spec.Gate
		}
		if gate == nil || !reflect.DeepEqual(canary.Spec.Gate, gate) {
			t.Errorf("%s: its gate is another", c.file)
		}
		if canary.Spec.Info.PauseType != v1alpha1.PauseNone || release.TotalBatches != 4 {
			t.Errorf("%s: pauses %s, %d batches", c.file, canary.Spec.Info.PauseType, release.TotalBatches)
		}
	}
}
