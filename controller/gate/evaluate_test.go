package gate

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// wholeGate has a check of every kind and an alert. A good look at it is healthy.
func wholeGate() *v1alpha1.Gate {
	spec := proportionGate()
	spec.Checks = append(spec.Checks,
		v1alpha1.GateCheck{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: "q", Max: "0.5", Passes: 2, Failures: 2}},
		v1alpha1.GateCheck{Name: "ejected", Outlier: &v1alpha1.OutlierCheck{Max: "25%", Passes: 1, Failures: 1}})
	spec.Alerts = []v1alpha1.GateAlert{{MatchLabels: map[string]string{"canary_gate": "true"}}}
	return spec
}

const alertName = `alert{canary_gate="true"}`

func healthyLook(newTotal float64) Gathered {
	proportion := beside(0, 3*newTotal, requests(0, newTotal))
	proportion.Queries = []string{"bad", "total"}
	return Gathered{
		"errors":  {proportion},
		"p99":     {{Value: value(0.2)}},
		"ejected": {{Value: value(0)}},
		alertName: {{Rules: []Rule{quiet(time.Second)}}},
	}
}

var situation = Situation{RolloutID: "v1-a", Namespace: "prod", Canary: "hello", New: "new", Old: "old", Batch: 1, Batches: 2, WindowStart: t0, OldReplicas: 3}

func after(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func status(s *v1alpha1.GateStatus, name string) *v1alpha1.CheckStatus {
	for i := range s.Checks {
		if s.Checks[i].Name == name {
			return &s.Checks[i]
		}
	}
	return &v1alpha1.CheckStatus{}
}

func TestEvaluateFromTheStartOfABatchToPass(t *testing.T) {
	spec := wholeGate()
	first := Evaluate(spec, nil, situation, healthyLook(700), after(135).Add(400*time.Millisecond))
	if first.Verdict != v1alpha1.VerdictNoData || first.Message != "p99: 0.2 is within max 0.5, 1 of 2 times in a row" {
		t.Errorf("%s: %s", first.Verdict, first.Message)
	}
	if first.Batch != 1 || !first.WindowStart.Time.Equal(t0) || first.Evaluations != 1 || !first.EvaluatedAt.Time.Equal(after(135)) {
		t.Errorf("batch %d, window %v, evaluation %d at %v", first.Batch, first.WindowStart, first.Evaluations, first.EvaluatedAt)
	}
	second := Evaluate(spec, first, situation, healthyLook(900), after(165))
	if second.Verdict != v1alpha1.VerdictPass ||
		second.Message != "errors: 0% of 900 requests are bad, old 0% of 2,700: below max 2% and less than 1% worse than old (and 3 more checks: Pass)" {
		t.Errorf("%s: %s", second.Verdict, second.Message)
	}
	want := v1alpha1.CheckStatus{
		Name: "errors", Kind: v1alpha1.CheckProportion, Verdict: v1alpha1.VerdictPass, Value: "0%", Limit: "2%",
		Message: "0% of 900 requests are bad, old 0% of 2,700: below max 2% and less than 1% worse than old",
		New:     &v1alpha1.RequestCounts{Total: 900}, Old: &v1alpha1.RequestCounts{Total: 2700}, Baseline: &v1alpha1.RequestCounts{Total: 2700},
		Queries: []string{"bad", "total"}, Peak: 900, GrewAt: &metav1.Time{Time: after(165)}, History: []string{"0%", "0%"},
		SpecHash: specHash(defaulted(spec), spec.Checks[0]),
	}
	if got := second.Checks[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	var order []string
	for _, c := range second.Checks {
		order = append(order, fmt.Sprintf("%s %s %s %d", c.Name, c.Kind, c.Verdict, c.Passes))
	}
	if want := []string{"errors proportion Pass 0", "p99 threshold Pass 2", "ejected outlier Pass 2", alertName + " alert Pass 0"}; !slices.Equal(order, want) {
		t.Errorf("checks %q, want %q", order, want)
	}
}

// What a new batch, or the same batch that became available again, keeps and what not.
func TestEvaluateBeginsAnew(t *testing.T) {
	spec := wholeGate()
	before := Evaluate(spec, nil, situation, healthyLook(700), after(135))
	before = Evaluate(spec, before, situation, healthyLook(900), after(165))
	before.Decisions = []v1alpha1.GateDecision{{Batch: 1, Action: string(Promote)}}
	before.PausedAt = &metav1.Time{Time: after(140)}

	last := situation
	last.Batch, last.OldReplicas, last.WindowStart = 2, 0, after(200)
	next := Evaluate(spec, before, last, healthyLook(50), after(240))
	if next.Batch != 2 || next.Evaluations != 1 || next.PausedAt != nil || len(next.Decisions) != 1 {
		t.Errorf("batch %d, evaluation %d, paused %v, %d decisions", next.Batch, next.Evaluations, next.PausedAt, len(next.Decisions))
	}
	errors := status(next, "errors")
	if *errors.Old != of(0, 2700) || *errors.Baseline != of(0, 2700) || *errors.New != of(0, 50) || len(errors.History) != 1 {
		t.Errorf("the baseline does not stand in: %+v", errors)
	}
	if p99 := status(next, "p99"); p99.Passes != 1 || p99.Verdict != v1alpha1.VerdictNoData {
		t.Errorf("the passes of another batch count: %+v", p99)
	}

	again := situation
	again.WindowStart = after(180)
	if next := Evaluate(spec, before, again, healthyLook(50), after(240)); next.Evaluations != 1 || status(next, "p99").Passes != 1 || *status(next, "errors").Baseline != of(0, 150) {
		t.Errorf("another window of the same batch goes on with %+v", next)
	}
	// The resolution of times in status is a second.
	again.WindowStart = t0.Add(300 * time.Millisecond)
	if next := Evaluate(spec, before, again, healthyLook(950), after(195)); next.Evaluations != 3 {
		t.Errorf("a window of the same second starts anew")
	}
}

func TestEvaluateWithoutAnAnswer(t *testing.T) {
	got := Evaluate(wholeGate(), nil, situation, Gathered{}, after(60))
	if got.Verdict != v1alpha1.VerdictError || got.Message != "errors: no Prometheus was asked (and 3 more checks: Error)" {
		t.Errorf("%s: %s", got.Verdict, got.Message)
	}
	if got := Evaluate(&v1alpha1.Gate{}, nil, situation, Gathered{}, after(60)); got.Verdict != v1alpha1.VerdictNoData || got.Message != "the gate has no checks" {
		t.Errorf("an empty gate is %s: %s", got.Verdict, got.Message)
	}
	odd := &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "odd"}}}
	if got := Evaluate(odd, nil, situation, Gathered{}, after(60)); got.Verdict != v1alpha1.VerdictError || got.Message != "odd: the check has no kind" {
		t.Errorf("a check without a kind is %s: %s", got.Verdict, got.Message)
	}
}

