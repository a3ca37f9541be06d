package gate

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

var t0 = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func value(v float64) Sample { return Sample{Value: v} }

func none(verdict v1alpha1.Verdict, problem string) Sample {
	return Sample{Verdict: verdict, Problem: problem}
}

func requests(newBad, newTotal float64) Evidence {
	return Evidence{NewBad: value(newBad), NewTotal: value(newTotal)}
}

func beside(oldBad, oldTotal float64, e Evidence) Evidence {
	e.OldBad, e.OldTotal = &Sample{Value: oldBad}, &Sample{Value: oldTotal}
	return e
}

// The gate of the tests has max 2%, harm 1% and both levels 1%; one batch and one check have
// all of falseRollback, so that the numbers of TestJudge apply.
func proportionGate() *v1alpha1.Gate {
	return &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "errors", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "2%"}}}}
}

func TestReadProportion(t *testing.T) {
	baseline := of(15, 15_000)
	tests := []struct {
		name        string
		e           Evidence
		oldReplicas int32
		baseline    *v1alpha1.RequestCounts
		verdict     v1alpha1.Verdict
		value       string
		message     string
	}{
		{"passes without an old version", requests(0, 260), 0, nil, v1alpha1.VerdictPass, "0%",
			"0% of 260 requests are bad: below max 2%"},
		{"max is open", requests(0, 259), 0, nil, v1alpha1.VerdictNoData, "0%",
			"0% of 259 requests are bad; more evidence is needed that this is below max 2%"},
		{"passes beside the old version", beside(0, 1974, requests(0, 658)), 3, nil, v1alpha1.VerdictPass, "0%",
			"0% of 658 requests are bad, old 0% of 1,974: below max 2% and less than 1% worse than old"},
		{"harm is open", beside(0, 1971, requests(0, 657)), 3, nil, v1alpha1.VerdictNoData, "0%",
			"0% of 657 requests are bad, old 0% of 1,971; more evidence is needed that this is less than 1% worse than old"},
		{"both are open", beside(1, 300, requests(1, 100)), 3, nil, v1alpha1.VerdictNoData, "1%",
			"1% of 100 requests are bad, old 0.33% of 300; more evidence is needed that this is below max 2% and less than 1% worse than old"},
		{"fractions are rounded", beside(0.4, 1973.5, requests(0.49, 657.5)), 3, nil, v1alpha1.VerdictPass, "0%",
			"0% of 658 requests are bad, old 0% of 1,974: below max 2% and less than 1% worse than old"},
		{"over max", requests(4, 4), 0, nil, v1alpha1.VerdictFail, "100%",
			"100% of 4 requests are bad: over max 2%"},
		{"worse than the old version", beside(6_000, 3e6, requests(14_000, 1e6)), 3, nil, v1alpha1.VerdictFail, "1.4%",
			"1.4% of 1,000,000 requests are bad, old 0.20% of 3,000,000: worse than old"},
		{"over max and worse", beside(15, 15_000, requests(300, 5_000)), 3, nil, v1alpha1.VerdictFail, "6%",
			"6% of 5,000 requests are bad, old 0.10% of 15,000: over max 2% and worse than old"},
		{"the old version is over max too", beside(900, 15_000, requests(300, 5_000)), 3, nil, v1alpha1.VerdictNoData, "6%",
			"6% of 5,000 requests are bad, old 6% of 15,000: over max 2%, but so is the old version, which a rollback would not mend"},
		{"the baseline stands in", requests(5, 5_000), 0, &baseline, v1alpha1.VerdictPass, "0.10%",
			"0.10% of 5,000 requests are bad, old 0.10% of 15,000 in an earlier batch: below max 2% and less than 1% worse than old"},
		{"the last requests of the old version are no measure", beside(3, 4, requests(5, 5_000)), 0, &baseline, v1alpha1.VerdictPass, "0.10%",
			"0.10% of 5,000 requests are bad, old 0.10% of 15,000 in an earlier batch: below max 2% and less than 1% worse than old"},
		{"nor without a baseline", beside(3, 4, requests(0, 260)), 0, nil, v1alpha1.VerdictPass, "0%",
			"0% of 260 requests are bad: below max 2%"},
		{"more than harm worse than the baseline", requests(800, 50_000), 0, &baseline, v1alpha1.VerdictFail, "1.6%",
			"1.6% of 50,000 requests are bad, old 0.10% of 15,000 in an earlier batch: more than 1% worse than old"},
		{"a baseline does not stand in for a version that should have requests", beside(0, 0, requests(0, 5_000)), 1, &baseline, v1alpha1.VerdictNoData, "0%",
			"the old version has no requests to compare with since the batch became available"},
		{"but what is over max is, whatever the old version does", beside(0, 0, requests(100, 1_000)), 1, nil, v1alpha1.VerdictFail, "10%",
			"10% of 1,000 requests are bad: over max 2%"},
		{"no requests", beside(0, 3e6, requests(0, 0)), 3, nil, v1alpha1.VerdictNoData, "",
			"no requests since the batch became available"},
		{"no requests, of the old version neither", beside(0, 0, requests(0, 0.3)), 3, nil, v1alpha1.VerdictNoData, "",
			"no requests since the batch became available"},
		{"no data", Evidence{NewBad: value(0), NewTotal: none(v1alpha1.VerdictNoData, "no series")}, 0, nil, v1alpha1.VerdictNoData, "",
			"requests of the new version: no series"},
		{"no bad data", Evidence{NewBad: none(v1alpha1.VerdictNoData, "NaN"), NewTotal: value(10)}, 0, nil, v1alpha1.VerdictNoData, "",
			"bad requests of the new version: NaN"},
		{"an error", Evidence{NewBad: value(0), NewTotal: none(v1alpha1.VerdictError, "connection refused")}, 0, nil, v1alpha1.VerdictError, "",
			"requests of the new version: connection refused"},
		{"an error about the old version", Evidence{NewBad: value(0), NewTotal: value(0), OldBad: &Sample{}, OldTotal: &Sample{Verdict: v1alpha1.VerdictError, Problem: "2 series"}}, 3, nil, v1alpha1.VerdictError, "",
			"requests of the old version: 2 series"},
		{"more bad than all", requests(11, 10), 0, nil, v1alpha1.VerdictError, "",
			"the new version has more bad requests (11) than requests (10)"},
		{"more bad than all of the old version", beside(2_500, 2_000, requests(1, 1_000)), 3, nil, v1alpha1.VerdictError, "0.10%",
			"the old version has more bad requests (2,500) than requests (2,000)"},
		{"negative", requests(0, -3), 0, nil, v1alpha1.VerdictError, "",
			"requests of the new version: -3 is negative"},
		{"not a number", requests(math.NaN(), 3), 0, nil, v1alpha1.VerdictError, "",
			"bad requests of the new version: NaN is not a finite number"},
		{"infinite", requests(0, math.Inf(1)), 0, nil, v1alpha1.VerdictError, "",
			"requests of the new version: +Inf is not a finite number"},
		{"beyond what a float64 counts", requests(0, 1e16), 0, nil, v1alpha1.VerdictError, "",
			"requests of the new version: 1e+16 is too many to count"},
		{"a verdict that no sample has", Evidence{NewTotal: none(v1alpha1.VerdictPass, "")}, 0, nil, v1alpha1.VerdictError, "",
			"requests of the new version: a sample cannot have the verdict Pass"},
	}
	spec := defaulted(proportionGate())
	for _, test := range tests {
		s := Situation{Batch: 1, Batches: 1, OldReplicas: test.oldReplicas}
		r := readProportion(spec, spec.Checks[0].Proportion, test.e, s, test.baseline)
		if r.verdict != test.verdict || r.message != test.message || r.value != test.value {
			t.Errorf("%s:\n got %s %q: %s\nwant %s %q: %s", test.name, r.verdict, r.value, r.message, test.verdict, test.value, test.message)
		}
		if r.limit != "2%" {
			t.Errorf("%s: limit %q", test.name, r.limit)
		}
	}
}

