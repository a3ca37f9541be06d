//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// decisions renders the gate's decisions as "batch verdict action".
func decisions(c *v1alpha1.Canary) []string {
	if c.Status.Gate == nil {
		return nil
	}
	var list []string
	for _, d := range c.Status.Gate.Decisions {
		list = append(list, fmt.Sprintf("%d %s %s", d.Batch, d.Verdict, d.Action))
	}
	return list
}

func TestGatePromotesOnEvidence(t *testing.T) {
	s := parallel(t)
	requests, prometheus := withTraffic(t)
	requests.set(s.name, "old", 2000, 0.001)
	requests.set(s.name, "new", 2000, 0.001)
	s.deploy(v("old", 4))
	watch := s.watchDeployments()
	s.create(gatedCanary(prometheus))
	done := s.phase(v1alpha1.PhaseCompleted)
	watch.stop()
	watch.neverBelow(4)
	if got := decisions(done); !slices.Contains(got, "1 Pass Promote") || !slices.Contains(got, "2 Pass Promote") {
		t.Errorf("decisions are %v", got)
	}
	for n, batch := range done.Status.Batches {
		if batch.Verdict != v1alpha1.VerdictPass || batch.FinishedAt.Sub(batch.AvailableAt.Time) < time.Second {
			t.Errorf("batch %d has verdict %s, available at %s, finished at %s", n+1, batch.Verdict, batch.AvailableAt, batch.FinishedAt)
		}
	}
	check := done.Status.Gate.Checks[0]
	if check.New == nil || check.New.Total < 500 || check.New.Bad > check.New.Total/500 || check.Limit == "" || check.Value == "" ||
		len(check.Queries) < 2 || !strings.Contains(check.Queries[0], s.name) || check.Baseline == nil {
		t.Errorf("the evidence is %+v", check)
	}
	s.wait("the event", s.toldOnce("GatePassed: batch 1: "+firstEvidence(done, 1, "Promote")))
}

// firstEvidence is what a batch's decision rests on.
func firstEvidence(c *v1alpha1.Canary, batch int32, action string) string {
	for _, d := range c.Status.Gate.Decisions {
		if d.Batch == batch && d.Action == action {
			return d.Evidence
		}
	}
	return "no such decision"
}

func TestGateRollsBackOnHarm(t *testing.T) {
	s := parallel(t)
	requests, prometheus := withTraffic(t)
	requests.set(s.name, "old", 2000, 0.001)
	requests.set(s.name, "new", 500, 0.05)
	s.deploy(v("old", 4))
	watch := s.watchDeployments()
	s.create(gatedCanary(prometheus))
	done := s.phase(v1alpha1.PhaseRolledBack)
	watch.stop()
	watch.neverBelow(4)
	s.wait("the old version", s.replicas("old", 4, 4))
	s.wait("the new version to go", s.gone("new"))
	if got := decisions(done); got[len(got)-1] != "1 Fail Rollback" {
		t.Errorf("decisions are %v", got)
	}
	if check := done.Status.Gate.Checks[0]; check.Verdict != v1alpha1.VerdictFail || check.New.Bad < 5 {
		t.Errorf("the evidence is %+v", check)
	}
	if reason := done.Status.Rollout.RollbackReason; !strings.HasPrefix(reason, "the gate failed batch 1: error-rate: ") {
		t.Errorf("rolled back because %q", reason)
	}
	s.wait("the event", s.toldOnce("RollbackStarted: rolling back: "+done.Status.Rollout.RollbackReason))
}

// TestGateHoldsWithoutTraffic: no requests are no evidence. After the deadline a person is
// asked, and lets the batch through.
func TestGateHoldsWithoutTraffic(t *testing.T) {
	s := parallel(t)
	_, prometheus := withTraffic(t)
	s.deploy(v("old", 4))
	c := gatedCanary(prometheus)
	c.Spec.Gate.HoldDeadline = &metav1.Duration{Duration: 4 * time.Second}
	s.create(c)
	s.status("a verdict", func(c *v1alpha1.Canary) bool {
		return c.Status.Phase == v1alpha1.PhaseAnalyzing && c.Status.Verdict == v1alpha1.VerdictNoData
	})
	held := s.phase(v1alpha1.PhaseAwaitingApproval)
	if c := meta.FindStatusCondition(held.Status.Conditions, v1alpha1.ConditionGateHealthy); c.Status != metav1.ConditionUnknown || c.Reason != string(v1alpha1.ReasonGateNoData) {
		t.Errorf("GateHealthy is %s, %s", c.Status, c.Reason)
	}
	s.wait("the event", s.hasEvent(v1alpha1.ReasonGatePaused))
	if r := held.Status.Rollout; r.RollbackStartedAt != nil || held.Status.Batches[0].FinishedAt != nil {
		t.Fatalf("without evidence: %+v", held.Status)
	}
	for batch := 1; batch <= 2; batch++ {
		s.edit(func(c *v1alpha1.Canary) {
			c.Annotations = map[string]string{v1alpha1.AnnotationPromote: fmt.Sprintf("%s/%d", held.Status.Rollout.ID, batch)}
			// Annotations do not raise the generation; this does and changes nothing else.
			c.Spec.ProgressDeadlineSeconds = new(int32(600 + batch))
		})
		if batch == 1 {
			s.status("the second batch to be held", func(c *v1alpha1.Canary) bool {
				return c.Status.CurrentBatch == 2 && c.Status.Phase == v1alpha1.PhaseAwaitingApproval
			})
		}
	}
	done := s.phase(v1alpha1.PhaseCompleted)
	if got := decisions(done); !slices.Contains(got, "1 NoData Pause") || !slices.Contains(got, "1 NoData Override") || !slices.Contains(got, "2 NoData Override") {
		t.Errorf("decisions are %v", got)
	}
	s.wait("the event", s.hasEvent(v1alpha1.ReasonGateOverridden))

	// A retry is the same rollout by its id, and what was let through before is judged anew.
	s.rollBack()
	s.phase(v1alpha1.PhaseRolledBack)
	s.edit(func(c *v1alpha1.Canary) {
		c.Spec.Info.Type = v1alpha1.CanaryDeploy
		c.Annotations = map[string]string{v1alpha1.AnnotationPromote: held.Status.Rollout.ID + "/1", v1alpha1.AnnotationRetry: "1"}
	})
	again := s.phase(v1alpha1.PhaseAwaitingApproval)
	if again.Status.CurrentBatch != 1 || again.Status.Rollout.StalePromote != held.Status.Rollout.ID+"/1" {
		t.Errorf("the retry stands at batch %d, ignoring %q", again.Status.CurrentBatch, again.Status.Rollout.StalePromote)
	}
}

