//go:build e2e

package outlier

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// scraper is a real Prometheus. It runs around all tests, so that what it takes is
// not mistaken for a leak of theirs.
var scraper *servers.PrometheusServer

func init() {
	runTests = func(m *testing.M) {
		var err error
		scraper, err = servers.StartPrometheus(context.Background(), servers.PrometheusOptions{
			Options: servers.Options{Progress: os.Stderr}, Config: scraping(nil),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "starting Prometheus:", err)
			os.Exit(1)
		}
		goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
			if err := scraper.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping Prometheus:", err)
				code = max(code, 1)
			}
			os.Exit(code)
		}))
	}
}

// scraping configures a Prometheus to scrape the targets every second.
func scraping(targets []string) string {
	list := make([]string, len(targets))
	for i, target := range targets {
		list[i] = strconv.Quote(target)
	}
	return fmt.Sprintf("scrape_configs:\n- job_name: envoy\n  scrape_interval: 1s\n  metrics_path: /stats/prometheus\n  static_configs:\n  - targets: [%s]\n", strings.Join(list, ", "))
}

// TestRealPrometheus has a Prometheus scrape proxies and reads their ejections
// from it.
func TestRealPrometheus(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	m := newMesh(t)
	m.proxy("a", statsBody(istioStats))
	m.proxy("b", statsBody(strings.ReplaceAll(strings.ReplaceAll(istioStats, "} 1\n", "} 0\n"), "{cluster_name", "{envoy_cluster_name")))
	m.proxy("idle", statsBody(strings.ReplaceAll(istioStats, "} 12\n", "} 0\n")))
	m.proxy("down", hang)
	var targets []string
	for _, p := range m.list {
		targets = append(targets, fmt.Sprintf("%s:%d", p.Address, m.port))
	}
	if err := scraper.SetConfig(t.Context(), scraping(targets)); err != nil {
		t.Fatal(err)
	}
	source := promSourceOf(t, scraper.URL, Options{ProxyLabels: []string{"instance"}, Matchers: map[string]string{"job": "envoy"}, Window: 10 * time.Second})
	l := newLedger()
	start := time.Now()
	sweep := func() map[Role]Result {
		start = start.Add(time.Second)
		s, err := l.begin(start, []Target{canarySubset, {Namespace: "shop", Canary: "web", Role: RoleStable, Service: "web", Subset: "v1"}})
		if err != nil {
			t.Fatal(err)
		}
		sink := &sinkRecorder{readings: map[string]Reading{}}
		err = source.Read(t.Context(), s.interest, sink)
		if err != nil && reasonOf(err) != ReasonNoStats && reasonOf(err) != ReasonUnreachable && reasonOf(err) != ReasonStatus {
			t.Fatal(err)
		}
		out := map[Role]Result{}
		for _, r := range sink.readings {
			s.observe(r)
		}
		for _, r := range s.finish() {
			out[r.Role] = r
		}
		return out
	}
	until := func(what string, ok func(map[Role]Result) bool) {
		t.Helper()
		var got map[Role]Result
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			if got = sweep(); ok(got) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: got %+v", what, got)
			}
		}
	}
	until("a and b see the canary, idle and down do not; a ejects one endpoint", func(r map[Role]Result) bool {
		c, s := r[RoleCanary], r[RoleStable]
		return c.Observed == 2 && c.Ejecting == 1 && c.Ejected == 1 && c.Counted && c.Ejections == ejections(0, 0) && s.Observed == 3 && s.Ejecting == 0
	})
	m.proxy("a", statsBody(strings.ReplaceAll(strings.ReplaceAll(istioStats, "} 4\n", "} 6\n"), "} 5\n", "} 7\n")))
	until("two more consecutive 5xx", func(r map[Role]Result) bool { return r[RoleCanary].Ejections == ejections(2, 0) })
	m.proxy("a", statsBody(strings.ReplaceAll(istioStats, v2+"\"} 1\n", v2+"\"} 0\n")))
	until("the ejection ends after the window", func(r map[Role]Result) bool { return r[RoleCanary].Ejecting == 0 && r[RoleCanary].Observed == 2 })
	m.proxy("a", hang)
	m.proxy("b", hang)
	until("proxies that cannot be scraped are not observed", func(r map[Role]Result) bool { return r[RoleCanary].Observed == 0 })
}
