//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// checkFinished holds a finished rollout of four replicas to what design and users expect.
func (s *space) checkFinished(c *v1alpha1.Canary, batches int) {
	s.Helper()
	want := map[string]string{v1alpha1.InfoAvailableReplicas: "4"}
	for n := range batches {
		want[fmt.Sprintf("batch%dStatus", n+1)] = v1alpha1.InfoFinished
	}
	if fmt.Sprint(c.Status.Info) != fmt.Sprint(want) {
		s.Errorf("status.info is %v, want %v", c.Status.Info, want)
	}
	if want := fmt.Sprintf("%d/%d", batches, batches); c.Status.Batch != want {
		s.Errorf("status.batch is %s, want %s", c.Status.Batch, want)
	}
	s.wait("the old version to go", s.gone("old"))
	s.wait("the new version", s.replicas("new", 4, 4))
}

func TestCanaryDeployPausesAfterTheFirstBatch(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	watch := s.watchDeployments()
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)))

	c := s.phase(v1alpha1.PhaseAwaitingApproval)
	s.wait("one new pod", s.replicas("new", 1, 1))
	s.wait("three old pods", s.replicas("old", 3, 3))
	if c.Status.Info["batch1Status"] != v1alpha1.InfoIng || c.Status.Info["batch2Status"] != "" {
		t.Errorf("status.info while waiting: %v", c.Status.Info)
	}
	s.approve(2)
	c = s.phase(v1alpha1.PhaseCompleted)
	s.checkFinished(c, 2)

	watch.stop()
	watch.holds(func(at snapshot) error {
		if old, ok := at["old"]; ok && at["new"].available == 0 && old.wanted < 4 {
			return fmt.Errorf("old was scaled to %d before a new pod was available", old.wanted)
		}
		return nil
	})
	watch.neverBelow(4)
	watch.neverAbove(4+3, "total and the larger batch")
	for _, event := range []string{
		"BatchStarted: batch 1 started: 1 of 4 replicas", "BatchFinished: batch 1 is finished",
		"BatchStarted: batch 2 started: 4 of 4 replicas", "BatchFinished: batch 2 is finished",
	} {
		s.wait(event, s.toldOnce(event))
	}
}

func TestCanaryDeployWithoutPause(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	c.Spec.Info.PauseType, c.Spec.Info.TotalBatches = v1alpha1.PauseNone, new(intstr.FromInt32(4))
	s.create(c)
	s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 4)
	for _, event := range s.events() {
		if strings.HasPrefix(event, string(v1alpha1.ReasonAwaitingApproval)) {
			t.Errorf("pauseType None waited: %s", event)
		}
	}
}

func TestCanaryDeployPausesAfterEachBatch(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	c.Spec.Info.PauseType, c.Spec.Info.TotalBatches = v1alpha1.PauseEach, new(intstr.FromString("4"))
	s.create(c)
	for batch := 1; batch <= 3; batch++ {
		s.status(fmt.Sprintf("batch %d waiting", batch), func(c *v1alpha1.Canary) bool {
			return c.Status.Phase == v1alpha1.PhaseAwaitingApproval && c.Status.Batch == fmt.Sprintf("%d/4", batch)
		})
		s.wait("the batch", s.replicas("new", int32(batch), int32(batch)))
		s.wait("the rest", s.replicas("old", int32(4-batch), int32(4-batch)))
		s.approve(batch + 1)
	}
	s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 4)
}

func TestCanaryDeployWithListedBatches(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 10))
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 10), v("old", 10))
	c.Spec.Info.PauseType = v1alpha1.PauseEach
	c.Spec.Batches = []intstr.IntOrString{intstr.FromString("10%"), intstr.FromString("50%"), intstr.FromString("100%")}
	s.create(c)
	for n, target := range []int32{1, 5} {
		s.status(fmt.Sprintf("batch %d waiting", n+1), func(c *v1alpha1.Canary) bool {
			return c.Status.Phase == v1alpha1.PhaseAwaitingApproval && c.Status.Batch == fmt.Sprintf("%d/3", n+1)
		})
		s.wait("the batch", s.replicas("new", target, target))
		s.wait("the rest", s.replicas("old", 10-target, 10-target))
		s.approve(n + 2)
	}
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the new version", s.replicas("new", 10, 10))
	s.wait("the old version to go", s.gone("old"))
}

func TestFirstReleaseHasNoOldVersion(t *testing.T) {
	s := parallel(t)
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), nil))
	s.phase(v1alpha1.PhaseAwaitingApproval)
	s.wait("one new pod", s.replicas("new", 1, 1))
	s.approve(2)
	c := s.phase(v1alpha1.PhaseCompleted)
	s.checkFinished(c, 2)
	if c.Status.Old != nil {
		t.Errorf("status.old is %+v without an old version", c.Status.Old)
	}
}

func TestMissingOldVersionIsPutInPlace(t *testing.T) {
	s := parallel(t)
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)))
	s.phase(v1alpha1.PhaseAwaitingApproval)
	s.wait("one new pod", s.replicas("new", 1, 1))
	s.wait("three old pods", s.replicas("old", 3, 3))
	s.approve(2)
	s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 2)
}