// The probability of a false rollback is shared out among batches and proportion checks.
func TestProportionOf(t *testing.T) {
	spec := defaulted(proportionGate())
	spec.Checks = append(spec.Checks, v1alpha1.GateCheck{Name: "slow", Proportion: &v1alpha1.ProportionCheck{Max: "1%", Harm: "0.25%"}},
		v1alpha1.GateCheck{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Max: "1"}})
	test, err := proportionOf(spec, spec.Checks[1].Proportion, 5)
	if err != nil {
		t.Fatal(err)
	}
	// 1% over 5 batches and 2 checks is 0.1%, of which each of the two rules has half.
	near(t, "blame", math.Exp(test.blame), 2000)
	near(t, "promote", math.Exp(test.promote), 100)
	near(t, "max", test.max, 0.01)
	near(t, "harm", test.harm, 0.0025)
	test, err = proportionOf(spec, spec.Checks[0].Proportion, 0)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "default harm", test.harm, 0.01)
	near(t, "blame without batches", math.Exp(test.blame), 400)

	for _, bad := range []struct {
		change func(*v1alpha1.Gate)
		want   string
	}{
		{func(g *v1alpha1.Gate) { g.Checks[0].Proportion.Max = "0%" }, `max is not a percentage above 0% and below 100%: "0%"`},
		{func(g *v1alpha1.Gate) { g.Checks[0].Proportion.Harm = "x" }, `harm is not a percentage above 0% and below 100%: "x"`},
		{func(g *v1alpha1.Gate) { g.FalsePromotion = "1" }, `falsePromotion is not a percentage above 0% and below 100%: "1"`},
		{func(g *v1alpha1.Gate) { g.FalseRollback = "-1%" }, `falseRollback is not a percentage above 0% and below 100%: "-1%"`},
	} {
		broken := spec.DeepCopy()
		bad.change(broken)
		if _, err := proportionOf(broken, broken.Checks[0].Proportion, 1); err == nil || err.Error() != bad.want {
			t.Errorf("error %v, want %s", err, bad.want)
		}
		r := readProportion(broken, broken.Checks[0].Proportion, requests(0, 260), Situation{}, nil)
		if r.verdict != v1alpha1.VerdictError || r.message != bad.want {
			t.Errorf("%s: %s, want Error: %s", r.verdict, r.message, bad.want)
		}
	}
}

