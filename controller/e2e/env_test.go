//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// patience is how long a wanted state may take on a busy machine. It bounds failures
// only: tests go on as soon as the state is there.
const patience = 90 * time.Second

// applyCRD installs the CRD and waits until it is served.
func (c *cluster) applyCRD(ctx context.Context) error {
	text, err := os.ReadFile("../../deploy/crd/canarycontroller.tech.com_canaries.yaml")
	if err != nil {
		return err
	}
	document, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Patch(ctx, "canaries.canarycontroller.tech.com", types.ApplyPatchType, document, metav1.PatchOptions{FieldManager: "e2e", Force: new(true)}); err != nil {
		return err
	}
	return poll(func() error {
		_, err := c.canaries.CanarycontrollerV1alpha1().Canaries("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

// poll calls check until it returns nil, for at most patience.
func poll(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// parallel lets a test run beside others with the shared operator, in a namespace of its own.
func parallel(t *testing.T) *space {
	t.Helper()
	t.Parallel()
	env.shared.once.Do(func() {
		op, err := env.startOperator("--leader-elect=false", "--workers", "8", "--kube-api-qps", "200", "--kube-api-burst", "400",
			"--gate-allow", "127.0.0.0/8")
		if err != nil {
			panic(err)
		}
		env.shared.op = op
		if err := poll(op.ready); err != nil {
			panic(err)
		}
	})
	s := env.newSpace(t)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		var lines []string
		for line := range strings.Lines(env.shared.op.output()) {
			if strings.Contains(line, s.name) || strings.Contains(line, "level=ERROR") {
				lines = append(lines, line)
			}
		}
		t.Logf("operator log about %s:\n%s", s.name, strings.Join(lines, ""))
	})
	return s
}

// apart lets a test run operators of its own beside other tests: on the second lab, where
// the shared operator is not. On somebody else's cluster it runs alone.
func apart(t *testing.T) *space {
	t.Helper()
	if env.lab == nil {
		return alone(t)
	}
	t.Parallel()
	env.second.once.Do(func() {
		if env.second.cluster, env.second.err = startCluster(env.ctx, "e2e-apart"); env.second.err == nil {
			env.second.err = env.second.applyCRD(env.ctx)
		}
	})
	if env.second.err != nil {
		t.Fatalf("starting a second lab: %v", env.second.err)
	}
	return env.second.newSpace(t)
}

// space is a namespace of one test.
type space struct {
	*testing.T
	*cluster
	name string
	ctx  context.Context
}

func (c *cluster) newSpace(t *testing.T) *space {
	t.Helper()
	ctx := t.Context()
	ns, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &space{T: t, cluster: c, name: ns.Name, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			s.dump()
		}
		// Not waited for: nothing else uses the namespace.
		_ = c.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), ns.Name, metav1.DeleteOptions{})
	})
	return s
}

// dump logs what a failed test left.
func (s *space) dump() {
	var out bytes.Buffer
	ctx := context.WithoutCancel(s.ctx)
	if list, err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).List(ctx, metav1.ListOptions{}); err == nil {
		for _, canary := range list.Items {
			text, _ := yaml.Marshal(canary.Status)
			fmt.Fprintf(&out, "Canary %s:\n%s", canary.Name, text)
		}
	}
	if list, err := s.kube.AppsV1().Deployments(s.name).List(ctx, metav1.ListOptions{}); err == nil {
		for _, d := range list.Items {
			fmt.Fprintf(&out, "Deployment %s: wants %d, available %d\n", d.Name, *d.Spec.Replicas, d.Status.AvailableReplicas)
		}
	}
	s.Log(out.String())
}

// wait polls until check returns nil and fails the test when it does not.
func (s *space) wait(what string, check func() error) {
	s.Helper()
	if err := poll(check); err != nil {
		s.Fatalf("waiting for %s: %v", what, err)
	}
}

// manifest writes a Deployment of hollow pods as a person would.
type manifest struct {
	name, image string
	replicas    int
	env         map[string]string
	extra       string
}

func (m manifest) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  replicas: %[2]d
  selector:
    matchLabels:
      app: %[1]s
  template:
    metadata:
      labels:
        app: %[1]s
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: %[3]s
        resources:
          requests: {cpu: 1m, memory: 1Mi}
