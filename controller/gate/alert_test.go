package gate

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestAlertName(t *testing.T) {
	for _, test := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"canary_gate": "true"}, `alert{canary_gate="true"}`},
		{map[string]string{"severity": "page", "alertname": "Errors"}, `alert{alertname="Errors",severity="page"}`},
		{map[string]string{"a": `x",b="y`}, `alert{a="x\",b=\"y"}`},
		{map[string]string{"a": "two\nlines \xff"}, `alert{a="two\nlines \xff"}`},
		{nil, `alert{}`},
	} {
		if got := AlertName(v1alpha1.GateAlert{MatchLabels: test.labels}); got != test.want {
			t.Errorf("%v: %s, want %s", test.labels, got, test.want)
		}
	}
}

// Two selectors share a name only if they are the same, and a name is one printable line.
func FuzzAlertName(f *testing.F) {
	f.Add("a", "x", "b", "y", "a", `x",b="y`, "", "")
	f.Add("a", "\x00", "b", "\xff", "a", "\\x00", "b", "ÿ")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, name3, value3, name4, value4 string) {
		label := func(s string) string {
			s = strings.Map(func(r rune) rune {
				if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
					return r
				}
				return '_'
			}, s)
			return "l" + s
		}
		one := map[string]string{label(name1): value1, label(name2): value2}
		two := map[string]string{label(name3): value3, label(name4): value4}
		first, second := AlertName(v1alpha1.GateAlert{MatchLabels: one}), AlertName(v1alpha1.GateAlert{MatchLabels: two})
		if (first == second) != maps.Equal(one, two) {
			t.Errorf("%q and %q name %q and %q", first, second, one, two)
		}
		if strings.ContainsFunc(first, unicode.IsControl) || !utf8.ValidString(first) {
			t.Errorf("%q is not one line of text", first)
		}
	})
}

// The rule of the tests is evaluated each 30 s, 10 s late, and fires after a minute: quiet
// counts 130 s after the batch became available.
func quiet(age time.Duration) Rule {
	asked := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) // Prometheus's clock is years behind.
	return Rule{
		Group: "canary", Name: "ErrorRateHigh", Health: "ok", State: "inactive",
		LastEvaluation: asked.Add(-age), Now: asked, For: time.Minute, Interval: 30 * time.Second, QueryOffset: 10 * time.Second,
	}
}

