package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// event is something that can happen to a rollout in any phase.
type event struct {
	name string
	do   func(*world)
}

func events() []event {
	return []event{
		{"nothing", func(*world) {}},
		{"approval", func(w *world) { w.plan.Approved = 9 }},
		{"pause", func(w *world) { w.plan.Paused = true }},
		{"user rollback", func(w *world) { w.plan.Type = v1alpha1.CanaryRollback }},
		{"third version", func(w *world) { w.plan.ID, w.plan.NewName = "v1-b", "third" }},
		{"retry", func(w *world) { w.plan.Retry += "+" }},
		{"verdict Fail", func(w *world) { w.gate = gateFail }},
		{"verdict NoData", func(w *world) { w.gate = gateNoData }},
		{"verdict Error", func(w *world) { w.gate = gateError }},
		{"gate pauses", func(w *world) { w.gate = gatePause }},
		{"deadline passes", func(w *world) { w.now = w.now.Add(time.Hour) }},
		{"new deleted", func(w *world) { delete(w.live, "new") }},
		{"old deleted", func(w *world) { delete(w.live, "old") }},
		{"new edited", func(w *world) {
			if d := w.live["new"]; d != nil {
				d.Replicas = 7
			}
		}},
	}
}

// phases brings a world into each phase that Next can answer with.
func phases() map[v1alpha1.Phase]func() *world {
	canary := func() *world {
		return newWorld(plan42(v1alpha1.CanaryDeploy, v1alpha1.PauseEach), map[string]*Workload{"old": whole(4)})
	}
	return map[v1alpha1.Phase]func() *world{
		v1alpha1.PhasePending:          func() *world { w := canary(); w.plan.Paused = true; w.sync(); return w },
		v1alpha1.PhaseProgressing:      func() *world { w := canary(); w.sync(); return w },
		v1alpha1.PhaseAwaitingApproval: func() *world { w := canary(); w.run(); return w },
		v1alpha1.PhaseAnalyzing:        func() *world { w := canary(); w.gate = gateNoData; w.run(); return w },
		v1alpha1.PhaseRollingBack: func() *world {
			w := canary()
			w.run()
			w.plan.Type = v1alpha1.CanaryRollback
			w.sync()
			return w
		},
		v1alpha1.PhaseCompleted:  func() *world { w := canary(); w.plan.Approved = 9; w.run(); return w },
		v1alpha1.PhaseRolledBack: func() *world { w := canary(); w.run(); w.plan.Type = v1alpha1.CanaryRollback; w.run(); return w },
		v1alpha1.PhaseFailed: func() *world {
			w := canary()
			w.sync()
			w.now = w.now.Add(time.Hour)
			w.sync()
			return w
		},
	}
}

// TestEveryPhaseWithEveryEvent is the state machine as a table: where each event leads
// from each phase once the world has come to rest.
func TestEveryPhaseWithEveryEvent(t *testing.T) {
	const (
		pen, pro, awa, ana = v1alpha1.PhasePending, v1alpha1.PhaseProgressing, v1alpha1.PhaseAwaitingApproval, v1alpha1.PhaseAnalyzing
		com, rol, fai      = v1alpha1.PhaseCompleted, v1alpha1.PhaseRolledBack, v1alpha1.PhaseFailed
	)
	from := []v1alpha1.Phase{pen, pro, awa, ana, v1alpha1.PhaseRollingBack, com, rol, fai}
	want := map[string][]v1alpha1.Phase{
		//                 pen  pro  awa  ana  rolling  com  rol  fai
		"nothing":         {pen, awa, awa, ana, rol, com, rol, fai},
		"approval":        {pen, com, com, ana, rol, com, rol, fai},
		"pause":           {pen, pro, pro, ana, rol, com, rol, fai},
		"user rollback":   {rol, rol, rol, rol, rol, rol, rol, rol},
		"third version":   {pen, awa, awa, ana, rol, com, rol, awa},
		"retry":           {pen, awa, awa, ana, rol, com, rol, awa},
		"verdict Fail":    {pen, rol, rol, rol, rol, com, rol, fai},
		"verdict NoData":  {pen, ana, ana, ana, rol, com, rol, fai},
		"verdict Error":   {pen, ana, ana, ana, rol, com, rol, fai},
		"gate pauses":     {pen, awa, awa, awa, rol, com, rol, fai},
		"deadline passes": {pen, fai, awa, ana, rol, com, rol, fai},
		"new deleted":     {pen, awa, awa, ana, rol, com, rol, fai},
		"old deleted":     {pen, awa, awa, ana, rol, com, rol, fai},
		"new edited":      {pen, awa, awa, ana, rol, com, rol, fai},
	}
	worlds := phases()
	for _, e := range events() {
		for n, phase := range from {
			t.Run(fmt.Sprintf("%s/%s", phase, e.name), func(t *testing.T) {
				w := worlds[phase]()
				if w.last.Phase != phase {
					t.Fatalf("the world is in phase %s", w.last.Phase)
				}
				e.do(w)
				w.run()
				expected := want[e.name][n]
				// A third version after completion is an ordinary rollout of its own.
				if e.name == "third version" && phase == com {
					expected = com
				}
				if w.last.Phase != expected {
					t.Errorf("came to rest in %s (%s), want %s", w.last.Phase, w.last.Message, expected)
				}
			})
		}
	}
	if len(want) != len(events()) {
		t.Errorf("%d rows for %d events", len(want), len(events()))
	}
}

// TestNoPhaseIsATrap holds that from every phase, whatever happened in it, a rollback
// reaches RolledBack and another version reaches Completed.
func TestNoPhaseIsATrap(t *testing.T) {
	for phase, build := range phases() {
		for _, e := range events() {
			for exit, leave := range map[v1alpha1.Phase]func(*world){
				v1alpha1.PhaseRolledBack: func(w *world) { w.plan.Type = v1alpha1.CanaryRollback },
				v1alpha1.PhaseCompleted: func(w *world) {
					w.plan.ID, w.plan.NewName, w.plan.Approved, w.plan.Paused = "v1-c", "third", 9, false
					w.plan.Type = v1alpha1.CanaryDeploy
				},
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", phase, e.name, exit), func(t *testing.T) {
					w := build()
					e.do(w)
					w.sync()
					w.gate = gatePass
					leave(w)
					w.run()
					if w.last.Phase != exit {
						t.Errorf("came to rest in %s (%s)", w.last.Phase, w.last.Message)
					}
				})
			}
		}
	}
}
