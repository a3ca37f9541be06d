package rollout

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// course runs a world to rest, writing a status at each step, and returns the statuses
// and every event told between them.
func (w *world) course(status *v1alpha1.CanaryStatus) (*v1alpha1.CanaryStatus, []string) {
	var told []string
	for range 100 {
		seen := w.observed()
		w.state = StateOf(status)
		w.sync()
		next := Status(status, 1, w.plan, seen, w.last, w.now)
		for _, e := range Events(status, next) {
			told = append(told, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
		idle := equality.Semantic.DeepEqual(status, next)
		w.settle()
		if status = next; idle {
			return status, told
		}
	}
	panic("the status does not come to rest")
}

func TestStatusAndEventsOfARollout(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4)})
	status, told := w.course(&v1alpha1.CanaryStatus{})
	want := []string{
		"Normal RolloutStarted: rollout v1-a of new started, 4 replicas",
		"Normal BatchStarted: batch 1 started: 1 of 4 replicas",
		"Normal BatchAvailable: batch 1 is available: 1 replicas",
		"Normal AwaitingApproval: batch 1 is available; set spec.info.currentBatch to 2 or more to go on",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%q\nwant\n%q", told, want)
	}
	if got := fmt.Sprint(status.Info); got != "map[availableReplicas:1 batch1Status:Ing]" {
		t.Errorf("info while waiting: %s", got)
	}
	w.plan.Approved = 2
	status, told = w.course(status)
	want = []string{
		"Normal BatchFinished: batch 1 is finished",
		"Normal BatchStarted: batch 2 started: 4 of 4 replicas",
		"Normal BatchAvailable: batch 2 is available: 4 replicas",
		"Normal BatchFinished: batch 2 is finished",
		"Normal Completed: new is released",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%q\nwant\n%q", told, want)
	}
	if got := fmt.Sprint(status.Info); got != "map[availableReplicas:4 batch1Status:Finished batch2Status:Finished]" {
		t.Errorf("info at the end: %s", got)
	}
	w.plan.Type = v1alpha1.CanaryRollback
	status, told = w.course(status)
	want = []string{
		"Warning RollbackStarted: rolling back: requested by spec.info.type CanaryRollback",
		"Warning RolledBack: old is back: requested by spec.info.type CanaryRollback",
	}
	// The message of the resting state explains more than that of the moment it was reached.
	if len(told) != 2 || told[0] != want[0] || told[1] != want[1] {
		t.Errorf("told\n%q\nwant\n%q", told, want)
	}
	if got := fmt.Sprint(status.Info); got != "map[availableReplicas:4 batch1Status:Finished batch2Status:Finished rollbackStatus:Finished]" {
		t.Errorf("info after the rollback: %s", got)
	}
	for kind, want := range map[string]string{
		v1alpha1.ConditionProgressing: "False/RolledBack", v1alpha1.ConditionAvailable: "True/ReplicasAvailable",
		v1alpha1.ConditionPaused: "False/AsExpected", v1alpha1.ConditionGateHealthy: "True/NoGate", v1alpha1.ConditionStalled: "False/AsExpected",
	} {
		c := meta.FindStatusCondition(status.Conditions, kind)
		if c == nil || string(c.Status)+"/"+c.Reason != want {
			t.Errorf("condition %s is %+v, want %s", kind, c, want)
		}
	}
}

func TestInvalidStatusKeepsTheRollout(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4)})
	status, _ := w.course(&v1alpha1.CanaryStatus{})
	invalid := InvalidStatus(status, 2, v1alpha1.ReasonInvalidSpec, "spec.info.newDeploymentYaml: bad", t0)
	if got := Events(status, invalid); len(got) != 1 || got[0] != (Event{"Warning", v1alpha1.ReasonInvalidSpec, "spec.info.newDeploymentYaml: bad"}) {
		t.Errorf("told %+v", got)
	}
	if got := Events(invalid, InvalidStatus(invalid, 3, v1alpha1.ReasonInvalidSpec, "spec.info.newDeploymentYaml: bad", t0)); len(got) != 0 {
		t.Errorf("told again: %+v", got)
	}
	if !equality.Semantic.DeepEqual(StateOf(status), StateOf(invalid)) {
		t.Error("the rollout's state was lost")
	}
}
