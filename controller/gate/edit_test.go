package gate

import (
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// TestAVerdictIsOnTheChecksThatWereEvaluated: what the author changes in the middle of a batch
// is evaluated before anything is done, for good or ill.
func TestAVerdictIsOnTheChecksThatWereEvaluated(t *testing.T) {
	ejected := healthyLook(900)
	ejected["ejected"] = []Evidence{{Value: value(1)}}
	for name, look := range map[string]Gathered{"healthy": healthyLook(900), "harmful": ejected} {
		want := Promote
		if name == "harmful" {
			want = Rollback
		}
		for edit, change := range map[string]func(*v1alpha1.Gate){
			"added":   func(g *v1alpha1.Gate) { g.Checks = append(g.Checks, threshold("cpu", "1")) },
			"removed": func(g *v1alpha1.Gate) { g.Checks = g.Checks[:2] },
			"renamed": func(g *v1alpha1.Gate) { g.Checks[1].Name = "latency" },
			"limit":   func(g *v1alpha1.Gate) { g.Checks[1].Threshold.Max = "0.1" },
			"query":   func(g *v1alpha1.Gate) { g.Checks[1].Threshold.Query = "other" },
			"source":  func(g *v1alpha1.Gate) { g.Prometheus = &v1alpha1.PrometheusSource{Address: "http://a.b"} },
			"alert":   func(g *v1alpha1.Gate) { g.Alerts[0].MatchLabels = map[string]string{"other": "true"} },
			"levels":  func(g *v1alpha1.Gate) { g.FalsePromotion = "0.1%" },
		} {
			spec := wholeGate()
			st := Evaluate(spec, nil, situation, healthyLook(700), after(135))
			st = Evaluate(spec, st, situation, look, after(165))
			if o, _ := Decide(spec, st, situation, false, after(166)); o.Action != want {
				t.Fatalf("%s: %+v before the edit", name, o)
			}
			change(spec)
			o, decided := Decide(spec, st, situation, false, after(166))
			if o.Action != Hold || o.Verdict != v1alpha1.VerdictNoData || o.Message != "the checks have changed and must be evaluated again" {
				t.Errorf("%s, %s: %+v", name, edit, o)
			}
			if due := Due(spec, decided, situation, after(165)); due != time.Second {
				t.Errorf("%s, %s: due in %s, within the second of the evaluation before", name, edit, due)
			}
			if due := Due(spec, decided, situation, after(166)); due != 0 {
				t.Errorf("%s, %s: due in %s", name, edit, due)
			}
			st = Evaluate(spec, decided, situation, look, after(166))
			if o, _ := Decide(spec, st, situation, false, after(166)); o.Message == "the checks have changed and must be evaluated again" {
				t.Errorf("%s, %s: %+v after the evaluation", name, edit, o)
			}
			if due := Due(spec, st, situation, after(167)); due != 29*time.Second {
				t.Errorf("%s, %s: due in %s after the evaluation", name, edit, due)
			}
		}
		spec := wholeGate()
		st := Evaluate(spec, nil, situation, healthyLook(700), after(135))
		st = Evaluate(spec, st, situation, look, after(165))
		spec.HoldDeadline, spec.OnHold = nil, v1alpha1.GateRollback
		if o, _ := Decide(spec, st, situation, false, after(166)); o.Action != want {
			t.Errorf("%s: %+v after an edit of what the verdict does not rest on", name, o)
		}
	}
}

// TestAChangedCheckBeginsAnew: neither its row nor its requests are those of the one before,
// but what is left of the old version is.
func TestAChangedCheckBeginsAnew(t *testing.T) {
	spec := wholeGate()
	st := Evaluate(spec, nil, situation, healthyLook(700), after(135))
	spec.Checks[0].Proportion.Max = "3%"
	spec.Checks[1].Threshold.Query = "other"
	st = Evaluate(spec, st, situation, healthyLook(900), after(165))
	if p99 := status(st, "p99"); p99.Passes != 1 || p99.Verdict != v1alpha1.VerdictNoData {
		t.Errorf("%d passes: %s", p99.Passes, p99.Verdict)
	}
	// Its requests may all have come before it was there.
	if e := status(st, "errors"); e.Verdict != v1alpha1.VerdictNoData || e.Peak != 900 || e.GrewAt != nil || e.Baseline == nil {
		t.Errorf("%+v", e)
	}
	st = Evaluate(spec, st, situation, healthyLook(901), after(195))
	if st.Verdict != v1alpha1.VerdictPass {
		t.Errorf("%s: %s", st.Verdict, st.Message)
	}
}

func threshold(name, limit string) v1alpha1.GateCheck {
	return v1alpha1.GateCheck{Name: name, Threshold: &v1alpha1.ThresholdCheck{Query: "q", Max: limit, Passes: 1, Failures: 1}}
}
