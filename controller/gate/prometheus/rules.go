package prometheus

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/canarycontroller/canary-controller/controller/gate"
)

// alertName is the key under which a rule's name is selected.
const alertName = "alertname"

// ruleGroups is the answer of /api/v1/rules, as far as it is of use. Durations are seconds.
// The API does not tell a group's query offset.
// https://prometheus.io/docs/prometheus/latest/querying/api/#rules
type ruleGroups struct {
	Groups []struct {
		Name     string
		Interval float64
		Rules    []alertingRule
	}
}

type alertingRule struct {
	Type, Name, Health, State, LastError string

	Duration       float64
	Labels         map[string]string
	LastEvaluation time.Time
	Alerts         []struct {
		State  string
		Labels map[string]string
	}
}

// rulesParams asks for the rules that a selector means. Servers that do not know these
// parameters answer with more rules.
func rulesParams(selector map[string]string) url.Values {
	params := url.Values{"type": {"alert"}}
	var matchers []string
	for _, name := range slices.Sorted(maps.Keys(selector)) {
		switch value := selector[name]; {
		case name == alertName:
			params.Set("rule_name[]", value)
		case value != "":
			// A selector of empty values only is refused.
			matchers = append(matchers, match(name, "=", value))
		}
	}
	if len(matchers) > 0 {
		params.Set("match[]", "{"+strings.Join(matchers, ",")+"}")
	}
	return params
}

// selectRules picks the rules that the selector means, with their alerts about the Canary.
func selectRules(all ruleGroups, selector map[string]string, namespace, canary string, now time.Time) []gate.Rule {
	var out []gate.Rule
	for _, group := range all.Groups {
		for _, r := range group.Rules {
			if r.Type != "alerting" || !selected(r, selector) {
				continue
			}
			rule := gate.Rule{
				Group: clip(group.Name), Name: clip(r.Name), Health: r.Health, State: r.State, LastError: clip(r.LastError),
				LastEvaluation: r.LastEvaluation, Now: now,
				For: fromSeconds(r.Duration), Interval: fromSeconds(group.Interval),
			}
			for _, alert := range r.Alerts {
				switch {
				case !about(alert.Labels, namespace, canary):
				case alert.State == "firing":
					rule.Firing++
				case alert.State == "pending":
					rule.Pending++
				}
			}
			out = append(out, rule)
		}
	}
	return out
}

// selected compares with the rule's own labels; one that is absent equals the empty string.
func selected(r alertingRule, selector map[string]string) bool {
	for name, want := range selector {
		got := r.Labels[name]
		if name == alertName {
			got = r.Name
		}
		if got != want {
			return false
		}
	}
	return true
}

// about reports whether an alert is about the Canary, as far as its labels say. A scrape
// that does not honour labels renames the Canary's namespace.
func about(labels map[string]string, namespace, canary string) bool {
	of, ok := labels["exported_namespace"]
	if !ok {
		of, ok = labels["namespace"]
	}
	if ok && of != namespace {
		return false
	}
	name, ok := labels["canary"]
	return !ok || name == canary
}

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