// Of several Prometheus the worst answer counts, and of two that say the same the one that
// has seen less.
func TestEvaluateTakesTheWorstSource(t *testing.T) {
	good, fewer, bad := requests(0, 5000), requests(0, 4000), requests(500, 5000)
	quietly := Evidence{NewBad: none(v1alpha1.VerdictNoData, "no series"), NewTotal: none(v1alpha1.VerdictNoData, "no series")}
	gone := Evidence{NewBad: none(v1alpha1.VerdictError, "refused"), NewTotal: none(v1alpha1.VerdictError, "refused")}
	s := situation
	s.OldReplicas = 0
	for _, test := range []struct {
		name    string
		sources []Evidence
		verdict v1alpha1.Verdict
		total   int64
	}{
		{"the one that has seen less", []Evidence{good, fewer}, v1alpha1.VerdictPass, 4000},
		{"in whatever order", []Evidence{fewer, good}, v1alpha1.VerdictPass, 4000},
		{"no data", []Evidence{good, quietly}, v1alpha1.VerdictNoData, 0},
		{"an error", []Evidence{quietly, gone, good}, v1alpha1.VerdictError, 0},
		{"harm", []Evidence{gone, bad, good, quietly}, v1alpha1.VerdictFail, 5000},
	} {
		got := Evaluate(proportionGate(), nil, s, Gathered{"errors": test.sources}, after(60))
		var total int64
		if counts := status(got, "errors").New; counts != nil {
			total = counts.Total
		}
		if got.Verdict != test.verdict || total != test.total {
			t.Errorf("%s: %s of %d, want %s of %d", test.name, got.Verdict, total, test.verdict, test.total)
		}
	}
}

func TestEvaluateHoldsHealthWithoutNewRequests(t *testing.T) {
	spec := proportionGate()
	got := Evaluate(spec, nil, situation, healthyLook(5000), after(60))
	for at := 90; at <= 150; at += 30 {
		if got = Evaluate(spec, got, situation, healthyLook(5000), after(at)); got.Verdict != v1alpha1.VerdictPass {
			t.Errorf("after %d s: %s", at, got.Message)
		}
	}
	got = Evaluate(spec, got, situation, healthyLook(5000), after(180))
	want := "errors: 0% of 5,000 requests are bad, old 0% of 15,000: below max 2% and less than 1% worse than old, but no new requests since 08:01:00 UTC"
	if got.Verdict != v1alpha1.VerdictNoData || got.Message != want {
		t.Errorf("%s: %s", got.Verdict, got.Message)
	}
	if got = Evaluate(spec, got, situation, healthyLook(5001), after(210)); got.Verdict != v1alpha1.VerdictPass {
		t.Errorf("with new requests: %s", got.Message)
	}
}

