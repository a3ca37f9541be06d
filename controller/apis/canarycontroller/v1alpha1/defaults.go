package v1alpha1

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultProgressDeadlineSeconds is how long a batch may take unless the Canary says otherwise.
const DefaultProgressDeadlineSeconds int32 = 600

// SetDefaults fills what the author left out, as the CRD schema does at the API server,
// so that files read offline mean the same. It writes to c.
func SetDefaults(c *Canary) {
	info := &c.Spec.Info
	if info.TotalBatches == nil {
		info.TotalBatches = new(intstr.FromInt32(1))
	}
	if info.CurrentBatch == nil {
		info.CurrentBatch = new(intstr.FromInt32(1))
	}
	if info.PauseType == "" {
		info.PauseType = PauseFirst
	}
	if c.Spec.ProgressDeadlineSeconds == nil {
		c.Spec.ProgressDeadlineSeconds = new(DefaultProgressDeadlineSeconds)
	}
	if c.Spec.DeletionPolicy == "" {
		c.Spec.DeletionPolicy = DeletionPolicyDelete
	}
}
