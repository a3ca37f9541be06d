package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestFormulaTargets(t *testing.T) {
	for _, tc := range []struct {
		total, batches int32
		want           []int32
	}{
		{4, 2, []int32{1, 4}}, // the example of the original product
		{4, 4, []int32{1, 2, 3, 4}},
		{10, 4, []int32{1, 4, 7, 10}}, // 2.5 rounds away from zero
		{10, 3, []int32{1, 4, 10}},
		{5, 10, []int32{1, 2, 3, 4, 5, 5, 5, 5, 5, 5}},
		{2, 5, []int32{1, 1, 1, 1, 2}}, // 0.4 rounds to 0: only the last batch moves
		{1, 3, []int32{1, 1, 1}},
		{0, 3, []int32{0, 0, 0}},
		{7, 1, []int32{7}},
	} {
		if got := FormulaTargets(tc.total, tc.batches); !slices.Equal(got, tc.want) {
			t.Errorf("FormulaTargets(%d, %d) = %v, want %v", tc.total, tc.batches, got, tc.want)
		}
	}
}

// TestFormulaTargetsExhaustively holds every total up to 200 with every number of batches
// up to 50 to the formula's own terms.
func TestFormulaTargetsExhaustively(t *testing.T) {
	for total := range int32(201) {
		for batches := int32(1); batches <= 50; batches++ {
			checkTargets(t, FormulaTargets(total, batches), total, int(batches))
		}
	}
}

func checkTargets(t interface{ Fatalf(string, ...any) }, targets []int32, total int32, count int) {
	if len(targets) != count {
		t.Fatalf("total %d: %d targets, want %d", total, len(targets), count)
	}
	if !slices.IsSorted(targets) {
		t.Fatalf("total %d: %v decreases", total, targets)
	}
	if targets[0] < min(1, total) || targets[len(targets)-1] != total {
		t.Fatalf("total %d: %v does not begin with a replica and end with the total", total, targets)
	}
}

func TestListTargets(t *testing.T) {
	list := func(items ...string) []intstr.IntOrString {
		var list []intstr.IntOrString
		for _, item := range items {
			list = append(list, intstr.Parse(item))
		}
		return list
	}
	for _, tc := range []struct {
		list            []intstr.IntOrString
		manifest, total int32
		want            []int32
	}{
		{list("10%", "50%", "100%"), 10, 10, []int32{1, 5, 10}},
		{list("10%", "50%", "100%"), 4, 4, []int32{1, 2, 4}}, // rounded up: no empty batch
		{list("1", "3"), 4, 4, []int32{1, 3, 4}},             // the total is added
		{list("1", "4"), 4, 4, []int32{1, 4}},
		{list("1", "4"), 4, 9, []int32{1, 9}}, // an autoscaler moved the total, not the number of batches
		{list("1", "4", "9"), 9, 4, []int32{1, 4, 4}},
		{list("50%", "25%"), 8, 8, []int32{4, 4, 8}}, // never decreasing
		{list("100%"), 0, 0, []int32{0}},
		{list("5"), 1, 1, []int32{1}},
	} {
		if got := ListTargets(tc.list, tc.manifest, tc.total); !slices.Equal(got, tc.want) {
			t.Errorf("ListTargets(%v, %d, %d) = %v, want %v", tc.list, tc.manifest, tc.total, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) intstr.IntOrString {
			if rapid.Bool().Draw(t, "percent") {
				return intstr.FromString(fmt.Sprintf("%d%%", rapid.IntRange(1, 100).Draw(t, "percents")))
			}
			return intstr.FromInt32(rapid.Int32Range(1, 300).Draw(t, "replicas"))
		}), 1, 20).Draw(t, "list")
		manifest, total := rapid.Int32Range(0, 200).Draw(t, "manifest"), rapid.Int32Range(0, 200).Draw(t, "total")
		before := fmt.Sprint(items)
		got := ListTargets(items, manifest, total)
		checkTargets(t, got, total, len(got))
		if len(got) != len(items) && len(got) != len(items)+1 {
			t.Fatalf("%d items became %d batches", len(items), len(got))
		}
		if fmt.Sprint(items) != before {
			t.Fatalf("the list was changed: %s, was %s", fmt.Sprint(items), before)
		}
	})
}