func TestEvaluateKeepsTheLatest(t *testing.T) {
	spec := wholeGate()
	look := healthyLook(1000)
	look["p99"] = []Evidence{{Value: none(v1alpha1.VerdictNoData, "no series")}}
	look["errors"][0].TraceIDs = []string{"a", "b", "c", "d"}
	got := Evaluate(spec, nil, situation, look, after(0))
	for i := 1; i <= 25; i++ {
		look["p99"] = []Evidence{{Value: value(float64(i))}}
		got = Evaluate(spec, got, situation, look, after(30*i))
	}
	p99 := status(got, "p99")
	if len(p99.History) != 20 || p99.History[0] != "6" || p99.History[19] != "25" {
		t.Errorf("history %q", p99.History)
	}
	if traces := status(got, "errors").TraceIDs; !slices.Equal(traces, []string{"a", "b", "c"}) {
		t.Errorf("traces %q", traces)
	}
	if got.Evaluations != 26 || p99.Failures != 25 {
		t.Errorf("%d evaluations, %d failures", got.Evaluations, p99.Failures)
	}
	first := Evaluate(spec, nil, situation, Gathered{}, after(0))
	if history := status(first, "p99").History; len(history) != 1 || history[0] != "" {
		t.Errorf("an evaluation without a value is %q in the history", history)
	}
}

// Edits of the spec while a batch is judged: what is new starts anew, what is gone goes,
// a check of another kind is another check, and two selectors of the same rules are one.
func TestEvaluateAfterAnEditOfTheSpec(t *testing.T) {
	spec := wholeGate()
	before := Evaluate(spec, nil, situation, healthyLook(700), after(135))
	spec.Checks[1] = v1alpha1.GateCheck{Name: "p99", Outlier: &v1alpha1.OutlierCheck{Max: "50%", Passes: 3, Failures: 3}}
	spec.Checks = slices.Delete(spec.Checks, 2, 3)
	spec.Alerts = append(spec.Alerts, spec.Alerts[0])
	got := Evaluate(spec, before, situation, healthyLook(900), after(165))
	if len(got.Checks) != 3 {
		t.Fatalf("%d checks: %+v", len(got.Checks), got.Checks)
	}
	if p99 := status(got, "p99"); p99.Kind != v1alpha1.CheckOutlier || p99.Failures != 0 || p99.Passes != 1 || len(p99.History) != 1 {
		t.Errorf("%+v", p99)
	}
}

// Without a controller for longer than the hold deadline, a healthy version is not rolled
// back at the first look: it takes three to pass, and time to fail to.
func TestAbsenceIsNotHeld(t *testing.T) {
	spec := &v1alpha1.Gate{OnHold: v1alpha1.GateRollback, Checks: []v1alpha1.GateCheck{{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: "q", Max: "1"}}}}
	look := Gathered{"p99": {{Value: value(0.2)}}}
	for name, tc := range map[string]struct {
		first, then int
		want        Outcome
	}{
		"absent":       {45, 4000, Outcome{v1alpha1.VerdictNoData, Hold, "p99: 0.2 is within max 1, 2 of 3 times in a row", 1755 * time.Second}},
		"never looked": {4000, 4030, Outcome{v1alpha1.VerdictNoData, Hold, "p99: 0.2 is within max 1, 2 of 3 times in a row", 1770 * time.Second}},
		"slow":         {1600, 1900, Outcome{v1alpha1.VerdictNoData, Hold, "p99: 0.2 is within max 1, 2 of 3 times in a row", 1500 * time.Second}},
		"looking":      {45, 345, Outcome{v1alpha1.VerdictNoData, Hold, "p99: 0.2 is within max 1, 2 of 3 times in a row", 1455 * time.Second}},
	} {
		st := Evaluate(spec, nil, situation, look, after(tc.first))
		st = Evaluate(spec, st, situation, look, after(tc.then))
		if o, _ := Decide(spec, st, situation, false, after(tc.then)); o != tc.want {
			t.Errorf("%s: %+v, want %+v", name, o, tc.want)
		}
	}
}

