package compose

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// running is a Deployment as an API server returns it.
const running = `{
 "apiVersion": "apps/v1", "kind": "Deployment",
 "metadata": {"name": "web", "namespace": "prod", "uid": "1-2", "resourceVersion": "9", "generation": 3, "creationTimestamp": "2026-11-30T10:00:00Z",
  "labels": {"app": "web"}, "finalizers": ["x/y"], "ownerReferences": [{"apiVersion": "canarycontroller.tech.com/v1alpha1", "kind": "Canary", "name": "web", "uid": "3"}],
  "annotations": {"deployment.kubernetes.io/revision": "3", "kubectl.kubernetes.io/last-applied-configuration": "{}", "canarycontroller.tech.com/manifest": "h", "team": "a"},
  "managedFields": [{"manager": "kubectl"}]},
 "spec": {"replicas": 4, "revisionHistoryLimit": 10, "selector": {"matchLabels": {"app": "web"}},
  "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "web", "tier": "front"}},
   "spec": {"initContainers": [{"name": "init", "image": "init:1"}], "containers": [{"name": "web", "image": "web:v1", "ports": [{"containerPort": 8080, "protocol": "TCP"}]}, {"name": "proxy", "image": "proxy:1"}]}}},
 "status": {"replicas": 4}}`

func edited(t *testing.T, edit func(map[string]any)) []byte {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(running), &tree); err != nil {
		t.Fatal(err)
	}
	edit(tree)
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func options(images ...Image) Options {
	return Options{Images: images, TotalBatches: 2, PauseType: v1alpha1.PauseFirst}
}

func decoded(t *testing.T, text string) *appsv1.Deployment {
	t.Helper()
	m, err := v1alpha1.DecodeDeployment(text)
	if err != nil {
		t.Fatal(err)
	}
	return m.Deployment
}

func TestCompose(t *testing.T) {
	got, err := Compose([]byte(running), options(Image{"web", "web:v2"}))
	if err != nil {
		t.Fatal(err)
	}
	c := got.Canary
	hash := shortHash([]string{"web:v2", "proxy:1", "init:1"})
	if c.Name != "web" || c.Namespace != "prod" || c.Spec.Info.Type != v1alpha1.CanaryDeploy || c.Spec.Info.TotalBatches.IntValue() != 2 || c.Spec.Info.CurrentBatch.IntValue() != 1 {
		t.Errorf("made %+v", c)
	}
	fresh, old := decoded(t, c.Spec.Info.NewDeploymentYaml), decoded(t, c.Spec.Info.OldDeploymentYaml)
	if fresh.Name != "web-"+hash || old.Name != "web" {
		t.Errorf("names are %s and %s, want web-%s and web", fresh.Name, old.Name, hash)
	}
	if fresh.Spec.Template.Spec.Containers[0].Image != "web:v2" || fresh.Spec.Template.Spec.Containers[1].Image != "proxy:1" || old.Spec.Template.Spec.Containers[0].Image != "web:v1" {
		t.Error("the images are wrong")
	}
	for which, d := range map[string]*appsv1.Deployment{"new": fresh, "old": old} {
		if !maps.Equal(d.Annotations, map[string]string{"team": "a"}) || len(d.OwnerReferences) > 0 || len(d.Finalizers) > 0 || d.Namespace != "" || *d.Spec.Replicas != 4 {
			t.Errorf("%s has %+v", which, d.ObjectMeta)
		}
	}
	for _, text := range []string{c.Spec.Info.NewDeploymentYaml, c.Spec.Info.OldDeploymentYaml} {
		for _, field := range []string{"status", "uid", "managedFields", "creationTimestamp", "resourceVersion", "generation"} {
			if strings.Contains(text, field) {
				t.Errorf("%s is left in\n%s", field, text)
			}
		}
	}
	checkApart(t, got)
	if fresh.Spec.Template.Labels[VersionLabel] != hash || fresh.Spec.Template.Labels["app"] != "web" || len(old.Spec.Template.Labels) != 2 {
		t.Errorf("labels are %v and %v", fresh.Spec.Template.Labels, old.Spec.Template.Labels)
	}
	if len(got.Notes) != 2 || !strings.Contains(got.Notes[0], VersionLabel) || !strings.Contains(got.Notes[1], "PodDisruptionBudget") {
		t.Errorf("notes are %q", got.Notes)
	}
}

// checkApart holds that the new version selects its own pods and not the old one's.
func checkApart(t *testing.T, r Result) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(decoded(t, r.Canary.Spec.Info.NewDeploymentYaml).Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if selector.Matches(labels.Set(r.OldLabels)) || !selector.Matches(labels.Set(r.NewLabels)) {
		t.Errorf("%s against the old %v and the new %v", selector, r.OldLabels, r.NewLabels)
	}
}

