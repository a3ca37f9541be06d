//go:build e2e

package prometheus

import (
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

var quiet = log.New(io.Discard, "", 0)

const (
	pass, fail, none, wrong = v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictNoData, v1alpha1.VerdictError

	p99 = `histogram_quantile(0.99, sum by (le) (rate(http_server_request_duration_seconds_bucket{namespace="{{ .Namespace }}",pod=~"{{ .New }}-.*"}[{{ .Window }}])))`
	all = `sum(increase(http_server_request_duration_seconds_count{namespace="{{ .Namespace }}",pod=~"{{ .New }}-.*"}[{{ .Window }}]))`
)

func slow() v1alpha1.GateCheck {
	c := value1(p99)
	c.Threshold.Samples, c.Threshold.MinSamples = all, 100
	return c
}

// longer lets a gate hold for longer than ten seconds.
func longer(g *v1alpha1.Gate) *v1alpha1.Gate {
	g.HoldDeadline = &metav1.Duration{Duration: time.Minute}
	return g
}

func load(rate, bad, took float64) traffic { return traffic{rate: rate, bad: bad, took: took} }

func change(at float64, l traffic) step { return step{at, func(w *world) { w.load = l }} }

// counted says how many requests the check has counted.
func counted(status *v1alpha1.GateStatus) v1alpha1.RequestCounts {
	if len(status.Checks) == 0 || status.Checks[0].New == nil {
		return v1alpha1.RequestCounts{}
	}
	return *status.Checks[0].New
}

// The truth table: what the gate says and does, against a real Prometheus.
func TestTruth(t *testing.T) {
	fine, bad, idle := load(400, 0, .05), load(400, .05, .05), traffic{}
	passed := false
	through := broken(t, false, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no upstream", http.StatusServiceUnavailable)
	})
	ended := make(chan struct{})
	hanging := broken(t, false, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		case <-ended:
		}
	})
	t.Cleanup(func() { close(ended) })
	untrusted := broken(t, true, func(w http.ResponseWriter, _ *http.Request) { value(w, 0) })

	cases := []*truth{
		{name: "healthy", gate: longer(check(errorRate(), slow())), load: fine, oldLoad: fine, verdict: pass, action: gate.Promote,
			end: func(s *v1alpha1.GateStatus, _ gate.Gathered) error {
				c := counted(s)
				return expect(c.Bad == 0 && c.Total >= 100, "promoted on %+v", c)
			}},
		{name: "healthy with the errors that the old version has", gate: longer(check(errorRate())), load: load(800, .002, .05), oldLoad: load(800, .002, .05), verdict: pass, action: gate.Promote},
		{name: "5% errors", gate: longer(check(errorRate())), load: bad, oldLoad: fine, verdict: fail, action: gate.Rollback,
			end: func(s *v1alpha1.GateStatus, g gate.Gathered) error {
				c := counted(s)
				share := float64(c.Bad) / float64(c.Total)
				if err := expect(share > .04 && share < .065, "rolled back on %+v", c); err != nil {
					return err
				}
				return expect(slices.Equal(s.Checks[0].TraceIDs, []string{failID}), "trace ids %v of %+v", s.Checks[0].TraceIDs, g)
			}},
		{name: "only errors", gate: longer(check(errorRate())), load: load(50, 1, .05), oldLoad: fine, verdict: fail, action: gate.Rollback},
		// All of a kind of error at once: the series begins with them and does not grow.
		{name: "errors that begin a series", gate: longer(check(errorRate())), before: load(20, 0, .05), warm: 4 * time.Second, load: load(20, 0, .05), oldLoad: fine,
			steps: []step{{3, func(w *world) { w.newer.serve("500", 40, .05, time.Second) }}}, verdict: fail, action: gate.Rollback},
		{name: "slow", gate: longer(check(errorRate(), slow())), load: load(400, 0, .9), oldLoad: fine, verdict: fail, action: gate.Rollback, message: "value"},
		{name: "no traffic", gate: check(errorRate()), load: idle, oldLoad: fine, verdict: none, action: gate.Pause, message: "no series"},
		{name: "no traffic any more", gate: check(errorRate()), before: fine, warm: 4 * time.Second, load: idle, oldLoad: fine, verdict: none, action: gate.Pause, message: "no requests"},
		{name: "no pods", gate: check(errorRate(), slow()), absent: true, verdict: none, action: gate.Pause, message: "no series"},
		{name: "too little traffic", gate: check(errorRate()), load: load(3, 0, .05), oldLoad: fine, verdict: none, action: gate.Pause, message: "more evidence"},
		{name: "too few samples", gate: check(slow()), load: load(3, 0, .9), verdict: none, action: gate.Pause, message: "fewer than the 100"},
		{name: "traffic that stops", gate: check(errorRate()), load: load(20, 0, .05), oldLoad: fine, steps: []step{change(4, idle)}, verdict: none, action: gate.Pause},
		// The check on errors passes, another holds the batch, the requests stop: what was
		// healthy once must not promote later.
		{name: "traffic that stops after a pass", gate: func() *v1alpha1.Gate {
			g := check(errorRate(), value1(`absent_metric`))
			g.HoldDeadline = &metav1.Duration{Duration: 30 * time.Second}
			return g
		}(), before: load(20, 0, .05), warm: 3 * time.Second, load: idle, oldLoad: fine,
			steps: []step{change(2, load(1000, 0, .05)), change(9, idle)}, verdict: none, action: gate.Pause,
			each: func(s *v1alpha1.GateStatus, _ gate.Gathered) error {
				passed = passed || s.Checks[0].Verdict == pass
				return nil
			},
			end: func(s *v1alpha1.GateStatus, _ gate.Gathered) error {
				return expect(passed && s.Checks[0].Verdict == none, "passed %v before the requests stopped, after them %s\n%s", passed, s.Checks[0].Verdict, summary(s))
			}},
		{name: "NaN", gate: check(value1(`sum(rate(http_server_request_duration_seconds_count{namespace="{{ .Namespace }}",http_response_status_code=~"5.."}[{{ .Window }}])) / sum(rate(http_server_request_duration_seconds_count{namespace="{{ .Namespace }}"}[{{ .Window }}]))`)),
			before: bad, warm: 4 * time.Second, verdict: none, action: gate.Pause, message: "NaN"},
		{name: "+Inf", absent: true, gate: check(value1(`1 / vector(0)`)), verdict: wrong, action: gate.Pause, message: "+Inf"},
		{name: "several series", gate: check(value1(`sum by (pod) (up{namespace="{{ .Namespace }}"})`)), verdict: wrong, action: gate.Pause,
			message: `2 series, it must return one: {pod="web-v1-6d4c8b7f9d-x2v5t"}, {pod="web-v2-6d4c8b7f9d-x2v5t"}`},
		{name: "string result", absent: true, gate: check(value1(`"healthy"`)), verdict: wrong, action: gate.Pause, message: "returns a string"},
		{name: "range result", absent: true, gate: check(value1(`up[5m]`)), verdict: wrong, action: gate.Pause, message: "returns a range"},
		{name: "scalar result", absent: true, gate: longer(check(value1(`scalar(vector(0.25))`))), verdict: pass, action: gate.Promote},
		{name: "400 bad query", absent: true, gate: check(value1(`sum(`)), verdict: wrong, action: gate.Pause, message: "bad_data"},
		{name: "422", absent: true, gate: check(value1(`up * on() up`)), verdict: wrong, action: gate.Pause, message: "execution"},
		{name: "503", absent: true, gate: check(errorRate()), address: through, verdict: wrong, action: gate.Pause, message: "503 Service Unavailable"},
		{name: "hanging", absent: true, gate: check(errorRate(), slow()), address: hanging, timeout: time.Second, verdict: wrong, action: gate.Pause, message: "in 1s"},
		{name: "refused", absent: true, gate: check(errorRate()), address: refusing(t), verdict: wrong, action: gate.Pause, message: "connection refused"},
		{name: "DNS gone", absent: true, gate: check(errorRate()), address: "http://prometheus.gone.invalid:9090", verdict: wrong, action: gate.Pause, message: "prometheus.gone.invalid"},
		{name: "certificate wrong", absent: true, gate: check(errorRate()), address: untrusted, verdict: wrong, action: gate.Pause, message: "certificate is not accepted"},
		// One of a pair is blind: the other's good news is not enough.
		{name: "one of two is gone", gate: check(errorRate()), address: scraper.URL + "," + refusing(t), load: fine, oldLoad: fine, verdict: wrong, action: gate.Pause, message: "connection refused"},
		{name: "counter resets", gate: longer(check(errorRate())), load: load(60, 0, .05), oldLoad: fine,
			steps: []step{{4, func(w *world) { w.newer.restart("http_server_request_duration_seconds") }}}, verdict: pass, action: gate.Promote,
			each: func(s *v1alpha1.GateStatus, _ gate.Gathered) error { return plausible(s, 60) }},
		{name: "scrape gap", gate: longer(check(errorRate())), load: load(60, 0, .05), oldLoad: fine,
			steps:   []step{{3, func(w *world) { w.newer.setDown(true) }}, {8, func(w *world) { w.newer.setDown(false) }}},
			verdict: pass, action: gate.Promote, each: func(s *v1alpha1.GateStatus, _ gate.Gathered) error { return plausible(s, 60) }},
		{name: "an old window full of errors", gate: longer(check(errorRate())), before: load(400, .5, .9), warm: 6 * time.Second, load: fine, oldLoad: fine,
			verdict: pass, action: gate.Promote,
			end: func(s *v1alpha1.GateStatus, _ gate.Gathered) error {
				return expect(counted(s).Bad == 0, "%+v counted", counted(s))
			}},
		{name: "metric renamed", gate: check(errorRate(), slow()), metric: "http_request_duration_seconds", load: bad, oldLoad: fine, verdict: none, action: gate.Pause, message: "no series"},
		{name: "hold means rollback", gate: func() *v1alpha1.Gate {
			g := check(errorRate())
			g.OnHold = v1alpha1.GateRollback
			return g
		}(), absent: true, verdict: none, action: gate.Rollback, message: "no verdict within 10s"},
		{name: "harm means pause", gate: func() *v1alpha1.Gate {
			g := longer(check(errorRate()))
			g.OnFail = v1alpha1.GatePause
			return g
		}(), load: load(400, .2, .05), oldLoad: fine, verdict: fail, action: gate.Pause},
	}
	cases = append(cases, meshCases()...)
	cases = append(cases, outlierCases()...)
	for _, c := range cases {
		// Nothing but positive evidence promotes, and nothing but harm rolls back.
		each := c.each
		c.each = func(s *v1alpha1.GateStatus, g gate.Gathered) error {
			if s.Verdict != c.verdict && (s.Verdict == pass || s.Verdict == fail) {
				return fmt.Errorf("verdict %s in between", s.Verdict)
			}
			if each != nil {
				return each(s, g)
			}
			return nil
		}
	}
	begin := time.Now()
	play(t, cases, "")
	t.Logf("%d cases in %s", len(cases), time.Since(begin).Round(time.Second))
}