`, m.name, m.replicas, m.image)
	text.WriteString("        env:\n        - {name: VERSION, value: \"1\"}\n")
	for key, value := range m.env {
		fmt.Fprintf(&text, "        - {name: %s, value: %q}\n", key, value)
	}
	text.WriteString(m.extra)
	return text.String()
}

// v is a version whose pods become ready.
func v(name string, replicas int) manifest {
	image := os.Getenv("E2E_IMAGE")
	if image == "" {
		image = "lab/hollow:" + name
	}
	return manifest{name: name, image: image, replicas: replicas}
}

// canaryOf returns a Canary in the original form.
func canaryOf(kind v1alpha1.CanaryType, newYAML, oldYAML fmt.Stringer) *v1alpha1.Canary {
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Name: "release"}}
	c.Spec.Info = v1alpha1.CanaryInfo{
		Type: kind, TotalBatches: new(intstr.FromString("2")), CurrentBatch: new(intstr.FromString("1")), NewDeploymentYaml: newYAML.String(),
	}
	if oldYAML != nil {
		c.Spec.Info.OldDeploymentYaml = oldYAML.String()
	}
	return c
}

func (s *space) create(c *v1alpha1.Canary) *v1alpha1.Canary {
	s.Helper()
	created, err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Create(s.ctx, c, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return created
}

func (s *space) canary(name string) (*v1alpha1.Canary, error) {
	return s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Get(s.ctx, name, metav1.GetOptions{})
}

// edit changes a Canary as a person with kubectl edit would.
func (s *space) edit(change func(*v1alpha1.Canary)) {
	s.Helper()
	s.wait("an edit of the Canary", func() error {
		c, err := s.canary("release")
		if err != nil {
			return err
		}
		change(c)
		_, err = s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Update(s.ctx, c, metav1.UpdateOptions{})
		return err
	})
}

func (s *space) approve(batch int) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"info":{"currentBatch":"%d"}}}`, batch)
	s.wait("the approval", func() error {
		_, err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Patch(s.ctx, "release", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func (s *space) rollBack() {
	s.Helper()
	s.edit(func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.CanaryRollback })
}

// deploy creates a Deployment as somebody else and waits until it is available.
func (s *space) deploy(m manifest) *appsv1.Deployment {
	s.Helper()
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(m.String()), &d); err != nil {
		s.Fatal(err)
	}
	if _, err := s.kube.AppsV1().Deployments(s.name).Create(s.ctx, &d, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
		s.Fatal(err)
	}
	s.wait(m.name, s.replicas(m.name, int32(m.replicas), int32(m.replicas)))
	return s.deployment(m.name)
}

func (s *space) deployment(name string) *appsv1.Deployment {
	s.Helper()
	d, err := s.kube.AppsV1().Deployments(s.name).Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// change edits a Deployment as another field manager.
func (s *space) change(name, manager, patch string) {
	s.Helper()
	_, err := s.kube.AppsV1().Deployments(s.name).Patch(s.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		s.Fatal(err)
	}
}

// replicas checks a Deployment's wanted and available replicas.
func (s *space) replicas(name string, wanted, available int32) func() error {
	return func() error {
		d, err := s.kube.AppsV1().Deployments(s.name).Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *d.Spec.Replicas != wanted || d.Status.AvailableReplicas != available {
			return fmt.Errorf("%s wants %d and has %d available; expected %d and %d", name, *d.Spec.Replicas, d.Status.AvailableReplicas, wanted, available)
		}
		return nil
	}
}

func (s *space) gone(name string) func() error {
	return func() error {
		_, err := s.kube.AppsV1().Deployments(s.name).Get(s.ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is still there (%v)", name, err)
	}
}

// phase waits until the Canary is in a phase for its present generation.
func (s *space) phase(want v1alpha1.Phase) *v1alpha1.Canary {
	s.Helper()
	return s.status(string(want), func(c *v1alpha1.Canary) bool { return c.Status.Phase == want })
}

// status waits for a status that answers the present generation.
func (s *space) status(what string, want func(*v1alpha1.Canary) bool) *v1alpha1.Canary {
	s.Helper()
	var got *v1alpha1.Canary
	s.wait(what, func() error {
		c, err := s.canary("release")
		if err != nil {
			return err
		}
		got = c
		if c.Status.ObservedGeneration != c.Generation || !want(c) {
			return fmt.Errorf("phase %s (generation %d of %d): %s", c.Status.Phase, c.Status.ObservedGeneration, c.Generation, c.Status.Message)
		}
		return nil
	})
	return got
}

// events returns the events about the Canary as "reason: message", each as often as it was told.
func (s *space) events() []string {
	s.Helper()
	list, err := s.kube.CoreV1().Events(s.name).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Canary"})
	if err != nil {
		s.Fatal(err)
	}
	var events []string
	for _, event := range list.Items {
		for range max(1, event.Count) {
			events = append(events, event.Reason+": "+event.Message)
		}
	}
	return events
}

func (s *space) hasEvent(reason v1alpha1.Reason) func() error {
	return func() error {
		events := s.events()
		for _, event := range events {
			if strings.HasPrefix(event, string(reason)+":") {
				return nil
			}
		}
		return fmt.Errorf("no event %s among\n%s", reason, strings.Join(events, "\n"))
	}
}

// needsLab skips, with the reason, a test that cannot run on somebody else's cluster.
func needsLab(t *testing.T, why string) {
	t.Helper()
	if env.lab == nil {
		t.Skipf("runs on the lab only: %s", why)
	}
}
