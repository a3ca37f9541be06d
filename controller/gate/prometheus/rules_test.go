package prometheus

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

const rulesData = `{"groups":[
 {"name":"gate","file":"a.yml","interval":15,"limit":0,"rules":[
  {"state":"firing","name":"ErrorRate","query":"x > 1","duration":30,"keepFiringFor":0,"labels":{"canary_gate":"true","severity":"critical"},"annotations":{},
   "alerts":[
    {"labels":{"alertname":"ErrorRate","namespace":"shop","canary":"web"},"annotations":{},"state":"firing","activeAt":"2026-11-30T12:00:00Z","value":"2"},
    {"labels":{"alertname":"ErrorRate","namespace":"shop"},"state":"pending","value":"2"},
    {"labels":{"alertname":"ErrorRate","canary":"web"},"state":"firing","value":"2"},
    {"labels":{"alertname":"ErrorRate"},"state":"firing","value":"2"},
    {"labels":{"alertname":"ErrorRate","namespace":"other","canary":"web"},"state":"firing","value":"2"},
    {"labels":{"alertname":"ErrorRate","namespace":"shop","canary":"db"},"state":"firing","value":"2"},
    {"labels":{"alertname":"ErrorRate","namespace":"canary-system","exported_namespace":"shop","canary":"web"},"state":"pending","value":"2"},
    {"labels":{"alertname":"ErrorRate","namespace":"shop","exported_namespace":"other","canary":"web"},"state":"firing","value":"2"},
    {"labels":{"alertname":"ErrorRate","namespace":"shop","canary":"web"},"state":"inactive","value":"2"}],
   "health":"ok","evaluationTime":0.001,"lastEvaluation":"2026-11-30T12:01:20.5Z","type":"alerting"},
  {"name":"x","query":"1","labels":{"canary_gate":"true"},"health":"ok","lastEvaluation":"2026-11-30T12:01:20.5Z","type":"recording"},
  {"state":"unknown","name":"Latency","query":"y","duration":0,"labels":{"canary_gate":"true"},"alerts":[],"health":"unknown","lastEvaluation":"0001-01-01T00:00:00Z","type":"alerting"}]},
 {"name":"other","interval":0.5,"rules":[
  {"state":"inactive","name":"Disk","query":"z","duration":60,"labels":{"severity":"critical"},"alerts":[],"health":"err","lastError":"found duplicate series\nfor the match group","lastEvaluation":"2026-11-30T12:01:29Z","type":"alerting"}]}]}`

