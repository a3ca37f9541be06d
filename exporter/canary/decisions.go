package canary

import (
	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// GateDecisions derives from a change of a Canary's status which checks were judged: all of
// them whenever the time of the evaluation is a new one. Before and after must be the status
// that a successful write replaced and the one that it wrote, so that a check counts once.
func GateDecisions(before, after *v1alpha1.CanaryStatus) []v1alpha1.CheckStatus {
	if after == nil || after.Gate == nil || after.Gate.EvaluatedAt == nil {
		return nil
	}
	if before != nil && before.Gate != nil && before.Gate.EvaluatedAt.Equal(after.Gate.EvaluatedAt) && before.Gate.Batch == after.Gate.Batch {
		return nil
	}
	return after.Gate.Checks
}
