package view

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// at is a moment of the story that the fixtures tell, in seconds from its start.
func at(seconds int) *metav1.Time {
	return new(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)))
}

func manifest(name string, replicas int) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %[1]s}\nspec:\n  replicas: %[2]d\n  selector: {matchLabels: {app: %[1]s}}\n  template:\n    metadata: {labels: {app: %[1]s}}\n    spec: {containers: [{name: main, image: %[1]s}]}\n", name, replicas)
}

// reviews is a release of 8 replicas in 4 batches with a gate, before it began.
func reviews() *v1alpha1.Canary {
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "bookinfo", Name: "reviews", Generation: 3, CreationTimestamp: *at(-3600)}}
	c.Spec.Info = v1alpha1.CanaryInfo{
		Type: v1alpha1.CanaryDeploy, TotalBatches: new(intstr.FromString("4")), CurrentBatch: new(intstr.FromString("1")), PauseType: v1alpha1.PauseFirst,
		NewDeploymentYaml: manifest("reviews-v2", 8), OldDeploymentYaml: manifest("reviews-v1", 8),
	}
	c.Spec.Gate = &v1alpha1.Gate{
		Checks: []v1alpha1.GateCheck{
			{Name: "error-rate", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "1%", Harm: "0.5%"}},
			{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: "p99", Max: "0.5", Samples: "n", MinSamples: 500}},
		},
		Alerts: []v1alpha1.GateAlert{{MatchLabels: map[string]string{"canary_gate": "true"}}},
	}
	return c
}

// begun is a rollout in the given batch, with the batches before it finished and this one
// available, unless seconds say otherwise.
func begun(phase v1alpha1.Phase, batch int32, message string) *v1alpha1.Canary {
	c := reviews()
	spec := c.DeepCopy()
	v1alpha1.SetDefaults(spec)
	release, errs := v1alpha1.Validate(spec)
	if len(errs) > 0 {
		panic(errs.ToAggregate())
	}
	plan := rollout.NewPlan(spec, release, 8)
	s := &c.Status
	s.ObservedGeneration, s.Phase, s.Message = c.Generation, phase, message
	s.TotalReplicas, s.CurrentBatch, s.Batch = 8, batch, fmt.Sprintf("%d/4", batch)
	s.Rollout = &v1alpha1.RolloutStatus{ID: plan.ID, StartedAt: *at(0), TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}
	for n := range batch {
		from := int(n) * 300
		b := v1alpha1.BatchStatus{Target: plan.Targets[n], StartedAt: *at(from), AvailableAt: at(from + 12)}
		if n < batch-1 {
			b.FinishedAt, b.Verdict = at(from+300), v1alpha1.VerdictPass
		}
		s.Batches = append(s.Batches, b)
	}
	target := plan.Targets[batch-1]
	s.New = &v1alpha1.WorkloadStatus{Name: "reviews-v2", Replicas: target, AvailableReplicas: target}
	s.Old = &v1alpha1.WorkloadStatus{Name: "reviews-v1", Replicas: 8 - target, AvailableReplicas: 8 - target}
	return c
}

// judged adds what the gate saw of the current batch.
func judged(c *v1alpha1.Canary, verdict v1alpha1.Verdict, checks ...v1alpha1.CheckStatus) *v1alpha1.Canary {
	s := &c.Status
	from := int(s.CurrentBatch-1) * 300
	s.Verdict = verdict
	s.Batches[s.CurrentBatch-1].Verdict = verdict
	s.Gate = &v1alpha1.GateStatus{
		Batch: s.CurrentBatch, WindowStart: *at(from + 12), EvaluatedAt: at(from + 162), Evaluations: 6, Verdict: verdict, Checks: checks,
	}
	if s.CurrentBatch > 1 {
		s.Gate.Decisions = append(s.Gate.Decisions,
			v1alpha1.GateDecision{Time: *at(42), Batch: 1, Verdict: v1alpha1.VerdictNoData, Action: "Hold", Evidence: "error-rate: 12 requests of the new version do not suffice"},
			v1alpha1.GateDecision{Time: *at(299), Batch: 1, Verdict: v1alpha1.VerdictPass, Action: "Promote", Evidence: "error-rate: 1 of 2104 bad, old 14 of 14731; p99 0.21 of at most 0.5"})
	}
	s.Gate.Decisions = append(s.Gate.Decisions, v1alpha1.GateDecision{Time: *at(from + 42), Batch: s.CurrentBatch, Verdict: v1alpha1.VerdictNoData, Action: "Hold", Evidence: "error-rate: too few requests"})
	return c
}

