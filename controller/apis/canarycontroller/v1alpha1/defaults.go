package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultProgressDeadlineSeconds is how long a batch may take unless the Canary says otherwise.
const DefaultProgressDeadlineSeconds int32 = 600

// Defaults of spec.gate.
const (
	DefaultGateInterval = 30 * time.Second
	DefaultHoldDeadline = 30 * time.Minute
)

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
	if c.Spec.Gate != nil {
		setGateDefaults(c.Spec.Gate)
	}
}

func setGateDefaults(gate *Gate) {
	if gate.Interval == nil {
		gate.Interval = &metav1.Duration{Duration: DefaultGateInterval}
	}
	if gate.HoldDeadline == nil {
		gate.HoldDeadline = &metav1.Duration{Duration: DefaultHoldDeadline}
	}
	gate.OnHold = cmp.Or(gate.OnHold, GatePause)
	gate.OnFail = cmp.Or(gate.OnFail, GateRollback)
	gate.FalseRollback = cmp.Or(gate.FalseRollback, "1%")
	gate.FalsePromotion = cmp.Or(gate.FalsePromotion, "1%")
	for i := range gate.Checks {
		if t := gate.Checks[i].Threshold; t != nil {
			t.Passes, t.Failures = cmp.Or(t.Passes, 3), cmp.Or(t.Failures, 3)
		}
		if o := gate.Checks[i].Outlier; o != nil {
			o.Passes, o.Failures = cmp.Or(o.Passes, 3), cmp.Or(o.Failures, 3)
		}
	}
}