func canary(change ...func(*v1alpha1.Canary)) (*v1alpha1.Canary, *v1alpha1.Release) {
	c := &v1alpha1.Canary{}
	c.Name, c.Namespace = "release", "prod"
	manifest := func(name string) string {
		return strings.ReplaceAll(`apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 4
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: main, image: "NAME:1"}]}
`, "NAME", name)
	}
	c.Spec.Info = v1alpha1.CanaryInfo{
		Type: v1alpha1.CanaryDeploy, TotalBatches: new(intstr.FromInt32(2)),
		NewDeploymentYaml: manifest("new"), OldDeploymentYaml: manifest("old"),
	}
	for _, f := range change {
		f(c)
	}
	v1alpha1.SetDefaults(c)
	release, errs := v1alpha1.Validate(c)
	if len(errs) > 0 {
		panic(errs.ToAggregate())
	}
	return c, release
}

func TestIDKnowsWhatIsReleased(t *testing.T) {
	base := ID(canary())
	// This value is in the status of running rollouts: a change of it restarts them all.
	if base != "v1-4e0aef3026ed4437" {
		t.Errorf("the id of the same release has become %s", base)
	}
	for name, change := range map[string]func(*v1alpha1.Canary){
		"approval":    func(c *v1alpha1.Canary) { c.Spec.Info.CurrentBatch = new(intstr.FromString("2")) },
		"pause":       func(c *v1alpha1.Canary) { c.Spec.Paused = true },
		"pause type":  func(c *v1alpha1.Canary) { c.Spec.Info.PauseType = v1alpha1.PauseEach },
		"deadline":    func(c *v1alpha1.Canary) { c.Spec.ProgressDeadlineSeconds = new(int32(9)) },
		"rollback":    func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.CanaryRollback },
		"number form": func(c *v1alpha1.Canary) { c.Spec.Info.TotalBatches = new(intstr.FromString("2")) },
		"comment":     func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = "# v2\n" + c.Spec.Info.NewDeploymentYaml },
		"order of keys": func(c *v1alpha1.Canary) {
			c.Spec.Info.NewDeploymentYaml = strings.Replace(c.Spec.Info.NewDeploymentYaml, "apiVersion: apps/v1\nkind: Deployment\n", "kind: Deployment\napiVersion: apps/v1\n", 1)
		},
		"deletionPolicy": func(c *v1alpha1.Canary) { c.Spec.DeletionPolicy = v1alpha1.DeletionPolicyOrphan },
	} {
		if got := ID(canary(change)); got != base {
			t.Errorf("%s changes the id", name)
		}
	}
	ids := map[string]string{base: "base"}
	for name, change := range map[string]func(*v1alpha1.Canary){
		"new": func(c *v1alpha1.Canary) {
			c.Spec.Info.NewDeploymentYaml = strings.Replace(c.Spec.Info.NewDeploymentYaml, "new:1", "new:2", 1)
		},
		"old": func(c *v1alpha1.Canary) {
			c.Spec.Info.OldDeploymentYaml = strings.Replace(c.Spec.Info.OldDeploymentYaml, "old:1", "old:2", 1)
		},
		"no old":  func(c *v1alpha1.Canary) { c.Spec.Info.OldDeploymentYaml = "" },
		"batches": func(c *v1alpha1.Canary) { c.Spec.Info.TotalBatches = new(intstr.FromInt32(3)) },
		"list":    func(c *v1alpha1.Canary) { c.Spec.Batches = []intstr.IntOrString{intstr.FromString("2")} },
		"family":  func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.NormalDeploy },
	} {
		id := ID(canary(change))
		if earlier, taken := ids[id]; taken {
			t.Errorf("%s and %s have one id, %s", name, earlier, id)
		}
		ids[id] = name
	}
}