// TestReleaseAfterRelease makes one Canary after the other, each from the Deployment that
// the one before left: names do not grow, and both versions select their own pods only.
func TestReleaseAfterRelease(t *testing.T) {
	deployment := []byte(running)
	seen := map[string]bool{"web": true}
	for n := range 4 {
		got, err := Compose(deployment, options(Image{"web", fmt.Sprintf("web:v%d", n+2)}))
		if err != nil {
			t.Fatal(err)
		}
		checkApart(t, got)
		fresh := decoded(t, got.Canary.Spec.Info.NewDeploymentYaml)
		if seen[fresh.Name] || len(fresh.Name) != len("web-")+8 || got.Canary.Name != "web" {
			t.Errorf("release %d is %s of Canary %s, after %v", n, fresh.Name, got.Canary.Name, seen)
		}
		seen[fresh.Name] = true
		if n > 0 {
			old, err := metav1.LabelSelectorAsSelector(decoded(t, got.Canary.Spec.Info.OldDeploymentYaml).Spec.Selector)
			if err != nil || old.Matches(labels.Set(got.NewLabels)) {
				t.Errorf("the old version's %s also selects the new pods %v", old, got.NewLabels)
			}
			if len(got.Notes) != 1 {
				t.Errorf("notes are %q", got.Notes)
			}
		}
		if deployment, err = yaml.YAMLToJSON([]byte(got.Canary.Spec.Info.NewDeploymentYaml)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesAndOptions(t *testing.T) {
	long := strings.Repeat("a", 60)
	for name, tc := range map[string]struct {
		deployment []byte
		edit       func(*Options)
		canary     string
		fresh      string
	}{
		"given":        {[]byte(running), func(o *Options) { o.Name, o.NewName = "release", "web-v2" }, "release", "web-v2"},
		"the last one": {edited(t, func(d map[string]any) { child(child(d, "metadata"), "annotations")[v1alpha1.AnnotationCanary] = "shop" }), func(*Options) {}, "shop", "web-" + shortHash([]string{"web:v2", "proxy:1", "init:1"})},
		"a long one":   {edited(t, func(d map[string]any) { child(d, "metadata")["name"] = long }), func(*Options) {}, long, long[:37] + "-" + shortHash([]string{"web:v2", "proxy:1", "init:1"})},
		"version label": {edited(t, func(d map[string]any) {
			child(child(child(d, "spec"), "selector"), "matchLabels")["version"] = "v1"
			child(child(child(child(d, "spec"), "template"), "metadata"), "labels")["version"] = "v1"
		}), func(o *Options) { o.NewName = "b" }, "web", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(Image{"web", "web:v2"})
			tc.edit(&o)
			got, err := Compose(tc.deployment, o)
			if err != nil {
				t.Fatal(err)
			}
			if fresh := decoded(t, got.Canary.Spec.Info.NewDeploymentYaml).Name; got.Canary.Name != tc.canary || fresh != tc.fresh {
				t.Errorf("made Canary %s of %s, want %s of %s", got.Canary.Name, fresh, tc.canary, tc.fresh)
			}
			checkApart(t, got)
		})
	}
	o := options(Image{"web", "web:v2"})
	o.Batches = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("50%")}
	o.Gate = &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "error-rate", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "1%"}}}}
	got, err := Compose([]byte(running), o)
	if err != nil || got.Canary.Spec.Info.TotalBatches != nil || len(got.Canary.Spec.Batches) != 2 || got.Canary.Spec.Gate == nil {
		t.Errorf("made %+v, %v", got.Canary, err)
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		deployment []byte
		o          Options
		want       string
	}{
		"which container":    {[]byte(running), options(Image{"", "web:v2"}), "has 2 containers; say which with --image CONTAINER=web:v2 (one of web, proxy, init)"},
		"no such container":  {[]byte(running), options(Image{"app", "web:v2"}), "has no container app; it has web, proxy, init"},
		"the same image":     {[]byte(running), options(Image{"web", "web:v1"}), "runs this image already"},
		"the same name":      {[]byte(running), Options{Images: []Image{{"web", "web:v2"}}, NewName: "web", TotalBatches: 1, PauseType: v1alpha1.PauseFirst}, "would have the old one's name"},
		"a bad name":         {[]byte(running), Options{Images: []Image{{"web", "web:v2"}}, NewName: "Web", TotalBatches: 1, PauseType: v1alpha1.PauseFirst}, `name "Web"`},
		"a bad gate":         {[]byte(running), Options{Images: []Image{{"web", "web:v2"}}, TotalBatches: 1, PauseType: v1alpha1.PauseFirst, Gate: &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "a", Proportion: &v1alpha1.ProportionCheck{Preset: "nginx", Max: "1%"}}}}}, "spec.gate.checks[0].proportion.preset"},
		"too long a name":    {[]byte(running), Options{Images: []Image{{"web", "web:v2"}}, Name: strings.Repeat("a", 64), TotalBatches: 1, PauseType: v1alpha1.PauseFirst}, "choose one with --name"},
		"an unknown field":   {edited(t, func(d map[string]any) { child(d, "spec")["novelty"] = 1 }), options(Image{"web", "web:v2"}), `unknown field "spec.novelty"`},
		"no Deployment":      {[]byte("7"), options(Image{"web", "web:v2"}), "reading the Deployment"},
		"an empty one":       {[]byte("{}"), options(Image{"web", "web:v2"}), "has no name"},
		"without a selector": {edited(t, func(d map[string]any) { delete(child(d, "spec"), "selector") }), options(Image{"web", "web:v2"}), "no selector"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Compose(tc.deployment, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestParseImage(t *testing.T) {
	for text, want := range map[string]Image{
		"web:v2": {"", "web:v2"}, "web=registry:5000/web@sha256:ab": {"web", "registry:5000/web@sha256:ab"},
	} {
		if got, err := ParseImage(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "web=", "=web:v2", "a b", "We_b=x"} {
		if got, err := ParseImage(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
