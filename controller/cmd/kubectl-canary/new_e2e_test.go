//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func decode(t *testing.T, text string) *appsv1.Deployment {
	t.Helper()
	m, err := v1alpha1.DecodeDeployment(text)
	if err != nil {
		t.Fatal(err)
	}
	return m.Deployment
}

// deploy creates a Deployment and waits until its own pods are available.
func (s *space) deploy(d *appsv1.Deployment) {
	s.Helper()
	api := env.kube.AppsV1().Deployments(s.name)
	if _, err := api.Create(s.Context(), d, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
		s.Fatal(err)
	}
	s.available(d.Name)
}

func (s *space) available(name string) {
	s.Helper()
	if err := poll(func() error {
		d, err := env.kube.AppsV1().Deployments(s.name).Get(s.Context(), name, metav1.GetOptions{})
		if err == nil && (d.Status.AvailableReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas || d.Status.ObservedGeneration != d.Generation) {
			err = fmt.Errorf("%d of %d available, %d in all", d.Status.AvailableReplicas, *d.Spec.Replicas, d.Status.Replicas)
		}
		return err
	}); err != nil {
		s.Fatalf("Deployment %s: %v", name, err)
	}
}

// TestNew makes a Canary from a Deployment that runs, and runs both versions of it side by
// side, each with its own pods and both behind the Service.
func TestNew(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.deploy(decode(t, manifest("web", 2)))
	for name, selector := range map[string]map[string]string{"web": {"app": "web"}, "pinned": {"app": "web", "canarycontroller.tech.com/version": "old"}} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := env.kube.CoreV1().Services(s.name).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.expect(3, "", "error: Deployment SPACE/api not found\n", "new", "api", "--image", "lab/hollow:v2")
	s.expect(1, "", "the Deployment runs this image already", "new", "web", "--image", "lab/hollow:web")
	s.expect(1, "", "the Deployment has no container app; it has main", "new", "web", "--image", "app=lab/hollow:v2")

	got := s.expect(0, "# the new version has the label canarycontroller.tech.com/version: ", "", "new", "web", "--image", "main=lab/hollow:v2", "--batches", "1,50%", "--gate-preset", "http-server", "--gate-max", "1%")
	var printed v1alpha1.Canary
	if err := yaml.UnmarshalStrict([]byte(got.out), &printed); err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if len(printed.Spec.Batches) != 2 || printed.Spec.Batches[1] != intstr.FromString("50%") || printed.Spec.Gate.Checks[0].Proportion.Max != "1%" || printed.Name != "web" || printed.Namespace != s.name {
		t.Errorf("printed %+v", printed)
	}
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(got.out), 0o600); err != nil {
		t.Fatal(err)
	}
	s.expect(0, "1 Canary checked, nothing found\n", "", "lint", file)

	s.expect(0, "(server dry run)\n", "", "new", "web", "--image", "lab/hollow:v2", "--create", "--dry-run=server")
	s.expect(0, "kind: Canary\n", "", "new", "web", "--image", "lab/hollow:v2", "--create", "--dry-run=client")
	if list, err := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("dry runs left %v, %v", list, err)
	}
	s.expect(0, "Canary SPACE/web: created, web-", "note: the old version's selector", "new", "web", "--image", "lab/hollow:v2", "--create")
	s.expect(1, "", "Canary SPACE/web, which can be updated by kubectl canary new ... | kubectl apply -f -, exists already", "new", "web", "--image", "lab/hollow:v2", "--create")

	created, err := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := decode(t, created.Spec.Info.NewDeploymentYaml)
	s.deploy(fresh)
	s.available("web")
	for name, want := range map[string]int{"app=web": 4, metav1.FormatLabelSelector(fresh.Spec.Selector): 2} {
		pods, err := env.kube.CoreV1().Pods(s.name).List(t.Context(), metav1.ListOptions{LabelSelector: name})
		if err != nil || len(pods.Items) != want {
			t.Errorf("%s selects %d pods, want %d (%v)", name, len(pods.Items), want, err)
		}
	}
	// Applying what the Canary has of the old version changes nothing of it.
	before, err := env.kube.AppsV1().Deployments(s.name).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old := decode(t, created.Spec.Info.OldDeploymentYaml)
	if a, b := asJSON(t, before.Spec), asJSON(t, old.Spec); a != b {
		t.Errorf("the old version is\n%s, was\n%s", b, a)
	}

	// The next release, from the Deployment that this one left.
	got = s.expect(0, "name: web-", "", "new", fresh.Name, "--image", "lab/hollow:v3")
	if n := strings.Count(got.out, "# "); n != 1 {
		t.Errorf("%d notes, want 1:\n%s", n, got)
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestNewSaysWhichServicesMiss makes a Canary of a Deployment that a Service selects by version.
func TestNewSaysWhichServicesMiss(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	d := decode(t, strings.ReplaceAll(manifest("web", 1), "{app: web}", "{app: web, version: v1}"))
	s.deploy(d)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "pinned"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"version": "v1"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := env.kube.CoreV1().Services(s.name).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.expect(0, "# Service pinned selects the old version's pods only, by version=v1: the new version gets no requests from it\n", "", "new", "web", "--image", "lab/hollow:v2")
	got := s.expect(0, "", "note: Service pinned", "new", "web", "--image", "lab/hollow:v2", "-o", "json")
	if !json.Valid([]byte(got.out)) {
		t.Errorf("not JSON: %s", got)
	}
}

// TestLintIsAsStrictAsTheServer gives the same documents to the server's dry run and to
// lint: what the server refuses, lint refuses, and what both should take, both take.
func TestLintIsAsStrictAsTheServer(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	indent := func(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ") }
	good := fmt.Sprintf(`apiVersion: canarycontroller.tech.com/v1alpha1
kind: Canary
metadata: {name: web}
spec:
  progressDeadlineSeconds: 60
  batches: [1, 50%%]
  gate:
    interval: 30s
    holdDeadline: 30m
    onFail: Rollback
    falseRollback: 1%%
    prometheus: {address: "http://prometheus:9090", timeout: 10s, secret: credentials}
    checks:
    - name: error-rate
      proportion: {preset: http-server, max: 1%%, harm: 0.5%%}
    - name: p99
      threshold: {query: "p99{{ .Window }}", max: "0.5", samples: count, minSamples: 5, passes: 3, failures: 3}
    - name: ejected
      outlier: {max: 100%%}
    alerts:
    - matchLabels: {canary_gate: "true"}
  info:
    type: CanaryDeploy
    totalBatches: "2"
    currentBatch: 1
    pauseType: First
    newDeploymentYaml: |
      %s
    oldDeploymentYaml: |
      %s
`, indent(manifest("new", 1)), indent(manifest("old", 1)))
	for _, change := range []string{
		"", // as it is
		"name: web=>name: " + strings.Repeat("a", 64), "name: web=>name: Web", "name: web=>name: web, labels: {\"a b\": c}",
		"type: CanaryDeploy=>type: Blue", "type: CanaryDeploy=>type: [a]", "  info:=>  inof:", "  progressDeadlineSeconds: 60=>  progressDeadlineSeconds: 0",
		"progressDeadlineSeconds: 60=>progressDeadlineSeconds: sixty", "progressDeadlineSeconds: 60=>progressDeadlineSeconds: 60\n  Paused: true", "progressDeadlineSeconds: 60=>progressDeadlineSeconds: 60\n  progressDeadlineSeconds: 61",
		"[1, 50%]=>[0]", "[1, 50%]=>[101%]", "[1, 50%]=>[half]", "[1, 50%]=>[1.5]", "[1, 50%]=>[\"01\"]", "[1, 50%]=>[\"0%\"]", "[1, 50%]=>[" + strings.Repeat("1,", 101) + "2]", "[1, 50%]=>[\"050%\"]",
		`totalBatches: "2"=>totalBatches: two`, `totalBatches: "2"=>totalBatches: 0`, `totalBatches: "2"=>totalBatches: 1001`, `totalBatches: "2"=>totalBatches: "02"`, `totalBatches: "2"=>totalBatches: -1`,
		"currentBatch: 1=>currentBatch: -1", `currentBatch: 1=>currentBatch: "+1"`, "currentBatch: 1=>currentBatch: 1001", "pauseType: First=>pauseType: Last",
		"interval: 30s=>interval: 30", "interval: 30s=>interval: soon", "interval: 30s=>interval: 10ms", "interval: 30s=>interval: 2h", "holdDeadline: 30m=>holdDeadline: 0s",
		"onFail: Rollback=>onFail: Ignore", "falseRollback: 1%=>falseRollback: 1", "falseRollback: 1%=>falseRollback: 100%", "falseRollback: 1%=>falseRollback: 1.1234567%",
		"http://prometheus:9090=>ftp://prometheus", "http://prometheus:9090=>http://user:pw@prometheus", "http://prometheus:9090=>http://prometheus?a=b", "timeout: 10s=>timeout: 2m", "secret: credentials=>secret: " + strings.Repeat("a", 254),
		"name: error-rate=>name: Error", "name: error-rate=>name: p99", "name: error-rate=>name: " + strings.Repeat("a", 64),
		"preset: http-server=>preset: nginx", "max: 1%, harm=>harm", "max: 1%,=>max: 1,", "harm: 0.5%=>harm: 123%", "preset: http-server,=>", "preset: http-server,=>preset: http-server, bad: x, total: y,",
		"query: \"p99{{ .Window }}\",=>", "max: \"0.5\", samples=>samples", "max: \"0.5\"=>max: half", "max: \"0.5\"=>max: 0.5", "samples: count, min=>min", "minSamples: 5=>minSamples: -5", "passes: 3=>passes: 0", "failures: 3=>failures: 101",
		"outlier: {max: 100%}=>outlier: {max: 101%}", "outlier: {max: 100%}=>outlier: {}", "outlier: {max: 100%}=>threshold: {query: a, max: \"1\"}\n      outlier: {max: 1%}", "      outlier: {max: 100%}\n=>",
		"passes: 3=>passes: \"\"", "failures: 3=>failures: 0", "outlier: {max: 100%}=>outlier: {max: 1%, passes: 0}", "onFail: Rollback=>onFail: \"\"", "onFail: Rollback=>onHold: \"\"", "pauseType: First=>pauseType: \"\"",
		"  info:=>  deletionPolicy: Keep\n  info:", "  info:=>  deletionPolicy: \"\"\n  info:", "preset: http-server=>preset: \"\"", "harm: 0.5%=>harm: \"\"", "max: \"0.5\"=>max: \"\"",
		"address: \"http://prometheus:9090\"=>addresses: [\"http://a\", \"http://a\"]", "address: \"http://prometheus:9090\"=>addresses: [\"\"]", "address: \"http://prometheus:9090\"=>serverName: " + strings.Repeat("a", 254), "address: \"http://prometheus:9090\"=>address: \"\"",
		"{canary_gate: \"true\"}=>{}", "- matchLabels: {canary_gate: \"true\"}=>- {}",
	} {
		text := good
		if change != "" {
			old, with, ok := strings.Cut(change, "=>")
			if !ok || !strings.Contains(good, old) {
				t.Fatalf("%q changes nothing", change)
			}
			text = strings.Replace(good, old, with, 1)
		}
		document, err := yaml.YAMLToJSONStrict([]byte(text))
		if err == nil {
			var c json.RawMessage = document
			err = env.canaries.CanarycontrollerV1alpha1().RESTClient().Post().Namespace(s.name).Resource("canaries").
				VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}, metav1.ParameterCodec).
				SetHeader("Content-Type", "application/json").Body([]byte(c)).Do(t.Context()).Error()
		}
		file := filepath.Join(t.TempDir(), "canary.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := run(t.Context(), nil, "lint", file)
		switch {
		case err != nil && got.code != 1:
			t.Errorf("%q: the server says %v\nlint says %s", change, err, got)
		case change == "" && (err != nil || got.code != 0):
			t.Errorf("as it is: %v %s", err, got)
		}
	}
}