func errorRate(verdict v1alpha1.Verdict, value, message string, bad, total int64, history ...string) v1alpha1.CheckStatus {
	return v1alpha1.CheckStatus{
		Name: "error-rate", Kind: v1alpha1.CheckProportion, Verdict: verdict, Value: value, Limit: "1%", Message: message,
		New: &v1alpha1.RequestCounts{Bad: bad, Total: total}, Old: &v1alpha1.RequestCounts{Bad: 9, Total: 7104}, History: history,
	}
}

func p99(verdict v1alpha1.Verdict, value, message string, history ...string) v1alpha1.CheckStatus {
	return v1alpha1.CheckStatus{Name: "p99", Kind: v1alpha1.CheckThreshold, Verdict: verdict, Value: value, Limit: "0.5", Message: message, Passes: 2, History: history}
}

func alert(verdict v1alpha1.Verdict, message string) v1alpha1.CheckStatus {
	return v1alpha1.CheckStatus{Name: `alert{canary_gate="true"}`, Kind: v1alpha1.CheckAlert, Verdict: verdict, Message: message}
}

// scene is a Canary and the second of its story in which it is looked at.
type scene struct {
	canary *v1alpha1.Canary
	second int
}

// scenes has at least one of each phase.
func scenes() map[string]scene {
	list := map[string]scene{}
	list["unseen"] = scene{reviews(), 5}

	c := reviews()
	c.Spec.Paused = true
	c.Status = v1alpha1.CanaryStatus{ObservedGeneration: 3, Phase: v1alpha1.PhasePending, Message: "paused before the rollout started; spec.paused must be false"}
	list["pending"] = scene{c, 60}

	c = begun(v1alpha1.PhaseProgressing, 2, "batch 2: 2 of 3 replicas of reviews-v2 are available")
	c.Status.New.AvailableReplicas = 2
	c.Status.Batches[1].AvailableAt = nil
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Message: "7 of 8 replicas are available"}}
	c.Status.Old.Replicas, c.Status.Old.AvailableReplicas = 6, 5
	list["progressing"] = scene{c, 320}

	c = judged(begun(v1alpha1.PhaseAwaitingApproval, 1, "batch 1 is available; set spec.info.currentBatch to 2 or more to go on"), v1alpha1.VerdictPass,
		errorRate(v1alpha1.VerdictPass, "0.05%", "not worse than the old version", 1, 2104, "", "0.2%", "0.1%", "0.07%", "0.05%", "0.05%"),
		p99(v1alpha1.VerdictPass, "0.21", "", "0.2", "0.25", "0.19", "0.3", "0.21"), alert(v1alpha1.VerdictPass, "2 rules are quiet"))
	c.Status.Batches[0].FinishedAt = nil
	list["awaiting-approval"] = scene{c, 180}

	c = judged(begun(v1alpha1.PhaseAwaitingApproval, 2, "batch 2 waits for a person: no verdict within 30m0s; error-rate: too few requests"), v1alpha1.VerdictNoData,
		errorRate(v1alpha1.VerdictNoData, "0%", "12 requests of the new version are too few to tell, about 700 are needed", 0, 12, "", "", "0%"),
		p99(v1alpha1.VerdictNoData, "", "no samples"), alert(v1alpha1.VerdictPass, "2 rules are quiet"))
	c.Status.Gate.PausedAt = at(2112)
	list["gate-paused"] = scene{c, 2300}

	c = judged(begun(v1alpha1.PhaseAnalyzing, 2, "batch 2 is available and held: error-rate: too few requests"), v1alpha1.VerdictError,
		errorRate(v1alpha1.VerdictNoData, "0.13%", "2310 requests of the new version are too few to tell, about 3100 are needed", 3, 2310, "0.4%", "0.31%", "0.22%", "", "0.15%", "0.13%"),
		p99(v1alpha1.VerdictError, "", `http://prometheus.monitoring:9090 answers 503 Service Unavailable`, "0.2", "0.25", "", "0.19", "0.3", ""),
		alert(v1alpha1.VerdictPass, "2 rules are quiet"))
	// A pass, since when the hold is counted.
	c.Status.Gate.HeldSince = at(432)
	list["analyzing"] = scene{c, 480}

	c = judged(begun(v1alpha1.PhaseRollingBack, 2, "rolling back: 6 of 8 replicas of reviews-v1 are available; the gate failed batch 2: error-rate: 61 of 1203 bad (5.1%), old 9 of 7104, limit 1%"), v1alpha1.VerdictFail,
		errorRate(v1alpha1.VerdictFail, "5.1%", "worse than the limit of 1%", 61, 1203, "4.1%", "4.8%", "5%", "5.1%"),
		p99(v1alpha1.VerdictPass, "0.22", "", "0.2", "0.25", "0.22"), alert(v1alpha1.VerdictFail, "GoHelloErrors fires for reviews-v2"))
	failedGate(c)
	c.Status.Old.Replicas, c.Status.Old.AvailableReplicas = 8, 6
	list["rolling-back"] = scene{c, 470}

	c = c.DeepCopy()
	c.Status.Phase = v1alpha1.PhaseRolledBack
	c.Status.Message = "rolled back: the gate failed batch 2: error-rate: 61 of 1203 bad (5.1%), old 9 of 7104, limit 1%; a new version or another value of the annotation canarycontroller.tech.com/retry starts again"
	c.Status.Rollout.Outcome, c.Status.Rollout.FinishedAt = v1alpha1.OutcomeRolledBack, at(480)
	c.Status.New.Replicas, c.Status.New.AvailableReplicas = 0, 0
	c.Status.Old.AvailableReplicas = 8
	list["rolled-back"] = scene{c, 900}

	c = judged(begun(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released"), v1alpha1.VerdictPass,
		errorRate(v1alpha1.VerdictPass, "0.1%", "not worse than the old version", 9, 9100, "0.1%", "0.11%", "0.1%"))
	c.Status.Gate.Checks[0].Old, c.Status.Gate.Checks[0].Baseline = &v1alpha1.RequestCounts{}, &v1alpha1.RequestCounts{Bad: 5, Total: 5030}
	c.Status.Batches[3].FinishedAt = at(1200)
	c.Status.Rollout.Outcome, c.Status.Rollout.FinishedAt = v1alpha1.OutcomeCompleted, at(1201)
	list["completed"] = scene{c, 4000}

	c = begun(v1alpha1.PhaseFailed, 3, "batch 3 was not available within 10m0s: 4 of 5 replicas of reviews-v2 are")
	c.Status.Batches[2].AvailableAt = nil
	c.Status.New.AvailableReplicas = 4
	c.Status.Rollout.Outcome, c.Status.Rollout.FinishedAt = v1alpha1.OutcomeFailed, at(1200)
	list["failed"] = scene{c, 1300}

	c = begun(v1alpha1.PhaseInvalid, 2, `spec.info.newDeploymentYaml: Invalid value: line 6: unknown field "spec.replicaz"`)
	c.Spec.Info.NewDeploymentYaml = "kind: Deployment\n"
	list["invalid"] = scene{c, 400}

	c = begun(v1alpha1.PhaseProgressing, 3, "batch 3: 6 of 6 replicas of reviews-v2 are available")
	c.Generation++
	c.Spec.Gate = nil
	c.Spec.Paused = true
	c.Status.Batches[2].BrokenAt = at(700)
	list["broken-paused-stale"] = scene{c, 730}
	return list
}

