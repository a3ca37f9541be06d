package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func deploymentYAML(name string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  replicas: 4
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
      - name: hello
        image: go-hello:v1
        ports:
        - containerPort: 8080
`, name)
}

func validCanary() *Canary {
	c := &Canary{
		ObjectMeta: metav1.ObjectMeta{Name: "go-hello-canary", Namespace: "tech-prod"},
		Spec: CanarySpec{Info: CanaryInfo{
			Type:              CanaryDeploy,
			TotalBatches:      new(intstr.FromString("2")),
			CurrentBatch:      new(intstr.FromInt32(1)),
			NewDeploymentYaml: deploymentYAML("go-hello-v2"),
			OldDeploymentYaml: deploymentYAML("go-hello-v1"),
		}},
	}
	SetDefaults(c)
	return c
}

func TestValidateAcceptsTheOriginalForm(t *testing.T) {
	release, errs := Validate(validCanary())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if release.TotalBatches != 2 || release.Approved != 1 {
		t.Errorf("batches %d approved %d, want 2 and 1", release.TotalBatches, release.Approved)
	}
	if got := release.New.Deployment.Name + " " + release.Old.Deployment.Name; got != "go-hello-v2 go-hello-v1" {
		t.Errorf("decoded %s", got)
	}
	if release.New.Replicas() != 4 {
		t.Errorf("replicas %d, want 4", release.New.Replicas())
	}
}

func TestValidateNamesFieldAndRule(t *testing.T) {
	base := deploymentYAML("go-hello-v2")
	newYAML := func(text string) func(*Canary) {
		return func(c *Canary) { c.Spec.Info.NewDeploymentYaml = text }
	}
	replace := func(old, with string) func(*Canary) {
		if !strings.Contains(base, old) {
			t.Fatalf("fixture lacks %q", old)
		}
		return newYAML(strings.Replace(base, old, with, 1))
	}
	const field = "spec.info.newDeploymentYaml: "
	for name, tc := range map[string]struct {
		change func(*Canary)
		want   string
	}{
		"ABTest":            {func(c *Canary) { c.Spec.Info.Type = ABTest }, "spec.info.type: Forbidden: ABTest is not supported yet"},
		"unknown type":      {func(c *Canary) { c.Spec.Info.Type = "Blue" }, `spec.info.type: Unsupported value: "Blue"`},
		"pause type":        {func(c *Canary) { c.Spec.Info.PauseType = "Last" }, `spec.info.pauseType: Unsupported value: "Last"`},
		"total batches":     {func(c *Canary) { c.Spec.Info.TotalBatches = new(intstr.FromString("two")) }, `spec.info.totalBatches: Invalid value: "two": must be a whole number from 1 to 1000`},
		"zero batches":      {func(c *Canary) { c.Spec.Info.TotalBatches = new(intstr.FromInt32(0)) }, "spec.info.totalBatches: Invalid value"},
		"current batch":     {func(c *Canary) { c.Spec.Info.CurrentBatch = new(intstr.FromString("-1")) }, "spec.info.currentBatch: Invalid value"},
		"batch percent":     {func(c *Canary) { c.Spec.Batches = []intstr.IntOrString{intstr.FromString("101%")} }, `spec.batches[0]: Invalid value: "101%": must be from 1% to 100%`},
		"batch word":        {func(c *Canary) { c.Spec.Batches = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("half")} }, `spec.batches[1]: Invalid value: "half"`},
		"deadline":          {func(c *Canary) { c.Spec.ProgressDeadlineSeconds = new(int32) }, "spec.progressDeadlineSeconds: Invalid value: 0"},
		"empty":             {newYAML("# nothing\n"), field + "Invalid value: is empty"},
		"not yaml":          {newYAML("a: b: c\n"), field + "Invalid value: is not valid YAML: mapping values are not allowed"},
		"tab":               {newYAML("kind: Deployment\n\tname: x\n"), field + "Invalid value: is not valid YAML: line 2"},
		"list":              {newYAML("- a\n- b\n"), field + "Invalid value: line 1: is not a YAML mapping"},
		"pod":               {replace("kind: Deployment", "kind: Pod"), field + `Invalid value: line 2: kind is "Pod", it must be Deployment`},
		"wrong group":       {replace("apps/v1", "extensions/v1beta1"), field + `Invalid value: line 1: apiVersion is "extensions/v1beta1"`},
		"no kind":           {replace("kind: Deployment\n", ""), field + "Invalid value: line 1: apiVersion and kind are required"},
		"two documents":     {newYAML(base + "---\n" + base), field + "Invalid value: line 19: a second YAML document"},
		"unknown field":     {replace("image: go-hello:v1", "image: go-hello:v1\n        imagePolicy: Always"), field + `Invalid value: line 16: unknown field "spec.template.spec.containers[0].imagePolicy"`},
		"unknown top field": {replace("kind: Deployment", "kind: Deployment\nstrategie: {}"), field + `Invalid value: line 3: unknown field "strategie"`},
		"duplicate field":   {replace("  replicas: 4", "  replicas: 4\n  replicas: 5"), field + "Invalid value: is not valid YAML: line 7: mapping key \"replicas\" already defined"},
		"wrong scalar":      {replace("replicas: 4", "replicas: four"), field + "Invalid value: line 6: spec.replicas must not be a JSON string"},
		"number as a key":   {replace("labels: {app: go-hello-v2}", "labels: {app: go-hello-v2, 1: x}"), field + `Invalid value: line 11: the key "1" is not text`},
		"other namespace":   {replace("name: go-hello-v2", "name: go-hello-v2\n  namespace: other"), field + `Invalid value: metadata.namespace is "other", it must be empty or the Canary's, "tech-prod"`},
		"no name":           {replace("name: go-hello-v2", "labels: {}"), field + `Invalid value: metadata.name ""`},
		"negative replicas": {replace("replicas: 4", "replicas: -4"), field + "Invalid value: spec.replicas is -4"},
		"selector":          {replace("matchLabels: {app: go-hello-v2}", "matchLabels: {app: x}"), field + "Invalid value: spec.selector must match"},
		"empty selector":    {replace("matchLabels: {app: go-hello-v2}", "matchLabels: {}"), field + "Invalid value: spec.selector is required"},
		"paused":            {replace("replicas: 4", "replicas: 4\n  paused: true"), field + "Invalid value: spec.paused must not be true"},
		"too long":          {newYAML(base + strings.Repeat("#", 1<<20)), fmt.Sprintf("%sInvalid value: is %d bytes long, the limit is 262144", field, len(base)+1<<20)},
		"same name":         {replace("name: go-hello-v2", "name: go-hello-v1"), field + `Invalid value: metadata.name is "go-hello-v1" in old and new`},
		"rollback to nothing": {func(c *Canary) {
			c.Spec.Info.Type, c.Spec.Info.OldDeploymentYaml = CanaryRollback, ""
		}, "spec.info.oldDeploymentYaml: Required value"},
		"old manifest": {func(c *Canary) { c.Spec.Info.OldDeploymentYaml = "kind: Job\napiVersion: batch/v1\n" }, `spec.info.oldDeploymentYaml: Invalid value: line 1: kind is "Job"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := validCanary()
			tc.change(c)
			release, errs := Validate(c)
			if release != nil {
				t.Error("a release came with the errors")
			}
			if len(errs) != 1 {
				t.Fatalf("got %d errors, want 1: %v", len(errs), errs)
			}
			if got := errs[0].Error(); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestAliasesAreCountedWrittenOut gives a manifest that is short and would be long.
func TestAliasesAreCountedWrittenOut(t *testing.T) {
	bomb := strings.Replace(deploymentYAML("a"), "name: a\n", "name: a\n  annotations: {a: &a "+strings.Repeat("x", 10_000)+
		", b: &b ["+strings.Repeat("*a, ", 20)+"*a], c: ["+strings.Repeat("*b, ", 20)+"*b]}\n", 1)
	_, err := DecodeDeployment(bomb)
	if err == nil || !strings.Contains(err.Error(), "becomes longer than 262144 bytes with its aliases written out") {
		t.Errorf("got %v", err)
	}
}

func TestDatesStayText(t *testing.T) {
	manifest, err := DecodeDeployment(strings.Replace(deploymentYAML("a"), "name: a\n", "name: a\n  labels: {version: 2024-01-15}\n", 1))
	if err != nil {
		t.Fatal(err)
	}
	if got := manifest.Deployment.Labels["version"]; got != "2024-01-15" {
		t.Errorf("the label became %q", got)
	}
}

func TestServerFieldsAreDropped(t *testing.T) {
	text := strings.Replace(deploymentYAML("a"), "name: a\n",
		"name: a\n  uid: 1-2\n  resourceVersion: \"7\"\n  creationTimestamp: null\n  generation: 3\n  annotations: {deployment.kubernetes.io/revision: \"3\"}\n", 1) + "status: {replicas: 4}\n"
	manifest, err := DecodeDeployment(text)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := DecodeDeployment(deploymentYAML("a"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Replace(string(manifest.Canonical), `"annotations":{},`, "", 1) != string(plain.Canonical) {
		t.Errorf("got  %s\nwant %s", manifest.Canonical, plain.Canonical)
	}
	if manifest.Deployment.UID != "" || manifest.Deployment.Status.Replicas != 0 {
		t.Error("server fields survived in the typed object")
	}
}

func TestDeploymentNamesIsLenient(t *testing.T) {
	c := validCanary()
	c.Spec.Info.NewDeploymentYaml = strings.Replace(deploymentYAML("next"), "replicas: 4", "replicaz: 4", 1)
	if got := strings.Join(DeploymentNames(c), ","); got != "next,go-hello-v1" {
		t.Errorf("got %s", got)
	}
	c.Spec.Info.NewDeploymentYaml = "---\n---\n" + deploymentYAML("next")
	if got := strings.Join(DeploymentNames(c), ","); got != "next,go-hello-v1" {
		t.Errorf("got %s", got)
	}
	c.Spec.Info.NewDeploymentYaml = "a: b: c"
	if got := strings.Join(DeploymentNames(c), ","); got != "go-hello-v1" {
		t.Errorf("got %s", got)
	}
}

func FuzzDecodeDeployment(f *testing.F) {
	f.Add(deploymentYAML("a"))
	f.Add("a: &a [*a]\n")
	f.Add("kind: Deployment\napiVersion: apps/v1\nmetadata: &m {name: x, labels: *m}\n")
	f.Add("? [a]\n: b\n")
	f.Fuzz(func(t *testing.T, text string) {
		manifest, err := DecodeDeployment(text)
		if err != nil {
			return
		}
		again, err := DecodeDeployment(string(manifest.Canonical))
		if err != nil {
			t.Fatalf("canonical form is refused: %v\n%s", err, manifest.Canonical)
		}
		if string(again.Canonical) != string(manifest.Canonical) {
			t.Fatalf("canonical form is not stable:\n%s\n%s", manifest.Canonical, again.Canonical)
		}
	})
}
