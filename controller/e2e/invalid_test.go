//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// TestInvalidManifestsChangeNothing gives one Canary after the other a manifest that
// cannot be, and holds that it says so, that a running rollout keeps running and that
// nothing else comes into being.
func TestInvalidManifestsChangeNothing(t *testing.T) {
	t.Parallel()
	good := v("new", 4).String()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Canary)
		want   string
	}{
		"not YAML": {func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = "a: b: c" }, "spec.info.newDeploymentYaml: Invalid value: is not valid YAML"},
		"a Pod": {func(c *v1alpha1.Canary) {
			c.Spec.Info.NewDeploymentYaml = replaceOnce(good, "kind: Deployment", "kind: Pod")
		}, `spec.info.newDeploymentYaml: Invalid value: line 2: kind is "Pod"`},
		"two documents": {func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = good + "---\n" + good }, "a second YAML document"},
		"unknown field": {func(c *v1alpha1.Canary) {
			c.Spec.Info.NewDeploymentYaml = replaceOnce(good, "  replicas:", "  replicaz: 1\n  replicas:")
		}, `spec.info.newDeploymentYaml: Invalid value: line 6: unknown field "spec.replicaz"`},
		"other namespace": {func(c *v1alpha1.Canary) {
			c.Spec.Info.NewDeploymentYaml = replaceOnce(good, "  name: new", "  name: new\n  namespace: other")
		}, `metadata.namespace is "other"`},
		"1 MiB":        {func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = good + strings.Repeat("#", 1<<20-len(good)) }, "spec.info.newDeploymentYaml: Invalid value: is 1048576 bytes long, the limit is 262144"},
		"same name":    {func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = v("old", 4).String() }, `spec.info.newDeploymentYaml: Invalid value: metadata.name is "old" in old and new`},
		"old manifest": {func(c *v1alpha1.Canary) { c.Spec.Info.OldDeploymentYaml = "kind: Job\napiVersion: batch/v1\n" }, `spec.info.oldDeploymentYaml: Invalid value: line 1: kind is "Job"`},
		"ABTest":       {func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.ABTest }, "spec.info.type: Forbidden: ABTest is not supported yet"},
		"gate": {func(c *v1alpha1.Canary) {
			c.Spec.Info.Type = v1alpha1.NormalDeploy
			c.Spec.Gate = gatedCanary("http://prometheus").Spec.Gate
		}, "spec.gate: Forbidden: NormalDeploy has no batches to judge"},
		"refused by the API server": {func(c *v1alpha1.Canary) {
			c.Spec.Info.NewDeploymentYaml = replaceOnce(good, "image: ", "imagePullPolicy: Sometimes\n        image: ")
		}, `spec.info.newDeploymentYaml: Deployment.apps "new" is invalid: spec.template.spec.containers[0].imagePullPolicy`},
	} {
		t.Run(name, func(t *testing.T) {
			s := parallel(t)
			s.deploy(v("old", 4))

			fresh := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
			tc.change(fresh)
			s.create(fresh)
			s.checkInvalid(tc.want)
			if err := s.gone("new")(); err != nil {
				t.Error(err)
			}
			old := s.deployment("old")
			if *old.Spec.Replicas != 4 || len(old.OwnerReferences) > 0 || old.Annotations[v1alpha1.AnnotationCanary] != "" {
				t.Errorf("an invalid Canary touched the old Deployment: %+v", old.ObjectMeta)
			}

			// Corrected, it goes on; spoilt in mid-rollout, it keeps what runs; corrected again, it is where it was.
			valid := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)).Spec
			s.edit(func(c *v1alpha1.Canary) { c.Spec = valid })
			waiting := s.phase(v1alpha1.PhaseAwaitingApproval)
			s.edit(tc.change)
			s.checkInvalid(tc.want)
			s.wait("the new pod to stay", s.replicas("new", 1, 1))
			s.wait("the old pods to stay", s.replicas("old", 3, 3))
			s.edit(func(c *v1alpha1.Canary) { c.Spec = valid })
			again := s.phase(v1alpha1.PhaseAwaitingApproval)
			if again.Status.Rollout.ID != waiting.Status.Rollout.ID || !again.Status.Rollout.StartedAt.Equal(&waiting.Status.Rollout.StartedAt) {
				t.Errorf("the rollout started again: %+v, was %+v", again.Status.Rollout, waiting.Status.Rollout)
			}
		})
	}
}