func TestKeepFresh(t *testing.T) {
	const interval = 30 * time.Second
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: t0.Add(time.Duration(seconds) * time.Second)}
	}
	now := t0.Add(10 * time.Minute)
	tests := []struct {
		name    string
		before  *v1alpha1.CheckStatus
		total   int64
		verdict v1alpha1.Verdict
		want    v1alpha1.Verdict
		grew    time.Time
	}{
		{"first requests", nil, 5, v1alpha1.VerdictPass, v1alpha1.VerdictPass, now},
		{"more requests", &v1alpha1.CheckStatus{Peak: 4, GrewAt: at(0)}, 5, v1alpha1.VerdictPass, v1alpha1.VerdictPass, now},
		{"none for three intervals", &v1alpha1.CheckStatus{Peak: 5, GrewAt: at(510)}, 5, v1alpha1.VerdictPass, v1alpha1.VerdictPass, t0.Add(510 * time.Second)},
		{"none for longer", &v1alpha1.CheckStatus{Peak: 5, GrewAt: at(509)}, 5, v1alpha1.VerdictPass, v1alpha1.VerdictNoData, t0.Add(509 * time.Second)},
		{"fewer is not more", &v1alpha1.CheckStatus{Peak: 6, GrewAt: at(0)}, 5, v1alpha1.VerdictPass, v1alpha1.VerdictNoData, t0},
		{"harm needs no new requests", &v1alpha1.CheckStatus{Peak: 5, GrewAt: at(0)}, 5, v1alpha1.VerdictFail, v1alpha1.VerdictFail, t0},
		{"grown by a clock ahead", &v1alpha1.CheckStatus{Peak: 5, GrewAt: at(660)}, 5, v1alpha1.VerdictPass, v1alpha1.VerdictPass, now},
		{"never any", &v1alpha1.CheckStatus{}, 0, v1alpha1.VerdictPass, v1alpha1.VerdictNoData, time.Time{}},
	}
	for _, test := range tests {
		r := reading{verdict: test.verdict, message: "fine", newer: &v1alpha1.RequestCounts{Total: test.total}}
		_, grew := keepFresh(&r, test.before, true, interval, now)
		var got time.Time
		if grew != nil {
			got = *grew
		}
		if r.verdict != test.want || !got.Equal(test.grew) {
			t.Errorf("%s: %s, grew at %v; want %s, %v", test.name, r.verdict, got, test.want, test.grew)
		}
		if test.want == v1alpha1.VerdictNoData && !test.grew.IsZero() {
			if want := "fine, but no new requests since " + test.grew.Format(time.TimeOnly) + " UTC"; r.message != want {
				t.Errorf("%s: %q, want %q", test.name, r.message, want)
			}
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for share, want := range map[float64]string{0: "0%", 0.0012: "0.12%", 0.001: "0.10%", 0.00001234: "0.0012%", 0.05: "5%", 0.0314: "3.1%", 0.12345: "12.3%", 1: "100%", 1e-12: "0.000000000%"} {
		if got := percent(share); got != want {
			t.Errorf("percent(%v) is %s, want %s", share, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0", 0.3: "0.3", 12: "12", 1234.5: "1234.5", 0.00012345: "0.0001234", -3: "-3", 1e15: "1e+15", 1e-7: "1e-07", 250000: "250000"} {
		if got := decimal(f); got != want {
			t.Errorf("decimal(%v) is %s, want %s", f, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 24300: "24,300", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) is %s, want %s", n, got, want)
		}
	}
}

// TestStoppedTrafficStaysStopped: neither an evaluation that saw nothing nor a count that
// wobbles makes old requests new ones.
func TestStoppedTrafficStaysStopped(t *testing.T) {
	spec := v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "errors", Proportion: &v1alpha1.ProportionCheck{Bad: "b", Total: "t", Max: "10%"}}}}
	alone := Situation{Batch: 1, Batches: 1, WindowStart: t0}
	down := Evidence{NewBad: Sample{Verdict: v1alpha1.VerdictError, Problem: "down"}, NewTotal: Sample{Verdict: v1alpha1.VerdictError, Problem: "down"}}
	for name, looks := range map[string][]Evidence{
		"after an error": {requests(0, 1000), requests(0, 1000), requests(0, 1000), requests(0, 1000), requests(0, 1000), down, requests(0, 1000)},
		"wobbling":       {requests(0, 1000), requests(0, 990), requests(0, 1000), requests(0, 990), requests(0, 1000), requests(0, 990), requests(0, 1000)},
	} {
		var s *v1alpha1.GateStatus
		for n, look := range looks {
			s = Evaluate(&spec, s, alone, Gathered{"errors": {look}}, after(30*(n+1)))
		}
		if s.Verdict != v1alpha1.VerdictNoData || s.Checks[0].Peak != 1000 {
			t.Errorf("%s: %s: %s (peak %d)", name, s.Verdict, s.Message, s.Checks[0].Peak)
		}
	}
}

// TestLastBatchNeedsABaseline: a check that is compared with the old version, and knows
// nothing of it when it is gone, has no evidence.
func TestLastBatchNeedsABaseline(t *testing.T) {
	spec := v1alpha1.Gate{FalseRollback: "1%", FalsePromotion: "1%"}
	check := &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "10%"}
	e := requests(0, 10000)
	e.OldBad, e.OldTotal = &Sample{}, &Sample{}
	baseline := v1alpha1.RequestCounts{Bad: 0, Total: 10000}
	for name, tc := range map[string]struct {
		batch    int32
		baseline *v1alpha1.RequestCounts
		want     v1alpha1.Verdict
	}{
		"none in a later batch": {2, nil, v1alpha1.VerdictNoData},
		"one in a later batch":  {2, &baseline, v1alpha1.VerdictPass},
		"a single batch":        {1, nil, v1alpha1.VerdictPass},
	} {
		if r := readProportion(&spec, check, e, Situation{Batch: tc.batch, Batches: tc.batch}, tc.baseline); r.verdict != tc.want {
			t.Errorf("%s: %s: %s, want %s", name, r.verdict, r.message, tc.want)
		}
	}
}