// plausible says that no more requests were counted than there can have been, by more than
// Prometheus's extrapolation to the ends of the window.
func plausible(s *v1alpha1.GateStatus, rate float64) error {
	window := s.EvaluatedAt.Sub(s.WindowStart.Time).Seconds() + 1
	most := math.Ceil(rate*window*1.1 + 2*rate)
	c := counted(s)
	return expect(c.Bad == 0 && float64(c.Total) <= most, "%+v counted in %.0f s, want no bad ones and at most %.0f", c, window, most)
}

// Alerts against the real Prometheus.
func TestAlerts(t *testing.T) {
	selects := func(label string) *v1alpha1.Gate {
		g := check()
		g.Alerts = []v1alpha1.GateAlert{{MatchLabels: map[string]string{"gate_case": label}}}
		return g
	}
	about := func(namespace, canary string) string {
		return fmt.Sprintf(`label_replace(label_replace(vector(1), "namespace", "%s", "", ""), "canary", "%s", "", "")`, namespace, canary)
	}
	var rules strings.Builder
	rules.WriteString("groups:\n")
	group := func(label, interval, wait, expr string) {
		fmt.Fprintf(&rules, "- name: %s\n  interval: %s\n  rules:\n  - alert: Case\n    expr: %s\n    for: %s\n    labels: {gate_case: %s}\n", label, interval, expr, wait, label)
	}
	group("failing", "1s", "0s", `up * on() group_right() up`)
	group("later", "1000h", "0s", `vector(1) > 2`)
	group("quiet", "1s", "2s", `vector(1) > 2`)
	group("pending", "1s", "1h", about("alert-pending", "web"))
	group("here", "1s", "0s", about("alert-firing-for-this-canary", "web"))
	group("canary", "1s", "0s", about("alert-firing-for-another-canary", "db"))
	group("namespace", "1s", "0s", about("elsewhere", "web"))
	group("general", "1s", "0s", `vector(1)`)

	byName := check()
	byName.Alerts = []v1alpha1.GateAlert{{MatchLabels: map[string]string{"alertname": "Case", "gate_case": "quiet"}}}
	unreachable := selects("quiet")
	cases := []*truth{
		{name: "alert rule missing", gate: selects("missing"), verdict: none, action: gate.Pause, message: "no alerting rule"},
		{name: "alert rule unhealthy", gate: selects("failing"), verdict: wrong, action: gate.Pause, message: "cannot be evaluated"},
		{name: "alert rule not yet evaluated", gate: selects("later"), verdict: none, action: gate.Pause, message: "not been evaluated"},
		{name: "alert pending", gate: selects("pending"), verdict: none, action: gate.Pause, message: "is pending"},
		{name: "alert firing for this canary", gate: longer(selects("here")), verdict: fail, action: gate.Rollback, message: "is firing"},
		{name: "alert firing for another canary", gate: longer(selects("canary")), verdict: pass, action: gate.Promote},
		{name: "alert firing for another namespace", gate: longer(selects("namespace")), verdict: pass, action: gate.Promote},
		{name: "alert that names no canary", gate: longer(selects("general")), verdict: fail, action: gate.Rollback, message: "is firing"},
		{name: "alert quiet", gate: longer(selects("quiet")), verdict: pass, action: gate.Promote},
		{name: "alert by name", gate: longer(byName), verdict: pass, action: gate.Promote},
		{name: "alert rules unreachable", gate: unreachable, address: refusing(t), verdict: wrong, action: gate.Pause, message: "connection refused"},
		{name: "alert rules of one of two unreachable", gate: selects("quiet"), address: scraper.URL + "," + refusing(t), verdict: wrong, action: gate.Pause, message: "connection refused"},
	}
	for _, c := range cases {
		c.absent = true
		c.each = func(s *v1alpha1.GateStatus, g gate.Gathered) error {
			if s.Verdict != c.verdict && (s.Verdict == pass || s.Verdict == fail) {
				return fmt.Errorf("verdict %s in between", s.Verdict)
			}
			return nil
		}
	}
	play(t, cases, rules.String())
}
