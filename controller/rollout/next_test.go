package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

var t0 = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

// world is a cluster in miniature: it carries decisions out and lets pods become
// available, crash and go, so that courses of many decisions can be tested.
type world struct {
	plan  Plan
	state State
	last  Decision
	gate  Evidence
	now   time.Time
	live  map[string]*Workload
}

var (
	gatePass   = Evidence{Verdict: v1alpha1.VerdictPass, Action: GatePromote, Message: "all is well"}
	gateFail   = Evidence{Verdict: v1alpha1.VerdictFail, Action: GateRollback, Message: "too many errors"}
	gateNoData = Evidence{Verdict: v1alpha1.VerdictNoData, Action: GateHold, Message: "no requests"}
	gateError  = Evidence{Verdict: v1alpha1.VerdictError, Action: GateHold, Message: "Prometheus is down"}
	gatePause  = Evidence{Verdict: v1alpha1.VerdictNoData, Action: GatePause, Message: "held for 30m"}
)

func newWorld(plan Plan, live map[string]*Workload) *world {
	return &world{plan: plan, now: t0, live: live, gate: NoGate}
}

func whole(replicas int32) *Workload {
	return &Workload{Exists: true, Settled: true, Current: true, Replicas: replicas, Available: replicas, Updated: replicas}
}

func plan42(kind v1alpha1.CanaryType, pause v1alpha1.PauseType) Plan {
	p := Plan{ID: "v1-a", Type: kind, NewName: "new", OldName: "old", Total: 4, Targets: FormulaTargets(4, 2), Pause: pause, Approved: 1, ProgressDeadline: 10 * time.Minute}
	if kind == v1alpha1.NormalDeploy {
		p.OldName, p.Targets = "", []int32{4}
	}
	return p
}

func (w *world) get(name string) Workload {
	if live := w.live[name]; live != nil {
		return *live
	}
	return Workload{}
}

func (w *world) observed() Observed {
	seen := Observed{New: w.get(w.plan.NewName), Old: w.get(w.plan.OldName), Retiring: map[string]Workload{}}
	for name := range w.live {
		if name != w.plan.NewName && name != w.plan.OldName {
			seen.Retiring[name] = w.get(name)
		}
	}
	return seen
}

// sync makes one decision and carries it out, as the reconciler does.
func (w *world) sync() {
	w.last = Next(w.plan, w.observed(), w.state, w.gate, w.now)
	w.state = w.last.State
	for name, action := range w.last.Actions {
		live := w.live[name]
		switch action.Verb {
		case Delete:
			delete(w.live, name)
			continue
		case Apply:
			if live == nil {
				live = &Workload{Exists: true, Settled: true}
				w.live[name] = live
			}
			live.Current = true
		}
		live.Replicas = action.Replicas
		live.Available, live.Updated = min(live.Available, live.Replicas), min(live.Updated, live.Replicas)
	}
}

// settle lets every pod become available, but for those of the broken Deployments.
func (w *world) settle(broken ...string) {
	for name, live := range w.live {
		if !slices.Contains(broken, name) {
			live.Available, live.Updated = live.Replicas, live.Replicas
		}
	}
}

// run syncs until nothing changes any more.
func (w *world) run(broken ...string) {
	for range 200 {
		before := w.picture()
		w.sync()
		w.settle(broken...)
		if w.picture() == before {
			return
		}
	}
	panic("the rollout does not come to rest: " + w.picture())
}

func (w *world) picture() string {
	out := fmt.Sprintf("%s %d %+v |", w.last.Phase, w.state.CurrentBatch, w.state.Batches)
	for _, name := range []string{"new", "old", "third"} {
		out += fmt.Sprintf(" %s %+v", name, w.get(name))
	}
	if w.state.Rollout != nil {
		out += fmt.Sprintf("%+v", *w.state.Rollout)
	}
	return out
}

func (w *world) check(t *testing.T, phase v1alpha1.Phase, newReplicas, oldReplicas int32) {
	t.Helper()
	if w.last.Phase != phase || w.get("new").Replicas != newReplicas || w.get("old").Replicas != oldReplicas {
		t.Fatalf("phase %s, new %d, old %d (%s); want %s, %d, %d",
			w.last.Phase, w.get("new").Replicas, w.get("old").Replicas, w.last.Message, phase, newReplicas, oldReplicas)
	}
}

func TestExampleOfFourReplicasInTwoBatches(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4)})
	w.sync()
	w.check(t, v1alpha1.PhaseProgressing, 1, 4) // old is not scaled before the new pod is available
	w.settle()
	w.sync()
	w.check(t, v1alpha1.PhaseProgressing, 1, 3)
	w.run()
	w.check(t, v1alpha1.PhaseAwaitingApproval, 1, 3)
	w.plan.Approved = 2
	w.run()
	w.check(t, v1alpha1.PhaseCompleted, 4, 0)
	if w.live["old"] != nil {
		t.Error("old is still there")
	}
}