func TestReadAlert(t *testing.T) {
	with := func(change func(*Rule)) Rule {
		r := quiet(5 * time.Second)
		change(&r)
		return r
	}
	firing := with(func(r *Rule) { r.State, r.Firing = "firing", 2 })
	pending := with(func(r *Rule) { r.State, r.Pending = "pending", 1 })
	broken := with(func(r *Rule) { r.Health, r.LastError = "err", "many-to-many matching" })
	others := with(func(r *Rule) { r.State, r.Name = "firing", "OfOthers" })
	tests := []struct {
		name    string
		rules   []Rule
		window  time.Duration
		verdict v1alpha1.Verdict
		message string
		value   string
	}{
		{"quiet for long enough", []Rule{quiet(5 * time.Second)}, 135 * time.Second, v1alpha1.VerdictPass, "alerting rule ErrorRateHigh is quiet", "0 firing"},
		{"quiet, a second too early", []Rule{quiet(5 * time.Second)}, 134 * time.Second, v1alpha1.VerdictNoData, "alerting rule ErrorRateHigh is quiet, but counts only when evaluated 2m10s after the batch became available", "0 firing"},
		{"evaluated long ago, but in time", []Rule{quiet(90 * time.Second)}, time.Hour, v1alpha1.VerdictPass, "alerting rule ErrorRateHigh is quiet", "0 firing"},
		{"stale", []Rule{quiet(91 * time.Second)}, time.Hour, v1alpha1.VerdictNoData, "alerting rule ErrorRateHigh was last evaluated 1m31s ago although it is due each 30s", "0 firing"},
		{"not evaluated in this batch", []Rule{quiet(20 * time.Second)}, 19 * time.Second, v1alpha1.VerdictNoData, "alerting rule ErrorRateHigh has not been evaluated since the batch became available", "0 firing"},
		{"firing", []Rule{firing}, time.Minute, v1alpha1.VerdictFail, "alert ErrorRateHigh is firing", "1 firing"},
		{"firing as of before this batch", []Rule{firing}, 4 * time.Second, v1alpha1.VerdictNoData, "alerting rule ErrorRateHigh has not been evaluated since the batch became available", "0 firing"},
		{"pending", []Rule{pending}, time.Hour, v1alpha1.VerdictNoData, "alert ErrorRateHigh is pending", "0 firing"},
		{"firing and pending", []Rule{with(func(r *Rule) { r.State, r.Firing, r.Pending = "firing", 1, 1 })}, time.Hour, v1alpha1.VerdictFail, "alert ErrorRateHigh is firing", "1 firing"},
		{"firing about others", []Rule{others}, time.Hour, v1alpha1.VerdictPass, "alerting rule OfOthers is quiet", "0 firing"},
		{"unhealthy", []Rule{broken}, time.Hour, v1alpha1.VerdictError, "alerting rule ErrorRateHigh cannot be evaluated: many-to-many matching", "0 firing"},
		{"unhealthy, with alerts of before", []Rule{with(func(r *Rule) { r.Health, r.State, r.Firing = "err", "firing", 1 })}, time.Hour, v1alpha1.VerdictError, "alerting rule ErrorRateHigh cannot be evaluated", "0 firing"},
		{"never evaluated", []Rule{with(func(r *Rule) { r.Health, r.State, r.LastEvaluation = "unknown", "unknown", time.Time{} })}, time.Hour, v1alpha1.VerdictNoData, "alerting rule ErrorRateHigh has not been evaluated yet", "0 firing"},
		{"state not known", []Rule{with(func(r *Rule) { r.State = "unknown" })}, time.Hour, v1alpha1.VerdictNoData, "alerting rule ErrorRateHigh has not been evaluated yet", "0 firing"},
		{"first evaluation failed", []Rule{with(func(r *Rule) { r.Health, r.State = "err", "unknown" })}, time.Hour, v1alpha1.VerdictError, "alerting rule ErrorRateHigh cannot be evaluated", "0 firing"},
		{"health never heard of", []Rule{with(func(r *Rule) { r.Health = "" })}, time.Hour, v1alpha1.VerdictError, "alerting rule ErrorRateHigh cannot be evaluated", "0 firing"},
		{"no rule", nil, time.Hour, v1alpha1.VerdictNoData, "Prometheus has no alerting rule with these labels", ""},
		{"two quiet", []Rule{quiet(time.Second), others}, time.Hour, v1alpha1.VerdictPass, "2 alerting rules are quiet", "0 firing"},
		{"the worst of all", []Rule{quiet(time.Second), pending, firing, broken, firing}, time.Hour, v1alpha1.VerdictFail, "alert ErrorRateHigh is firing", "2 firing"},
		{"the worst but firing", []Rule{pending, broken, quiet(time.Second)}, time.Hour, v1alpha1.VerdictError, "alerting rule ErrorRateHigh cannot be evaluated: many-to-many matching", "0 firing"},
		{"evaluated in the moment of the question, by a clock that is ahead", []Rule{quiet(-time.Second)}, 130 * time.Second, v1alpha1.VerdictPass, "alerting rule ErrorRateHigh is quiet", "0 firing"},
	}
	for _, test := range tests {
		r := readAlert(Evidence{Rules: test.rules}, Situation{WindowStart: t0}, t0.Add(test.window))
		if r.verdict != test.verdict || r.message != test.message || r.value != test.value {
			t.Errorf("%s:\n got %s %q: %s\nwant %s %q: %s", test.name, r.verdict, r.value, r.message, test.verdict, test.value, test.message)
		}
	}
	for verdict, want := range map[v1alpha1.Verdict]v1alpha1.Verdict{
		v1alpha1.VerdictNoData: v1alpha1.VerdictNoData, v1alpha1.VerdictError: v1alpha1.VerdictError, "": v1alpha1.VerdictError, v1alpha1.VerdictPass: v1alpha1.VerdictError,
	} {
		problem := none(verdict, "status 500")
		r := readAlert(Evidence{RulesProblem: &problem, Rules: []Rule{quiet(time.Second)}}, Situation{WindowStart: t0}, t0.Add(time.Hour))
		if r.verdict != want || r.message != "rules: status 500" {
			t.Errorf("a problem %q is %s: %s", verdict, r.verdict, r.message)
		}
	}
}