func (s *space) checkInvalid(want string) {
	s.Helper()
	c := s.phase(v1alpha1.PhaseInvalid)
	if !strings.Contains(c.Status.Message, want) {
		s.Errorf("message is %q, want %q", c.Status.Message, want)
	}
	stalled := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled == nil || stalled.Status != metav1.ConditionTrue || !strings.Contains(stalled.Message, want) {
		s.Errorf("Stalled is %+v", stalled)
	}
	s.wait("the warning", func() error {
		for _, event := range s.events() {
			if strings.Contains(event, want) {
				return nil
			}
		}
		return fmt.Errorf("no event with %q", want)
	})
}

// gate changes the gate of a Canary that has a good one.
func gate(change func(*v1alpha1.Gate)) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Spec.Gate = gatedCanary("http://prometheus").Spec.Gate
		change(c.Spec.Gate)
	}
}

// TestSchemaRefusesAtOnce holds that what the schema can see never gets in.
func TestSchemaRefusesAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Canary)
		want   string
	}{
		"type":             {func(c *v1alpha1.Canary) { c.Spec.Info.Type = "Blue" }, `spec.info.type: Unsupported value: "Blue"`},
		"pause type":       {func(c *v1alpha1.Canary) { c.Spec.Info.PauseType = "Last" }, "spec.info.pauseType"},
		"no manifest":      {func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = "" }, "spec.info.newDeploymentYaml"},
		"batches in words": {func(c *v1alpha1.Canary) { c.Spec.Info.TotalBatches = new(intstr.FromString("two")) }, "spec.info.totalBatches"},
		"no batches":       {func(c *v1alpha1.Canary) { c.Spec.Info.TotalBatches = new(intstr.FromInt32(0)) }, "totalBatches must be a whole number from 1 to 1000"},
		"negative batch":   {func(c *v1alpha1.Canary) { c.Spec.Info.CurrentBatch = new(intstr.FromInt32(-1)) }, "currentBatch must be a whole number"},
		"batch list":       {func(c *v1alpha1.Canary) { c.Spec.Batches = []intstr.IntOrString{intstr.FromString("101%")} }, "spec.batches[0]"},
		"deadline":         {func(c *v1alpha1.Canary) { c.Spec.ProgressDeadlineSeconds = new(int32) }, "spec.progressDeadlineSeconds"},
		"rollback to nothing": {func(c *v1alpha1.Canary) {
			c.Spec.Info.Type, c.Spec.Info.OldDeploymentYaml = v1alpha1.CanaryRollback, ""
		}, "spec.info.oldDeploymentYaml is required when spec.info.type is CanaryRollback"},
		"gate of nothing": {gate(func(g *v1alpha1.Gate) { g.Checks = nil }), "spec.gate needs at least one check or alert"},
		"gate interval":   {gate(func(g *v1alpha1.Gate) { g.Interval.Duration = time.Millisecond }), "interval must be from 1s to 1h"},
		"two kinds":       {gate(func(g *v1alpha1.Gate) { g.Checks[0].Outlier = &v1alpha1.OutlierCheck{Max: "1%"} }), "a check needs exactly one of proportion, threshold and outlier"},
		"preset and own":  {gate(func(g *v1alpha1.Gate) { g.Checks[0].Proportion.Bad = "up" }), "a proportion check needs either preset, or bad and total"},
		"max":             {gate(func(g *v1alpha1.Gate) { g.Checks[0].Proportion.Max = "1" }), "spec.gate.checks[0].proportion.max"},
		"alert labels": {gate(func(g *v1alpha1.Gate) {
			g.Alerts = []v1alpha1.GateAlert{{MatchLabels: map[string]string{"a": strings.Repeat("x", 257)}}}
		}), "names in matchLabels may have 128 characters, values 256"},
		"address":   {gate(func(g *v1alpha1.Gate) { g.Prometheus.Address = "http://u:p@host" }), "spec.gate.prometheus.address"},
		"long name": {func(c *v1alpha1.Canary) { c.Name = strings.Repeat("a", 64) }, "metadata.name must be at most 63 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parallel(t)
			c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
			tc.change(c)
			_, err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Create(s.ctx, c, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
		})
	}
}