func TestNewDeploymentThatIsThereAlreadyIsTakenOver(t *testing.T) {
	s := parallel(t)
	s.deploy(v("new", 4))
	s.deploy(v("old", 4))
	watch := s.watchDeployments()
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)))
	s.phase(v1alpha1.PhaseAwaitingApproval)
	s.wait("one new pod", s.replicas("new", 1, 1))
	s.wait("three old pods", s.replicas("old", 3, 3))
	if owners := s.deployment("new").OwnerReferences; len(owners) > 0 {
		t.Errorf("a Deployment of somebody else's making got an owner: %v", owners)
	}
	s.approve(2)
	s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 2)
	watch.stop()
	watch.neverBelow(4)
}

func TestDeploymentsChangedOrDeletedInARolloutArePutRight(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)))
	s.phase(v1alpha1.PhaseAwaitingApproval)

	s.change("old", "kubectl-edit", `{"spec":{"replicas":1}}`)
	s.wait("the old replicas again", s.replicas("old", 3, 3))
	s.change("new", "kubectl-edit", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"lab/hollow:edited"}]}}}}`)
	s.wait("the new image again", func() error {
		if image := s.deployment("new").Spec.Template.Spec.Containers[0].Image; image != v("new", 4).image {
			return fmt.Errorf("image is %s", image)
		}
		return nil
	})
	s.wait("the repair event", s.hasEvent(v1alpha1.ReasonDeploymentRepaired))
	for _, name := range []string{"old", "new"} {
		uid := s.deployment(name).UID
		if err := s.kube.AppsV1().Deployments(s.name).Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want := map[string]int32{"old": 3, "new": 1}[name]
		s.wait(name+" to be made again", func() error {
			if err := s.replicas(name, want, want)(); err != nil {
				return err
			}
			if s.deployment(name).UID == uid {
				return fmt.Errorf("it is not gone yet")
			}
			return nil
		})
	}
	s.approve(2)
	s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 2)
}

func TestPausedHoldsAndResumes(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	c.Spec.Info.PauseType, c.Spec.Paused = v1alpha1.PauseNone, true
	s.create(c)
	s.phase(v1alpha1.PhasePending)
	if err := s.gone("new")(); err != nil {
		t.Errorf("a paused Canary created the new version: %v", err)
	}
	s.edit(func(c *v1alpha1.Canary) { c.Spec.Paused = false })
	s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 2)
}

func TestThirdVersionReplacesTheUnfinishedSecond(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	watch := s.watchDeployments()
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)))
	second := s.phase(v1alpha1.PhaseAwaitingApproval)
	s.edit(func(c *v1alpha1.Canary) { c.Spec.Info.NewDeploymentYaml = v("third", 4).String() })

	third := s.status("the third version waiting", func(c *v1alpha1.Canary) bool {
		return c.Status.Phase == v1alpha1.PhaseAwaitingApproval && c.Status.New.Name == "third"
	})
	if third.Status.Rollout.ID == second.Status.Rollout.ID {
		t.Errorf("the rollout id stayed %s", third.Status.Rollout.ID)
	}
	if third.Status.Batch != "1/2" {
		t.Errorf("batches did not start again: %s", third.Status.Batch)
	}
	s.wait("the second version to go", s.gone("new"))
	s.wait("one pod of the third", s.replicas("third", 1, 1))
	s.wait("three old pods", s.replicas("old", 3, 3))

	// The same Deployment with other contents is a fourth version.
	s.edit(func(c *v1alpha1.Canary) {
		m := v("third", 4)
		m.env = map[string]string{"COLOUR": "blue"}
		c.Spec.Info.NewDeploymentYaml = m.String()
	})
	s.status("the fourth version waiting", func(c *v1alpha1.Canary) bool {
		return c.Status.Phase == v1alpha1.PhaseAwaitingApproval && c.Status.Rollout.ID != third.Status.Rollout.ID
	})
	s.approve(2)
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the old version to go", s.gone("old"))
	s.wait("the third Deployment", s.replicas("third", 4, 4))
	watch.stop()
	watch.neverBelow(4)
}

// TestOriginalManifestIsAcceptedUnchanged creates the manifest of the original product,
// character by character, with numbers as strings and as numbers.
func TestOriginalManifestIsAcceptedUnchanged(t *testing.T) {
	t.Parallel()
	for name, quote := range map[string]string{"strings": `"`, "numbers": ""} {
		t.Run(name, func(t *testing.T) {
			s := parallel(t)
			indent := func(m manifest) string { return strings.ReplaceAll(strings.TrimSpace(m.String()), "\n", "\n      ") }
			text := fmt.Sprintf(`apiVersion: canarycontroller.tech.com/v1alpha1
kind: Canary
metadata:
  name: release
  namespace: %[1]s
  labels: {app: go-hello, tech.com/clusterId: prod}
spec:
  info:
    type: CanaryDeploy
    totalBatches: %[2]s2%[2]s
    currentBatch: %[2]s2%[2]s
    pauseType: First
    newDeploymentYaml: |
      %[3]s
    oldDeploymentYaml: |
      %[4]s
`, s.name, quote, indent(v("new", 4)), indent(v("old", 4)))
			document, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			// Server-side apply keeps the document as it is; strict validation refuses what the schema does not know.
			_, err = s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Patch(s.ctx, "release", types.ApplyPatchType, document,
				metav1.PatchOptions{FieldManager: "kubectl", FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			s.checkFinished(s.phase(v1alpha1.PhaseCompleted), 2)
			c, err := s.canary("release")
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Spec.Info.TotalBatches.Type == intstr.String; got != (quote != "") {
				t.Errorf("totalBatches became %#v", c.Spec.Info.TotalBatches)
			}
		})
	}
}
