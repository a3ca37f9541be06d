//go:build e2e

package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// checkRolledBack holds a rollback to the old version at four replicas.
func (s *space) checkRolledBack() {
	s.Helper()
	c := s.phase(v1alpha1.PhaseRolledBack)
	if got := c.Status.Info[v1alpha1.InfoRollbackStatus]; got != v1alpha1.InfoFinished {
		s.Errorf("rollbackStatus is %s", got)
	}
	if got := c.Status.Info[v1alpha1.InfoAvailableReplicas]; got != "4" {
		s.Errorf("availableReplicas is %s", got)
	}
	s.wait("the old version", s.replicas("old", 4, 4))
	s.wait("the new version to go", s.gone("new"))
}

// inTheMiddleOfBatchTwo brings a rollout of 4 replicas in 4 batches to where batch 2 has
// started and cannot finish.
func (s *space) inTheMiddleOfBatchTwo() {
	s.Helper()
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	c.Spec.Info.PauseType, c.Spec.Info.TotalBatches = v1alpha1.PauseEach, new(intstr.FromInt32(4))
	s.create(c)
	s.phase(v1alpha1.PhaseAwaitingApproval)
	s.approve(2)
	s.status("batch 2", func(c *v1alpha1.Canary) bool { return c.Status.CurrentBatch == 2 })
}

func TestRollbackInTheMiddleOfBatchTwo(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	watch := s.watchDeployments()
	s.inTheMiddleOfBatchTwo()
	s.rollBack()
	s.checkRolledBack()
	watch.stop()
	watch.neverBelow(4)
	s.wait("the event", s.toldOnce("RollbackStarted: rolling back: requested by spec.info.type CanaryRollback"))

	// Switching back alone does not start again what was rolled back; a retry does.
	s.edit(func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.CanaryDeploy })
	s.checkRolledBack()
	s.edit(func(c *v1alpha1.Canary) {
		c.Annotations = map[string]string{v1alpha1.AnnotationRetry: "1"}
		c.Spec.Info.CurrentBatch = new(intstr.FromInt32(4))
		// Annotations do not raise the generation; this does and changes nothing else.
		c.Spec.ProgressDeadlineSeconds = new(int32(601))
	})
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the new version", s.replicas("new", 4, 4))
	s.wait("the old version to go", s.gone("old"))
}

func TestRollbackAfterCompletion(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	c.Spec.Info.PauseType = v1alpha1.PauseNone
	s.create(c)
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the old version to go", s.gone("old"))
	watch := s.watchDeployments()
	s.rollBack()
	s.checkRolledBack()
	watch.stop()
	watch.neverBelow(4)
}

// TestRollbackOfABrokenVersion rolls back versions whose pods never become available.
// Three replicas of the old version are all that was available when it began.
func TestRollbackOfABrokenVersion(t *testing.T) {
	t.Parallel()
	needsLab(t, "its pods crash and its images cannot be pulled on purpose")
	crash := v("new", 4)
	crash.env = map[string]string{"HOLLOW_CRASH": "1"}
	unpullable := v("new", 4)
	unpullable.image = "registry.invalid/nothing:v1"
	for name, broken := range map[string]manifest{"crash loop": crash, "image that cannot be pulled": unpullable} {
		t.Run(name, func(t *testing.T) {
			s := parallel(t)
			s.deploy(v("old", 4))
			watch := s.watchDeployments()
			s.create(canaryOf(v1alpha1.CanaryDeploy, broken, v("old", 4)))
			s.wait("the broken pod", s.replicas("new", 1, 0))
			s.phase(v1alpha1.PhaseProgressing)
			s.rollBack()
			s.checkRolledBack()
			watch.stop()
			// The old version was never given up.
			watch.neverBelow(4)
		})
	}
}

func TestRollbackInPlaceAppliesTheOldManifest(t *testing.T) {
	s := parallel(t)
	bad, good := v("app", 4), v("app", 4)
	bad.env, good.env = map[string]string{"RELEASE": "bad"}, map[string]string{"RELEASE": "good"}
	s.create(canaryOf(v1alpha1.NormalDeploy, bad, nil))
	s.phase(v1alpha1.PhaseCompleted)
	watch := s.watchDeployments()
	s.edit(func(c *v1alpha1.Canary) {
		c.Spec.Info.Type, c.Spec.Info.OldDeploymentYaml = v1alpha1.CanaryRollback, good.String()
	})
	c := s.phase(v1alpha1.PhaseRolledBack)
	if got := c.Status.Info[v1alpha1.InfoRollbackStatus]; got != v1alpha1.InfoFinished {
		t.Errorf("rollbackStatus is %s", got)
	}
	s.wait("the old manifest's pods", s.replicas("app", 4, 4))
	if got := s.env("app", "RELEASE"); got != "good" {
		t.Errorf("the Deployment runs release %s", got)
	}
	watch.stop()
	// One Deployment is changed in place by its own rolling update: 25 % of 4 may be missing.
	watch.neverBelow(3)
}

func (s *space) env(deployment, name string) string {
	s.Helper()
	for _, variable := range s.deployment(deployment).Spec.Template.Spec.Containers[0].Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

// TestProgressDeadline lets a version crash until its deadline, and then rolls it back.
func TestProgressDeadline(t *testing.T) {
	needsLab(t, "its pods crash on purpose")
	s := parallel(t)
	s.deploy(v("old", 4))
	// Ready for a moment between crashes: flapping must not count as progress.
	flapping := v("new", 4)
	flapping.env = map[string]string{"HOLLOW_RUN": "300ms", "HOLLOW_EXIT": "1"}
	flapping.extra = ""
	c := canaryOf(v1alpha1.CanaryDeploy, slow{flapping}, v("old", 4))
	c.Spec.ProgressDeadlineSeconds = new(int32(8))
	s.create(c)
	failed := s.phase(v1alpha1.PhaseFailed)
	stalled := meta.FindStatusCondition(failed.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled == nil || stalled.Status != metav1.ConditionTrue || stalled.Reason != string(v1alpha1.ReasonDeadlineExceeded) {
		t.Errorf("Stalled is %+v", stalled)
	}
	batch := failed.Status.Batches[0]
	if took := failed.Status.Rollout.FinishedAt.Sub(batch.StartedAt.Time).Seconds(); took < 8 || took > 30 {
		t.Errorf("failed %.0f s after the batch started, the deadline is 8 s", took)
	}
	s.wait("the warning", s.hasEvent(v1alpha1.ReasonDeadlineExceeded))

	// Frozen: whoever changes a Deployment now is left alone, and approval changes nothing.
	s.change("old", "kubectl-scale", `{"spec":{"replicas":5}}`)
	s.approve(2)
	s.status("the answer to the approval", func(c *v1alpha1.Canary) bool { return c.Status.Phase == v1alpha1.PhaseFailed })
	s.wait("five old replicas", s.replicas("old", 5, 5))

	s.rollBack()
	s.checkRolledBack()
}

// slow is a manifest whose pods must be ready for long before they count as available.
type slow struct{ manifest }

func (m slow) String() string {
	return replaceOnce(m.manifest.String(), "spec:\n", "spec:\n  minReadySeconds: 5\n")
}