// TestGateHoldsWhilePrometheusIsDown: the new version is not blamed for it, and goes on
// when there is evidence again.
func TestGateHoldsWhilePrometheusIsDown(t *testing.T) {
	s := parallel(t)
	requests, prometheus := withTraffic(t)
	way := newSwitchable(t, prometheus)
	way.cut.Store(true)
	requests.set(s.name, "old", 2000, 0.001)
	requests.set(s.name, "new", 2000, 0.001)
	s.deploy(v("old", 4))
	s.create(gatedCanary(way.URL))
	held := s.status("the error", func(c *v1alpha1.Canary) bool {
		return c.Status.Phase == v1alpha1.PhaseAnalyzing && c.Status.Verdict == v1alpha1.VerdictError && c.Status.Gate.Evaluations >= 3
	})
	if c := meta.FindStatusCondition(held.Status.Conditions, v1alpha1.ConditionGateHealthy); c.Status != metav1.ConditionFalse || c.Reason != string(v1alpha1.ReasonGateError) {
		t.Errorf("GateHealthy is %s, %s", c.Status, c.Reason)
	}
	way.cut.Store(false)
	done := s.phase(v1alpha1.PhaseCompleted)
	if done.Status.Rollout.RollbackStartedAt != nil {
		t.Error("rolled back for want of evidence")
	}
	if got := decisions(done); !slices.Contains(got, "1 Error Hold") || !slices.Contains(got, "1 Pass Promote") {
		t.Errorf("decisions are %v", got)
	}
	s.wait("the event", s.hasEvent(v1alpha1.ReasonGateError))
}

// TestGateKeepsSecrets: a token is read from the Canary's own namespace and shown nowhere,
// not even when the server answers with it; an address that is not allowed is never called.
func TestGateKeepsSecrets(t *testing.T) {
	s := parallel(t)
	requests, prometheus := withTraffic(t)
	requests.set(s.name, "old", 2000, 0.001)
	requests.set(s.name, "new", 2000, 0.001)
	way := newSwitchable(t, prometheus)
	way.token = "e2e-secret-" + s.name
	secret := func(token string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, StringData: map[string]string{"token": token}}
	}
	wrong := "e2e-wrong-" + s.name
	if _, err := s.kube.CoreV1().Secrets(s.name).Create(s.ctx, secret(wrong), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.deploy(v("old", 4))
	c := gatedCanary(way.URL)
	c.Spec.Gate.Prometheus.Secret = "prometheus"
	s.create(c)
	refused := s.status("the refusal", func(c *v1alpha1.Canary) bool { return c.Status.Verdict == v1alpha1.VerdictError })
	if !strings.Contains(refused.Status.Gate.Message, "401") {
		t.Errorf("the refusal reads %q", refused.Status.Gate.Message)
	}
	if _, err := s.kube.CoreV1().Secrets(s.name).Update(s.ctx, secret(way.token), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	done := s.phase(v1alpha1.PhaseCompleted)
	shown := fmt.Sprintf("%+v %+v %s %s", refused.Status, done.Status, strings.Join(s.events(), "\n"), env.shared.op.output())
	for _, token := range []string{wrong, way.token} {
		if strings.Contains(shown, token) {
			t.Error("a token shows in status, events or the log")
		}
	}
}

func TestGateCallsNoForbiddenAddress(t *testing.T) {
	s := parallel(t)
	s.deploy(v("old", 4))
	s.create(gatedCanary("http://169.254.169.254/latest"))
	held := s.status("the refusal", func(c *v1alpha1.Canary) bool { return c.Status.Verdict == v1alpha1.VerdictError })
	if !strings.Contains(held.Status.Gate.Message, "169.254.169.254 is never called") {
		t.Errorf("the refusal reads %q", held.Status.Gate.Message)
	}
}
