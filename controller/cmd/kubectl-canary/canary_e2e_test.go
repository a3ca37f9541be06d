//go:build e2e

package main

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

func manifest(name string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  replicas: %[2]d
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
      - {name: main, image: "lab/hollow:%[1]s"}
`, name, replicas)
}

// create makes a gated Canary of eight replicas in four batches, with numbers as text.
func (s *space) create(edits ...func(*v1alpha1.Canary)) *v1alpha1.Canary {
	s.Helper()
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Name: "reviews"}}
	c.Spec.Info = v1alpha1.CanaryInfo{
		Type: v1alpha1.CanaryDeploy, TotalBatches: new(intstr.FromString("4")), CurrentBatch: new(intstr.FromString("1")), PauseType: v1alpha1.PauseEach,
		NewDeploymentYaml: manifest("reviews-v2", 8), OldDeploymentYaml: manifest("reviews-v1", 8),
	}
	c.Spec.Gate = &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{
		{Name: "error-rate", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "1%"}},
	}}
	for _, edit := range edits {
		edit(c)
	}
	created, err := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Create(s.Context(), c, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return created
}

func (s *space) get() *v1alpha1.Canary {
	s.Helper()
	c, err := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Get(s.Context(), "reviews", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// status writes the status as the operator would, which answers the spec as it is now.
func (s *space) status(edits ...func(*v1alpha1.Canary)) *v1alpha1.Canary {
	s.Helper()
	var written *v1alpha1.Canary
	if err := poll(func() error {
		c := s.get()
		c.Status.ObservedGeneration = c.Generation
		for _, edit := range edits {
			edit(c)
		}
		var err error
		written, err = env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).UpdateStatus(s.Context(), c, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			s.Fatal(err)
		}
		return err
	}); err != nil {
		s.Fatal(err)
	}
	return written
}

// ago is a time before now, with the resolution of a status.
func ago(seconds int) metav1.Time {
	return metav1.NewTime(time.Now().Add(-time.Duration(seconds) * time.Second).UTC().Truncate(time.Second))
}

// at puts the rollout into a phase and a batch: those before are finished, this one is available.
func at(phase v1alpha1.Phase, batch int32, message string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		spec := c.DeepCopy()
		v1alpha1.SetDefaults(spec)
		release, errs := v1alpha1.Validate(spec)
		if len(errs) > 0 {
			panic(errs.ToAggregate())
		}
		plan := rollout.NewPlan(spec, release, 8)
		st := &c.Status
		retry := ""
		if st.Rollout != nil {
			retry = st.Rollout.Retry
		}
		st.Phase, st.Message, st.CurrentBatch, st.Batch, st.TotalReplicas = phase, message, batch, fmt.Sprintf("%d/4", batch), 8
		st.Rollout = &v1alpha1.RolloutStatus{ID: plan.ID, StartedAt: ago(600), Retry: retry, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}
		st.Batches = nil
		for n := range batch {
			b := v1alpha1.BatchStatus{Target: plan.Targets[n], StartedAt: ago(600 - 60*int(n)), AvailableAt: new(ago(590 - 60*int(n)))}
			if n < batch-1 {
				b.FinishedAt, b.Verdict = new(ago(540-60*int(n))), v1alpha1.VerdictPass
			}
			st.Batches = append(st.Batches, b)
		}
		target := plan.Targets[batch-1]
		st.New = &v1alpha1.WorkloadStatus{Name: "reviews-v2", Replicas: target, AvailableReplicas: target}
		st.Old = &v1alpha1.WorkloadStatus{Name: "reviews-v1", Replicas: 8 - target, AvailableReplicas: 8 - target}
	}
}

// judged says what the gate found about the current batch.
func judged(verdict v1alpha1.Verdict, value, message string, bad, total int64, history ...string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		st := &c.Status
		var decisions []v1alpha1.GateDecision
		if st.Gate != nil {
			decisions = st.Gate.Decisions
		}
		st.Verdict = verdict
		st.Gate = &v1alpha1.GateStatus{
			Batch: st.CurrentBatch, WindowStart: ago(60), EvaluatedAt: new(ago(5)), Evaluations: int32(len(history)), Verdict: verdict, Message: "error-rate: " + message,
			Checks: []v1alpha1.CheckStatus{{
				Name: "error-rate", Kind: v1alpha1.CheckProportion, Verdict: verdict, Value: value, Limit: "1%", Message: message,
				New: &v1alpha1.RequestCounts{Bad: bad, Total: total}, Old: &v1alpha1.RequestCounts{Bad: 9, Total: 7104}, History: history,
			}},
			Decisions: decisions,
		}
	}
}

func decided(action string, verdict v1alpha1.Verdict, seconds int, evidence string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Status.Gate.Decisions = append(c.Status.Gate.Decisions, v1alpha1.GateDecision{
			Time: ago(seconds), Batch: c.Status.CurrentBatch, Verdict: verdict, Action: action, Evidence: evidence,
		})
	}
}

// gatePaused says that the gate waits for a person.
func gatePaused(c *v1alpha1.Canary) { c.Status.Gate.PausedAt = new(ago(30)) }

// turned says that the rollout goes back.
func turned(reason string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Status.Rollout.RollbackStartedAt, c.Status.Rollout.RollbackReason = new(ago(20)), reason
	}
}

func ended(outcome v1alpha1.Outcome) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Status.Rollout.Outcome, c.Status.Rollout.FinishedAt = outcome, new(ago(1))
	}
}

const (
	available = "batch 1 is available; set spec.info.currentBatch to 2 or more to go on"
	few       = "12 requests of the new version are too few to tell"
)
