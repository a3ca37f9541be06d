package gate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Values of Rule.Health and Rule.State, as Prometheus's HTTP API has them.
const (
	healthy = "ok"
	unknown = "unknown"
)

// staleAfter is how many intervals may pass without an evaluation of a rule: one is due, one
// may be missed by a group that takes longer than its interval, one is for the question.
const staleAfter = 3

// AlertName names an alert selector in status and in [Gathered], such as
// alert{canary_gate="true"}. Selectors with the same labels have the same name, others have
// others.
func AlertName(a v1alpha1.GateAlert) string {
	pairs := make([]string, 0, len(a.MatchLabels))
	for _, name := range slices.Sorted(maps.Keys(a.MatchLabels)) {
		pairs = append(pairs, name+"="+strconv.Quote(a.MatchLabels[name]))
	}
	return "alert{" + strings.Join(pairs, ",") + "}"
}

// readAlert judges the rules that one Prometheus has for a selector. No alert is no
// evidence by itself: a rule counts as quiet only when it is loaded, healthy and has been
// evaluated late enough to have seen the whole of its for in this batch.
func readAlert(e Evidence, s Situation, now time.Time) reading {
	if e.RulesProblem != nil {
		// A problem is never a number, whatever it says.
		if e.RulesProblem.Verdict == v1alpha1.VerdictNoData {
			return noData("rules: %s", e.RulesProblem.Problem)
		}
		return problem("rules: %s", e.RulesProblem.Problem)
	}
	if len(e.Rules) == 0 {
		return noData("Prometheus has no alerting rule with these labels")
	}
	window := s.Window(now)
	var worst reading
	firing := 0
	for i, rule := range e.Rules {
		r := readRule(rule, window)
		if r.verdict == v1alpha1.VerdictFail {
			firing++
		}
		if i == 0 || rank(r.verdict) > rank(worst.verdict) {
			worst = r
		}
	}
	worst.value, worst.limit = fmt.Sprintf("%d firing", firing), "0 firing"
	if worst.verdict == v1alpha1.VerdictPass && len(e.Rules) > 1 {
		worst.message = fmt.Sprintf("%d alerting rules are quiet", len(e.Rules))
	}
	return worst
}

// readRule judges one rule. Its times are by the clock of Prometheus and the window is by
// the controller's, so only lengths of time are compared.
func readRule(rule Rule, window time.Duration) reading {
	age := max(0, rule.Now.Sub(rule.LastEvaluation))
	delay := rule.For + 2*rule.Interval + rule.QueryOffset
	round := func(d time.Duration) time.Duration { return d.Round(time.Second) }
	switch {
	case rule.Health == unknown || rule.Health == healthy && rule.State == unknown || rule.LastEvaluation.IsZero():
		return noData("alerting rule %s has not been evaluated yet", rule.Name)
	// An evaluation that failed leaves the alerts and the state of the one before.
	case rule.Health != healthy:
		message := fmt.Sprintf("alerting rule %s cannot be evaluated", rule.Name)
		if rule.LastError != "" {
			message += ": " + rule.LastError
		}
		return reading{verdict: v1alpha1.VerdictError, message: message}
	case age > staleAfter*rule.Interval:
		return noData("alerting rule %s was last evaluated %s ago although it is due each %s", rule.Name, round(age), rule.Interval)
	case age > window:
		return noData("alerting rule %s has not been evaluated since the batch became available", rule.Name)
	case rule.Firing > 0:
		return reading{verdict: v1alpha1.VerdictFail, message: fmt.Sprintf("alert %s is firing", rule.Name)}
	case rule.Pending > 0:
		return noData("alert %s is pending", rule.Name)
	case window-age < delay:
		return noData("alerting rule %s is quiet, but counts only when evaluated %s after the batch became available", rule.Name, round(delay))
	}
	return reading{verdict: v1alpha1.VerdictPass, message: fmt.Sprintf("alerting rule %s is quiet", rule.Name)}
}