// failedGate adds the gate's failure and the beginning of the way back.
func failedGate(c *v1alpha1.Canary) {
	c.Status.Gate.Decisions = append(c.Status.Gate.Decisions, v1alpha1.GateDecision{
		Time: *at(462), Batch: 2, Verdict: v1alpha1.VerdictFail, Action: "Rollback", Evidence: "error-rate: 61 of 1203 bad (5.1%), old 9 of 7104, limit 1%",
		TraceIDs: []string{"aaaa2f3577b34da6a3ce929d0e0e4736", "bbbb2f3577b34da6a3ce929d0e0e4736"},
	})
	c.Status.Gate.Checks[0].TraceIDs = []string{"bbbb2f3577b34da6a3ce929d0e0e4736"}
	c.Status.Rollout.RollbackStartedAt = at(462)
	c.Status.Rollout.RollbackReason = "the gate failed batch 2: error-rate: 61 of 1203 bad (5.1%), old 9 of 7104, limit 1%"
}

func TestScenesCoverEveryPhase(t *testing.T) {
	seen := map[v1alpha1.Phase]bool{}
	for _, s := range scenes() {
		seen[s.canary.Status.Phase] = true
	}
	for _, phase := range v1alpha1.Phases() {
		if !seen[phase] {
			t.Errorf("no scene of %s", phase)
		}
	}
}
