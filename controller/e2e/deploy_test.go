//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func replaceOnce(text, old, with string) string {
	if !strings.Contains(text, old) {
		panic("no " + old + " in " + text)
	}
	return strings.Replace(text, old, with, 1)
}

func TestNormalDeployCreatesAndRepairs(t *testing.T) {
	s := parallel(t)
	s.create(canaryOf(v1alpha1.NormalDeploy, v("app", 2), nil))
	c := s.phase(v1alpha1.PhaseCompleted)
	if c.Status.Info[v1alpha1.InfoAvailableReplicas] != "2" {
		t.Errorf("status.info is %v", c.Status.Info)
	}
	s.wait("two replicas", s.replicas("app", 2, 2))
	before := s.deployment("app").Spec

	container := func(patch string) string {
		return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main",%s}]}}}}`, patch)
	}
	for field, patch := range map[string]string{
		"image":    container(`"image":"lab/hollow:drifted"`),
		"replicas": `{"spec":{"replicas":3}}`,
		"CPU":      container(`"resources":{"requests":{"cpu":"7m"}}`),
		"memory":   container(`"resources":{"requests":{"memory":"7Mi"}}`),
		"env":      container(`"env":[{"name":"VERSION","value":"drifted"}]`),
	} {
		s.change("app", "kubectl-edit", patch)
		s.wait("the repair of "+field, func() error {
			now := s.deployment("app").Spec
			if *now.Replicas != *before.Replicas {
				return fmt.Errorf("replicas are %d", *now.Replicas)
			}
			was, is := before.Template.Spec.Containers[0], now.Template.Spec.Containers[0]
			if fmt.Sprint(is.Image, is.Env, is.Resources.Requests) != fmt.Sprint(was.Image, was.Env, was.Resources.Requests) {
				return fmt.Errorf("container is %+v", is)
			}
			return nil
		})
	}

	// What somebody else owns stays: an annotation and an environment variable.
	s.change("app", "someone", `{"metadata":{"annotations":{"team":"blue"}}}`)
	s.change("app", "someone", container(`"env":[{"name":"EXTRA","value":"theirs"}]`))
	s.change("app", "kubectl-edit", `{"spec":{"replicas":3}}`)
	s.wait("the repair of replicas", s.replicas("app", 2, 2))
	if s.deployment("app").Annotations["team"] != "blue" || s.env("app", "EXTRA") != "theirs" {
		t.Errorf("fields of another manager were taken away: %v, EXTRA=%s", s.deployment("app").Annotations, s.env("app", "EXTRA"))
	}

	if err := s.kube.AppsV1().Deployments(s.name).Delete(s.ctx, "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wait("the Deployment to be made again", s.replicas("app", 2, 2))
}

// autoscale makes a HorizontalPodAutoscaler. Without metrics it changes nothing by itself;
// scaleBy does what it would do.
func (s *space) autoscale(deployment string) {
	s.Helper()
	_, err := s.kube.AutoscalingV2().HorizontalPodAutoscalers(s.name).Create(s.ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "hpa-" + deployment},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment},
			MinReplicas:    new(int32(1)), MaxReplicas: 20,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *space) scaleBy(deployment string, replicas int) {
	s.Helper()
	_, err := s.kube.AppsV1().Deployments(s.name).Patch(s.ctx, deployment, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale")
	if err != nil {
		s.Fatal(err)
	}
}

func TestNormalDeployLeavesReplicasToAnAutoscaler(t *testing.T) {
	s := parallel(t)
	s.create(canaryOf(v1alpha1.NormalDeploy, v("app", 2), nil))
	s.phase(v1alpha1.PhaseCompleted)
	s.autoscale("app")
	s.wait("the event", s.hasEvent(v1alpha1.ReasonAutoscalerDetected))
	s.scaleBy("app", 5)
	s.wait("five replicas", s.replicas("app", 5, 5))
	// A repair of something else must leave them too.
	s.change("app", "kubectl-edit", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"lab/hollow:drifted"}]}}}}`)
	s.wait("the repair of the image", func() error {
		if image := s.deployment("app").Spec.Template.Spec.Containers[0].Image; image != v("app", 2).image {
			return fmt.Errorf("image is %s", image)
		}
		return nil
	})
	s.wait("five replicas still", s.replicas("app", 5, 5))
	s.status("the total of the autoscaler", func(c *v1alpha1.Canary) bool { return c.Status.TotalReplicas == 5 })
}

func TestTotalFollowsTheAutoscalerOfTheOldVersion(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	s.autoscale("old")
	s.scaleBy("old", 8)
	s.wait("eight old replicas", s.replicas("old", 8, 8))
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	s.create(c)
	s.phase(v1alpha1.PhaseAwaitingApproval)
	s.wait("the event", s.hasEvent(v1alpha1.ReasonAutoscalerDetected))
	s.wait("one new pod", s.replicas("new", 1, 1))
	s.wait("seven old pods", s.replicas("old", 7, 7))
	// The autoscaler asks for two more than the seven that stand.
	s.scaleBy("old", 9)
	s.status("a total of ten", func(c *v1alpha1.Canary) bool {
		return c.Status.TotalReplicas == 10 && c.Status.Phase == v1alpha1.PhaseAwaitingApproval
	})
	s.wait("nine old pods", s.replicas("old", 9, 9))
	s.approve(2)
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("ten new pods", s.replicas("new", 10, 10))
	s.wait("the old version to go", s.gone("old"))
}

func TestTwoCanariesDoNotShareADeployment(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 2))
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 2), v("old", 2)))
	s.phase(v1alpha1.PhaseAwaitingApproval)
	rival := canaryOf(v1alpha1.CanaryDeploy, v("other", 2), v("old", 2))
	rival.Name = "rival"
	s.create(rival)
	s.wait("the rival's refusal", func() error {
		c, err := s.canary("rival")
		if err != nil {
			return err
		}
		if c.Status.Phase != v1alpha1.PhaseInvalid || !strings.Contains(c.Status.Message, "Deployment old is being released by Canary release") {
			return fmt.Errorf("phase %s: %s", c.Status.Phase, c.Status.Message)
		}
		return nil
	})
	if err := s.gone("other")(); err != nil {
		t.Error(err)
	}
	// It begins when the first one is done.
	s.approve(2)
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the rival to begin", s.replicas("other", 1, 1))
}

func TestDeletingTheCanaryInARollout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy          v1alpha1.DeletionPolicy
		oldIsTheirs     bool
		newStays        bool
		oldStays        bool
		oldReplicasLeft int32
	}{
		// Old was there before: it stays and gets back what the new version stood in for.
		{v1alpha1.DeletionPolicyDelete, true, false, true, 4},
		// Both were made by the controller: both go.
		{v1alpha1.DeletionPolicyDelete, false, false, false, 0},
		{v1alpha1.DeletionPolicyOrphan, true, true, true, 3},
		{v1alpha1.DeletionPolicyOrphan, false, true, true, 3},
	} {
		t.Run(fmt.Sprintf("%s/old is theirs %t", tc.policy, tc.oldIsTheirs), func(t *testing.T) {
			s := parallel(t)
			if tc.oldIsTheirs {
				s.deploy(v("old", 4))
			}
			c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
			c.Spec.DeletionPolicy = tc.policy
			s.create(c)
			s.phase(v1alpha1.PhaseAwaitingApproval)
			if err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Delete(s.ctx, "release", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s.wait("the Canary to go", func() error {
				if c, err := s.canary("release"); err == nil {
					return fmt.Errorf("finalizers %v", c.Finalizers)
				}
				return nil
			})
			if tc.newStays {
				s.wait("new to stay", s.replicas("new", 1, 1))
			} else {
				s.wait("new to go", s.gone("new"))
			}
			if !tc.oldStays {
				s.wait("old to go", s.gone("old"))
				return
			}
			s.wait("old to stay", s.replicas("old", tc.oldReplicasLeft, tc.oldReplicasLeft))
			for _, name := range []string{"old", "new"} {
				if name == "new" && !tc.newStays {
					continue
				}
				if owners := s.deployment(name).OwnerReferences; len(owners) > 0 {
					t.Errorf("%s is still owned: %v", name, owners)
				}
			}
		})
	}
}