func drawGathered(t *rapid.T) Gathered {
	sample := func(name string) Sample {
		if v := rapid.SampledFrom([]v1alpha1.Verdict{"", "", "", v1alpha1.VerdictNoData, v1alpha1.VerdictError}).Draw(t, name); v != "" {
			return none(v, "a reason")
		}
		return value(rapid.SampledFrom([]float64{0, 0.1, 1, 3, 700, 5000, 1e6}).Draw(t, name+" value"))
	}
	g := Gathered{}
	for _, name := range []string{"errors", "p99", "ejected", alertName} {
		for range rapid.IntRange(0, 2).Draw(t, "sources of "+name) {
			oldBad, oldTotal := sample("old bad"), sample("old total")
			e := Evidence{NewBad: sample("new bad"), NewTotal: sample("new total"), OldBad: &oldBad, OldTotal: &oldTotal, Value: sample("value"), Queries: []string{"q"}, TraceIDs: []string{"t"}}
			for range rapid.IntRange(0, 2).Draw(t, "rules") {
				rule := quiet(time.Duration(rapid.IntRange(0, 100).Draw(t, "age")) * time.Second)
				rule.Firing = rapid.IntRange(0, 1).Draw(t, "firing")
				rule.Health = rapid.SampledFrom([]string{"ok", "ok", "err", "unknown"}).Draw(t, "health")
				e.Rules = append(e.Rules, rule)
			}
			g[name] = append(g[name], e)
		}
	}
	return g
}

// Evaluate reads its arguments only, gives the same twice, shares nothing, changes nothing
// when repeated within the second, and its verdict is the worst of its checks.
func TestEvaluateIsPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec, s := wholeGate(), situation
		var before *v1alpha1.GateStatus
		for i := range rapid.IntRange(1, 5).Draw(t, "looks") {
			now := after(60 + 30*i)
			if rapid.IntRange(0, 4).Draw(t, "next batch") == 0 {
				s.Batch, s.OldReplicas, s.WindowStart = s.Batch+1, int32(rapid.IntRange(0, 1).Draw(t, "old")), after(30*i)
			}
			g := drawGathered(t)
			kept := before.DeepCopy()
			got := Evaluate(spec, before, s, g, now)
			if !reflect.DeepEqual(before, kept) || !reflect.DeepEqual(spec, wholeGate()) {
				t.Fatal("an argument was changed")
			}
			if !reflect.DeepEqual(got, Evaluate(spec, before, s, g, now)) {
				t.Fatal("the same arguments give another result")
			}
			if !reflect.DeepEqual(got, Evaluate(spec, got, s, g, now.Add(900*time.Millisecond))) {
				t.Fatal("a repetition within the second changes the status")
			}
			worst := v1alpha1.VerdictPass
			for _, c := range got.Checks {
				if slices.Index(v1alpha1.Verdicts(), c.Verdict) > slices.Index(v1alpha1.Verdicts(), worst) {
					worst = c.Verdict
				}
				if c.Kind == v1alpha1.CheckProportion && c.Verdict == v1alpha1.VerdictPass && (c.New == nil || c.New.Total == 0) {
					t.Fatalf("passes without requests: %+v", c)
				}
			}
			if got.Verdict != worst || got.Message == "" {
				t.Fatalf("%s (%s), the worst check is %s", got.Verdict, got.Message, worst)
			}
			copied := got.DeepCopy()
			other := Evaluate(spec, got, s, g, now.Add(time.Minute))
			scribble(other)
			if !reflect.DeepEqual(got, copied) {
				t.Fatal("the result shares memory with the status before")
			}
			if _, other := Decide(spec, got, s, false, now); other != nil {
				scribble(other)
			}
			if !reflect.DeepEqual(got, copied) {
				t.Fatal("Decide shares memory with its status")
			}
			before = got
		}
	})
}

// scribble overwrites all that a status points to.
func scribble(s *v1alpha1.GateStatus) {
	if s.EvaluatedAt != nil {
		*s.EvaluatedAt = metav1.Time{}
	}
	if s.PausedAt != nil {
		*s.PausedAt = metav1.Time{}
	}
	for i := range s.Decisions {
		s.Decisions[i] = v1alpha1.GateDecision{}
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		for _, counts := range []*v1alpha1.RequestCounts{c.New, c.Old, c.Baseline} {
			if counts != nil {
				*counts = of(-1, -1)
			}
		}
		if c.GrewAt != nil {
			*c.GrewAt = metav1.Time{}
		}
		for _, list := range [][]string{c.History, c.Queries, c.TraceIDs} {
			for j := range list {
				list[j] = "scribbled"
			}
		}
		*c = v1alpha1.CheckStatus{}
	}
}