func TestSelectRules(t *testing.T) {
	var all ruleGroups
	if err := json.Unmarshal([]byte(rulesData), &all); err != nil {
		t.Fatal(err)
	}
	now := start0.Add(91 * time.Second)
	errorRate := gate.Rule{
		Group: "gate", Name: "ErrorRate", Health: "ok", State: "firing", LastEvaluation: start0.Add(80500 * time.Millisecond), Now: now,
		For: 30 * time.Second, Interval: 15 * time.Second, Firing: 3, Pending: 2,
	}
	latency := gate.Rule{Group: "gate", Name: "Latency", Health: "unknown", State: "unknown", Now: now, Interval: 15 * time.Second}
	disk := gate.Rule{
		Group: "other", Name: "Disk", Health: "err", State: "inactive", LastError: "found duplicate series for the match group",
		LastEvaluation: start0.Add(89 * time.Second), Now: now, For: time.Minute, Interval: 500 * time.Millisecond,
	}
	for name, tc := range map[string]struct {
		selector map[string]string
		want     []gate.Rule
	}{
		"a label":          {map[string]string{"canary_gate": "true"}, []gate.Rule{errorRate, latency}},
		"a name":           {map[string]string{"alertname": "Disk"}, []gate.Rule{disk}},
		"name and label":   {map[string]string{"alertname": "ErrorRate", "severity": "critical"}, []gate.Rule{errorRate}},
		"two labels":       {map[string]string{"canary_gate": "true", "severity": "critical"}, []gate.Rule{errorRate}},
		"an absent label":  {map[string]string{"canary_gate": "true", "severity": ""}, []gate.Rule{latency}},
		"nothing":          {map[string]string{"canary_gate": "false"}, nil},
		"a recording rule": {map[string]string{"alertname": "x"}, nil},
	} {
		if diff := cmp.Diff(tc.want, selectRules(all, tc.selector, "shop", "web", now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRulesParams(t *testing.T) {
	for want, selector := range map[string]map[string]string{
		`match[]={canary_gate="true",team="a\"b"}&type=alert`: {"team": `a"b`, "canary_gate": "true"},
		`rule_name[]=Up&type=alert`:                           {"alertname": "Up"},
		`match[]={a="b"}&rule_name[]=Up&type=alert`:           {"alertname": "Up", "a": "b", "c": ""},
		`type=alert`: {"c": ""},
	} {
		if got := readable(rulesParams(selector)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAlertEvidence(t *testing.T) {
	date, config, code := "Mon, 30 Nov 2026 12:01:31 GMT", "global:\n  rule_query_offset: 1m30s\nscrape_configs: []\n", http.StatusOK
	f := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/status/config":
			answer(w, map[string]string{"yaml": config})
		case "/api/v1/query":
			answer(w, map[string]any{"resultType": "scalar", "result": []any{1796040095.25, "1796040095.25"}})
		default:
			w.Header()["Date"] = nil
			if date != "" {
				w.Header().Set("Date", date)
			}
			w.WriteHeader(code)
			answer(w, json.RawMessage(rulesData))
		}
	})
	spec := &v1alpha1.Gate{Alerts: []v1alpha1.GateAlert{
		{MatchLabels: map[string]string{"alertname": "Latency"}}, {MatchLabels: map[string]string{"canary_gate": "no"}},
	}}
	latency, none := gate.AlertName(spec.Alerts[0]), gate.AlertName(spec.Alerts[1])
	rule := gate.Rule{
		Group: "gate", Name: "Latency", Health: "unknown", State: "unknown", Interval: 15 * time.Second,
		Now: start0.Add(91 * time.Second), QueryOffset: 90 * time.Second,
	}
	want := gate.Gathered{
		latency: {{Rules: []gate.Rule{rule}, Queries: []string{"GET /api/v1/rules?rule_name[]=Latency&type=alert"}}},
		none:    {{Queries: []string{`GET /api/v1/rules?match[]={canary_gate="no"}&type=alert`}}},
	}
	g := gatherer(t, Config{Addresses: []string{f.URL}})
	if diff := cmp.Diff(want, g.gather(t.Context(), spec)); diff != "" {
		t.Error(diff)
	}

	date = "" // behind something that takes it away
	got := g.gather(t.Context(), spec)[latency][0]
	if len(got.Rules) != 1 || !got.Rules[0].Now.Equal(time.UnixMilli(1796040095250)) {
		t.Errorf("evidence %+v, want the server's time", got)
	}
	configs := 0
	for _, r := range f.seen() {
		if r.URL.Path == "/api/v1/status/config" {
			configs++
		}
	}
	if configs != 1 {
		t.Errorf("the configuration was read %d times, want once", configs)
	}

	code = http.StatusServiceUnavailable
	got = g.gather(t.Context(), spec)[latency][0]
	if got.RulesProblem == nil || got.RulesProblem.Verdict != v1alpha1.VerdictError || got.Rules != nil {
		t.Fatalf("evidence %+v", got)
	}
	contains(t, got.RulesProblem.Problem, "503 Service Unavailable")
}

func TestParseQueryOffset(t *testing.T) {
	for config, want := range map[string]time.Duration{
		"": 0, "global: {}": 0, "global: {rule_query_offset: 1m}": time.Minute, "global:\n  rule_query_offset: 0s\n": 0,
	} {
		if got, err := parseQueryOffset(config); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", config, got, err, want)
		}
	}
	for _, config := range []string{"global: [", "global: {rule_query_offset: soon}"} {
		if _, err := parseQueryOffset(config); err == nil {
			t.Errorf("%q: no error", config)
		}
	}
}

func FuzzRules(f *testing.F) {
	f.Add([]byte(rulesData))
	f.Add([]byte(`{"groups":[{"rules":[{"type":"alerting","labels":null}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var all ruleGroups
		if json.Unmarshal(data, &all) != nil {
			return
		}
		for _, r := range selectRules(all, map[string]string{"a": ""}, "shop", "web", start0) {
			if r.Firing < 0 || r.Pending < 0 || len(r.LastError) > maxProblem+len("…") {
				t.Errorf("%+v", r)
			}
		}
	})
}
