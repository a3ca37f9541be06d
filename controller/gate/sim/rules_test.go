package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

// Each letter is a look, p passing and f failing; batch boundaries are where the rule puts them.
func TestPeersByTheirDocumentation(t *testing.T) {
	tests := []struct {
		name  string
		rule  peer
		looks string
		want  result
	}{
		{"Flagger promotes after the iterations of both batches", flagger(1, atMax, 3, 2), "pppppp", result{promoted, 3, 6}},
		{"a failed check does not advance it", flagger(1, atMax, 3, 2), "pfppppp", result{promoted, 4, 7}},
		{"a pass does not lower failedChecks, nor does the next batch", flagger(1, atMax, 3, 2), "pfpppf", result{rolledBack, 4, 6}},
		{"threshold 1 rolls back at the first", flagger(1, atMax, 3, 1), "ppf", result{rolledBack, 3, 3}},
		{"Argo takes count in each batch", argo(1, atMax, 2, 0, 0), "pppp", result{promoted, 2, 4}},
		{"more than failureLimit abort", argo(1, atMax, 3, 1, 0), "fpf", result{rolledBack, 3, 3}},
		{"failureLimit does not, and counts anew in the next batch", argo(1, atMax, 3, 1, 0), "fppppf", result{promoted, 3, 6}},
		{"failureLimit 0 aborts at once, in the last batch too", argo(1, atMax, 2, 0, 0), "ppf", result{rolledBack, 2, 3}},
		{"successes in a row end a run early", argo(1, atMax, 5, 3, 2), "pp" + "fpp", result{promoted, 2, 5}},
		{"too few in a row are inconclusive", argo(1, atMax, 4, -1, 2), "pfpf", result{held, 4, 4}},
		{"and so in the last batch", argo(1, atMax, 4, -1, 2), "pp" + "fpfp", result{held, 2, 6}},
		{"-1 never aborts", argo(1, atMax, 6, -1, 2), "ffffpp" + "pp", result{promoted, 6, 8}},
		{"failures abort before successes in a row", argo(1, atMax, 6, 1, 3), "ppff", result{rolledBack, 4, 4}},
	}
	for _, test := range tests {
		ending, first, all := test.rule.decide(func(_, look int) bool {
			if look >= len(test.looks) {
				t.Fatalf("%s: looks again after %q", test.name, test.looks)
			}
			return test.looks[look] == 'f'
		})
		if got := (result{ending, first, all}); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// A peer's look is at the window since the one before, of the batch that it is in.
func TestPeerLooksAtTheLastWindow(t *testing.T) {
	traffic := newTraffic(cell{rate: 10, base: 0.01, pattern: steady}, equal, rand.New(rand.NewPCG(1, 1)))
	traffic.restart()
	traffic.upTo(horizon)
	for i := range traffic.first.total {
		traffic.first.total[i], traffic.last.total[i] = int64(100*i), int64(400*i)
		traffic.first.bad[i], traffic.last.bad[i] = 0, 0
	}
	// Of the fourth window, steps 9 to 11, 13 of 1,200 requests are bad: more than 1%.
	for i := 10; i < len(traffic.last.bad); i++ {
		traffic.last.bad[i] = 13
	}
	rule := flagger(3, tuned, 2, 1)
	rule.limit = "tuned"
	traffic.cell = cell{rate: 10, base: 0.0005, pattern: steady} // tuned: 0.05% + 0.1625% = 0.21%
	if got := rule.run(traffic, 0); got != (result{rolledBack, 6, 12}) {
		t.Errorf("%+v, want a rollback after 12 steps", got)
	}
}

// The simulated rule is the gate: driven with the same counts at the same times, Evaluate
// and Decide end every rollout in the same way at the same time.
func TestOursIsTheGate(t *testing.T) {
	start := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	endings := map[ending]int{}
	for _, c := range []cell{{1, 0.01, bursts}, {10, 0.001, drift}, {100, 0.05, steady}, {10, 0.01, outage}} {
		for _, s := range scenarios {
			random := rand.New(rand.NewPCG(5, 5))
			traffic := newTraffic(c, s, random)
			for range 12 {
				traffic.restart()
				spread := random.IntN(ourInterval)
				want := newOurs(c).run(traffic, spread)
				endings[want.ending]++
				if got := drive(t, traffic, spread, start); got != want {
					t.Errorf("%+v, %s: the gate ends with %+v, the simulation with %+v", c, s, got, want)
				}
			}
		}
	}
	for _, e := range []ending{promoted, rolledBack, held} {
		if endings[e] == 0 {
			t.Errorf("no rollout had the ending %d", e)
		}
	}
}

func drive(t *testing.T, traffic *traffic, spread int, start time.Time) result {
	spec := &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "errors", Proportion: &v1alpha1.ProportionCheck{
		Preset: v1alpha1.PresetHTTPServer, Max: percent(traffic.cell.max()), Harm: percent(traffic.cell.harm()),
	}}}}
	moment := func(step int) time.Time { return start.Add(time.Duration(step*stepSeconds) * time.Second) }
	sample := func(n int64) gate.Sample { return gate.Sample{Value: float64(n)} }
	var status *v1alpha1.GateStatus
	begin, first := 0, 0
	for batch := int32(1); ; batch++ {
		s := gate.Situation{RolloutID: "v1", Namespace: "n", Canary: "c", New: "new", Old: "old", Batch: batch, Batches: batches, WindowStart: moment(begin), OldReplicas: oldFirst}
		newer := traffic.first
		if batch == batches {
			newer, s.OldReplicas = traffic.last, 0
		}
		for at := begin + ourInterval + spread; ; at += ourInterval {
			if at > begin+deadline {
				at = begin + deadline
			} else {
				traffic.upTo(at)
				new, old := countsOf(newer, begin, at), countsOf(traffic.old, begin, at)
				oldBad, oldTotal := sample(old.Bad), sample(old.Total)
				status = gate.Evaluate(spec, status, s, gate.Gathered{"errors": {{NewBad: sample(new.Bad), NewTotal: sample(new.Total), OldBad: &oldBad, OldTotal: &oldTotal}}}, moment(at))
			}
			outcome, after := gate.Decide(spec, status, s, false, moment(at))
			status = after
			if batch == 1 {
				first = at
			}
			if outcome.Action == gate.Promote && batch < batches {
				begin = at
				break
			}
			switch outcome.Action {
			case gate.Promote:
				return result{promoted, first, at}
			case gate.Rollback:
				return result{rolledBack, first, at}
			case gate.Pause:
				return result{held, first, at}
			case gate.Hold:
			default:
				t.Fatalf("action %s", outcome.Action)
			}
		}
	}
}