func TestDeadlineCountsFromTheStartOfTheBatch(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4)})
	w.sync()
	if w.last.RequeueAfter != 10*time.Minute {
		t.Errorf("asks again after %s", w.last.RequeueAfter)
	}
	for minute := range 9 {
		w.now = t0.Add(time.Duration(minute+1) * time.Minute)
		// Pods flap: there and gone between syncs.
		w.live["new"].Updated = 0
		w.sync()
		if w.last.Phase != v1alpha1.PhaseProgressing {
			t.Fatalf("minute %d: %s", minute+1, w.last.Phase)
		}
	}
	// Two minutes of pause do not count.
	w.plan.Paused = true
	w.sync()
	w.now = w.now.Add(2 * time.Minute)
	w.plan.Paused = false
	w.sync()
	if w.last.Phase != v1alpha1.PhaseProgressing || w.last.RequeueAfter != time.Minute {
		t.Fatalf("after the pause: %s, asks again after %s", w.last.Phase, w.last.RequeueAfter)
	}
	w.now = w.now.Add(time.Minute)
	w.sync()
	if w.last.Phase != v1alpha1.PhaseFailed || !w.last.Stalled || len(w.last.Actions) > 0 {
		t.Fatalf("at the deadline: %+v", w.last)
	}
}

func TestTotalOfZeroCompletesAtOnce(t *testing.T) {
	p := plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseEach)
	p.Total, p.Targets = 0, FormulaTargets(0, 2)
	w := newWorld(p, map[string]*Workload{"old": whole(3)})
	w.run()
	w.check(t, v1alpha1.PhaseCompleted, 0, 0)
}

func TestUnsettledStatusGivesNothingUp(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4)})
	w.sync()
	w.settle()
	w.live["new"].Settled = false
	w.sync()
	w.check(t, v1alpha1.PhaseProgressing, 1, 4)
}

func TestRollbackWithOneNameWaitsForTheOldManifest(t *testing.T) {
	p := plan42(v1alpha1.CanaryRollback, v1alpha1.PauseFirst)
	p.NewName = "old"
	w := newWorld(p, map[string]*Workload{"old": whole(4)})
	w.live["old"].Current = false
	w.sync()
	if w.last.Phase != v1alpha1.PhaseRollingBack || w.last.Actions["old"] != (Action{Verb: Apply, Replicas: 4}) {
		t.Fatalf("%s with %+v before the old manifest is in place", w.last.Phase, w.last.Actions)
	}
	w.run()
	if w.last.Phase != v1alpha1.PhaseRolledBack {
		t.Errorf("came to rest in %s", w.last.Phase)
	}
}

func TestAutoscalerMinimumsBoundTheBatches(t *testing.T) {
	p := plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseNone)
	p.Total, p.Targets = 8, FormulaTargets(8, 4)
	w := newWorld(p.WithAutoscalers(2, 3), map[string]*Workload{"old": whole(8)})
	for range 60 {
		w.sync()
		w.settle()
		if old := w.get("old"); old.Exists && old.Replicas != 0 && old.Replicas < 3 {
			t.Fatalf("old stands at %d, its autoscaler's minimum is 3", old.Replicas)
		}
		if released := w.get("new"); released.Replicas < 2 {
			t.Fatalf("new stands at %d, its autoscaler's minimum is 2", released.Replicas)
		}
	}
	w.check(t, v1alpha1.PhaseCompleted, 8, 0)
}

func TestUnsettledOldCountsForNothing(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryRollback, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4), "new": whole(3)})
	w.live["old"].Settled = false
	w.sync()
	if action, ok := w.last.Actions["new"]; ok {
		t.Errorf("new is given up for what old may not have: %+v", action)
	}
	w.live["old"].Settled = true
	w.run()
	w.check(t, v1alpha1.PhaseRolledBack, 0, 4)
}

func TestNothingIsRaisedWhileItShrinks(t *testing.T) {
	for name, unsure := range map[string]func(old *Workload){
		"pods are going":               func(old *Workload) { old.Shrinking = true },
		"status is of an earlier spec": func(old *Workload) { old.Settled = false },
	} {
		w := newWorld(plan42(v1alpha1.CanaryRollback, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(2), "new": whole(2)})
		calm := *w.live["old"]
		unsure(w.live["old"])
		w.sync()
		w.check(t, v1alpha1.PhaseRollingBack, 2, 2)
		*w.live["old"] = calm
		w.sync()
		if got := w.get("old").Replicas; got != 4 {
			t.Errorf("%s: old is at %d afterwards, want 4", name, got)
		}
		w.run()
		w.check(t, v1alpha1.PhaseRolledBack, 0, 4)
	}
}

