package change

import (
	"fmt"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Pause keeps batches from advancing.
func Pause(c *v1alpha1.Canary) (Change, error) {
	switch {
	case c.Spec.Paused:
		return nothing("is paused already")
	case turned(c) && c.Status.Phase != v1alpha1.PhaseRolledBack:
		return refuse("it is being rolled back, and spec.paused does not hold a rollback")
	}
	e := newEdit(c)
	e.spec["paused"] = true
	what := "paused; what runs keeps running"
	switch {
	case c.Status.Phase == v1alpha1.PhaseCompleted || c.Status.Phase == v1alpha1.PhaseRolledBack:
		what = "paused; no rollout is under way, the next one will not begin until it is resumed"
	case c.Spec.Info.Type == v1alpha1.NormalDeploy:
		what = "paused; the Deployment is not applied until it is resumed"
	}
	return e.make(Change{}, "%s", what)
}

// Resume lets batches advance again.
func Resume(c *v1alpha1.Canary) (Change, error) {
	if !c.Spec.Paused {
		switch {
		case gatePaused(&c.Status):
			return nothing("spec.paused does not hold it; the gate waits for a person: kubectl canary why %s", c.Name)
		case c.Status.Phase == v1alpha1.PhaseAwaitingApproval:
			return nothing("spec.paused does not hold it; it waits for an approval: kubectl canary approve %s", c.Name)
		}
		return nothing("is not paused")
	}
	e := newEdit(c)
	e.spec["paused"] = false
	what := "resumed"
	if c.Status.Phase == v1alpha1.PhaseAwaitingApproval {
		what += fmt.Sprintf("; it still waits for an approval: kubectl canary approve %s", c.Name)
	}
	return e.make(Change{}, "%s", what)
}

// Rollback goes back to the old version, from whatever state.
func Rollback(c *v1alpha1.Canary) (Change, error) {
	s := &c.Status
	rolledBack := s.Phase == v1alpha1.PhaseRolledBack && !stale(c)
	switch {
	case c.Spec.Info.OldDeploymentYaml == "":
		return refuse("there is no old version to go back to: spec.info.oldDeploymentYaml is empty")
	case rolledBack:
		return nothing("is rolled back already: %s", reason(s))
	case c.Spec.Info.Type == v1alpha1.CanaryRollback:
		return nothing("a rollback is requested already")
	case turned(c) && !stale(c):
		return nothing("is being rolled back already: %s", reason(s))
	}
	e := newEdit(c)
	e.info["type"] = v1alpha1.CanaryRollback
	to := ""
	if names := v1alpha1.DeploymentNames(c); len(names) > 0 {
		to = " to " + names[len(names)-1]
	}
	return e.make(Change{}, "rollback%s requested (type was %s)", to, c.Spec.Info.Type)
}

func reason(s *v1alpha1.CanaryStatus) string {
	if s.Rollout != nil && s.Rollout.RollbackReason != "" {
		return s.Rollout.RollbackReason
	}
	return s.Message
}

// RetryOptions say how to begin again.
type RetryOptions struct {
	// Value of the annotation; it must be new.
	Value string
	// KeepApprovals lets approvals of the failed attempt count for the new one.
	KeepApprovals bool
}

// Retry begins a rolled-back or failed rollout again. What the request to roll back
// changed is set back in the same patch. Approvals given to the attempt that ended do not
// count for the new one, unless that is asked for, and a batch of it that was let through
// without evidence needs evidence again.
func Retry(c *v1alpha1.Canary, o RetryOptions) (Change, error) {
	s := &c.Status
	now := c.Annotations[v1alpha1.AnnotationRetry]
	ended := s.Phase == v1alpha1.PhaseRolledBack || s.Phase == v1alpha1.PhaseFailed
	switch {
	case s.Phase == v1alpha1.PhaseCompleted:
		return refuse("the rollout is completed, there is nothing to retry")
	case s.Phase == v1alpha1.PhaseInvalid:
		return refuse("the Canary is invalid and must be corrected first: %s", s.Message)
	case s.Rollout == nil:
		return refuse("the rollout has not begun, there is nothing to retry")
	case ended && now != s.Rollout.Retry && c.Spec.Info.Type != v1alpha1.CanaryRollback:
		change, err := nothing("a retry is requested already")
		change.Retry = now
		return change, err
	case stale(c):
		return refuse("the controller has not acted on the latest change of the spec, which may begin a rollout by itself; try again")
	case !ended:
		return refuse("the rollout is under way (%s); only one that is rolled back or has failed is retried", s.Phase)
	}
	value := o.Value
	for value == now {
		value += "+"
	}
	e := newEdit(c)
	e.annotate(v1alpha1.AnnotationRetry, value)
	what := "retry requested"
	if c.Spec.Info.Type == v1alpha1.CanaryRollback {
		to := v1alpha1.CanaryDeploy
		if s.New != nil && s.Old != nil && s.New.Name == s.Old.Name {
			// One Deployment changed in place is what NormalDeploy does.
			to = v1alpha1.NormalDeploy
		}
		e.info["type"] = to
		what += fmt.Sprintf(", type set back from CanaryRollback to %s", to)
	}
	pauses := c.Spec.Info.PauseType != v1alpha1.PauseNone && e.info["type"] != v1alpha1.NormalDeploy && c.Spec.Info.Type != v1alpha1.NormalDeploy
	if has := approved(c); has > 1 && pauses && !o.KeepApprovals {
		e.approve(c, 1)
		what += fmt.Sprintf(", approvals start again (currentBatch was %d)", has)
	}
	if _, ok := c.Annotations[v1alpha1.AnnotationPromote]; ok {
		// It names the rollout and the batch, which are the same in the next attempt.
		e.annotate(v1alpha1.AnnotationPromote, nil)
		what += ", evidence counts again"
	}
	if c.Spec.Paused {
		what += fmt.Sprintf("; spec.paused holds it until kubectl canary resume %s", c.Name)
	}
	return e.make(Change{Retry: value}, "%s", what)
}