func TestRollbackGivesUpDeadPodsAtOnce(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryRollback, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(1), "new": whole(3)})
	w.live["new"].Available, w.live["new"].Updated = 0, 0
	w.sync()
	if got := w.last.Actions["new"].Verb; got != Delete {
		t.Errorf("the verb for pods that serve nobody is %q", got)
	}
}

func TestDeadPodsOfTheOldVersionDoNotFailTheLastBatch(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseNone), map[string]*Workload{"old": whole(4)})
	for w.state.CurrentBatch != 2 {
		w.sync()
		w.settle()
	}
	// A finalizer of somebody else keeps the old Deployment.
	w.live["old"].Deleting = true
	w.sync()
	w.settle()
	w.sync()
	w.now = w.now.Add(time.Hour)
	w.sync()
	if w.last.Phase != v1alpha1.PhaseProgressing {
		t.Errorf("phase %s (%s)", w.last.Phase, w.last.Message)
	}
}

func TestStateWithoutBatchesStartsAgain(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseFirst), map[string]*Workload{"old": whole(4)})
	w.state.Rollout = &v1alpha1.RolloutStatus{ID: w.plan.ID}
	w.run()
	w.check(t, v1alpha1.PhaseAwaitingApproval, 1, 3)
}

// TestCapacityHolds drives random rollouts through random weather: pods become available
// one at a time, in any order, people approve, roll back and replace versions. At every
// moment what is available is at least the total less what the weather took, no more
// than the total and a batch is wanted, and old and new add up.
func TestCapacityHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int32Range(0, 200).Draw(t, "total")
		batches := rapid.Int32Range(1, 50).Draw(t, "batches")
		p := plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseNone)
		p.Total, p.Targets = total, FormulaTargets(total, batches)
		w := newWorld(p, map[string]*Workload{"old": whole(total)})
		largest := p.Targets[0]
		for n := 1; n < len(p.Targets); n++ {
			largest = max(largest, p.Targets[n]-p.Targets[n-1])
		}
		var reached int32
		rolledBack := rapid.IntRange(0, 400).Draw(t, "rollback at")
		for n := range 400 {
			if n == rolledBack {
				w.plan.Type = v1alpha1.CanaryRollback
			}
			w.sync()
			if got := w.get("new").Available + w.get("old").Available; got < total {
				t.Fatalf("step %d: %d of %d available: %s", n, got, total, w.picture())
			}
			if got := w.get("new").Replicas + w.get("old").Replicas; got > total+max(largest, total-w.get("old").Available) {
				t.Fatalf("step %d: %d wanted of a total of %d and batches of %d: %s", n, got, total, largest, w.picture())
			}
			if w.plan.Type == v1alpha1.CanaryDeploy {
				if wanted := w.get("new").Replicas + w.get("old").Replicas; wanted > total+largest {
					t.Fatalf("step %d: %d wanted, at most %d may be", n, wanted, total+largest)
				}
				if replicas := w.get("new").Replicas; replicas < reached {
					t.Fatalf("step %d: new went down from %d to %d", n, reached, replicas)
				} else {
					reached = replicas
				}
			}
			for _, live := range w.live {
				if missing := live.Replicas - live.Available; missing > 0 {
					came := rapid.Int32Range(0, missing).Draw(t, "came")
					live.Available += came
					live.Updated = live.Available
				}
			}
		}
		w.run()
		if rolledBack < 400 {
			w.check2(t, v1alpha1.PhaseRolledBack, 0, total)
		} else {
			w.check2(t, v1alpha1.PhaseCompleted, total, 0)
		}
	})
}

func (w *world) check2(t *rapid.T, phase v1alpha1.Phase, newReplicas, oldReplicas int32) {
	if w.last.Phase != phase || w.get("new").Replicas != newReplicas || w.get("old").Replicas != oldReplicas {
		t.Fatalf("came to rest as %s, want %s with %d new and %d old", w.picture(), phase, newReplicas, oldReplicas)
	}
}

// TestARemovalThatHangsStalls: somebody's finalizer keeps the old Deployment.
func TestARemovalThatHangsStalls(t *testing.T) {
	w := newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseNone), map[string]*Workload{"old": whole(4)})
	for w.last.Message != "all batches are finished; removing old" {
		w.sync()
		w.settle()
	}
	w.live["old"] = &Workload{Exists: true, Deleting: true, Settled: true}
	w.sync()
	if w.last.Stalled || w.last.RequeueAfter != 10*time.Minute {
		t.Errorf("stalled %t, asks again after %s", w.last.Stalled, w.last.RequeueAfter)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.sync()
	if !w.last.Stalled || w.last.Phase != v1alpha1.PhaseProgressing {
		t.Errorf("stalled %t in %s after ten minutes", w.last.Stalled, w.last.Phase)
	}
	delete(w.live, "old")
	w.run()
	if w.last.Stalled || w.last.Phase != v1alpha1.PhaseCompleted {
		t.Errorf("stalled %t in %s afterwards", w.last.Stalled, w.last.Phase)
	}
}
