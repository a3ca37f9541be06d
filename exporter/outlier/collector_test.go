package outlier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// script is a source whose sweeps are written down.
type script struct {
	mu    sync.Mutex
	sweep func(ctx context.Context, want *Interest, sink Sink) error
	reads int
}

func (s *script) Kind() Kind { return KindEnvoyStats }

func (s *script) Read(ctx context.Context, want *Interest, sink Sink) error {
	s.mu.Lock()
	s.reads++
	sweep := s.sweep
	s.mu.Unlock()
	return sweep(ctx, want, sink)
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// targetList is a target list that tests change.
type targetList struct {
	mu sync.Mutex
	ts []Target
}

func (l *targetList) get() []Target {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ts
}

func (l *targetList) set(ts ...Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ts = ts
}

func newTestCollector(t *testing.T, c Config) *Collector {
	t.Helper()
	out, err := NewCollector(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func assertMetrics(t *testing.T, c prometheus.Collector, want string, names ...string) {
	t.Helper()
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

const typeLines = `# HELP canary_outlier_ejected_endpoints Endpoints of this version that outlier detection of at least one observed proxy has ejected. Absent while no proxy is observed.
# TYPE canary_outlier_ejected_endpoints gauge
# HELP canary_outlier_ejecting_proxies Observed proxies that eject at least one endpoint of this version. Absent while no proxy is observed.
# TYPE canary_outlier_ejecting_proxies gauge
# HELP canary_outlier_ejections_total Ejections of endpoints of this version enforced by all proxies, by kind of outlier detection.
# TYPE canary_outlier_ejections_total counter
# HELP canary_outlier_observed_proxies Proxies of callers that were read in the last sweep and have a view of this version. 0 means that nothing is known about ejections.
# TYPE canary_outlier_observed_proxies gauge
`

var objectFamilies = []string{
	"canary_outlier_ejected_endpoints", "canary_outlier_ejecting_proxies",
	"canary_outlier_observed_proxies", "canary_outlier_ejections_total",
}

func TestCollectorMetrics(t *testing.T) {
	m := newMesh(t)
	m.proxy("a", statsBody(istioStats))
	m.proxy("b", statsBody(strings.ReplaceAll(istioStats, "} 1\n", "} 0\n")))
	m.proxy("c", body("text/html", "<html>"))
	targets := &targetList{}
	targets.set(canarySubset, Target{Namespace: "shop", Canary: "web", Role: RoleStable, Service: "web", Subset: "v0"})
	var log bytes.Buffer
	c := newTestCollector(t, Config{
		Source: m.source(t, KindEnvoyStats, Options{}), Targets: targets.get,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	assertMetrics(t, c, "", objectFamilies...)
	first, second := time.Now().Add(-15*time.Second), time.Now().Truncate(time.Second)
	c.sweep(t.Context(), first)
	m.proxy("b", statsBody(strings.ReplaceAll(istioStats, "} 4\n", "} 7\n")))
	c.sweep(t.Context(), second)

	// b went from 4 consecutive 5xx to 7, and from 0 to 1 gateway failures.
	// Its total stayed at 5, which takes nothing away. Nothing is known of the
	// stable version: no subset v0 exists.
	assertMetrics(t, c, typeLines+`
canary_outlier_observed_proxies{canary="web",namespace="shop",role="canary"} 2
canary_outlier_observed_proxies{canary="web",namespace="shop",role="stable"} 0
canary_outlier_ejecting_proxies{canary="web",namespace="shop",role="canary"} 2
canary_outlier_ejected_endpoints{canary="web",namespace="shop",role="canary"} 1
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="consecutive_5xx"} 3
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="consecutive_gateway_failure"} 1
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="consecutive_local_origin_failure"} 0
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="failure_percentage"} 0
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="local_origin_failure_percentage"} 0
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="local_origin_success_rate"} 0
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="success_rate"} 0
canary_outlier_ejections_total{canary="web",namespace="shop",role="canary",type="unspecified"} 0
`, objectFamilies...)
	assertMetrics(t, c, `# HELP canary_outlier_last_success_timestamp_seconds Unix time of the last sweep that read at least one proxy, or that had no version to ask about. 0 before the first.
# TYPE canary_outlier_last_success_timestamp_seconds gauge
canary_outlier_last_success_timestamp_seconds{source="envoy-stats"} `+strconv.FormatInt(second.Unix(), 10)+"\n", "canary_outlier_last_success_timestamp_seconds")
	assertMetrics(t, c, `# HELP canary_outlier_scrape_errors_total Proxies, or whole sweeps, that could not be read, by reason.
# TYPE canary_outlier_scrape_errors_total counter
canary_outlier_scrape_errors_total{reason="list",source="envoy-stats"} 0
canary_outlier_scrape_errors_total{reason="malformed",source="envoy-stats"} 2
canary_outlier_scrape_errors_total{reason="no_stats",source="envoy-stats"} 0
canary_outlier_scrape_errors_total{reason="status",source="envoy-stats"} 0
canary_outlier_scrape_errors_total{reason="targets",source="envoy-stats"} 0
canary_outlier_scrape_errors_total{reason="timeout",source="envoy-stats"} 0
canary_outlier_scrape_errors_total{reason="too_large",source="envoy-stats"} 0
canary_outlier_scrape_errors_total{reason="unreachable",source="envoy-stats"} 0
`, "canary_outlier_scrape_errors_total")
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "callers/c") {
		t.Errorf("want one warning naming the proxy, got\n%s", &log)
	}

	targets.set()
	assertMetrics(t, c, "", objectFamilies...)
}

// Where nothing can be read, nothing is claimed: the gauges go, observed
// proxies are 0, the counters stand and the last success stays in the past.
func TestBlindIsNotZero(t *testing.T) {
	src := &script{sweep: func(_ context.Context, _ *Interest, sink Sink) error {
		sink.Observe(proxyStats("a", 1, 1, 1))
		return nil
	}}
	targets := &targetList{}
	targets.set(canarySubset)
	c := newTestCollector(t, Config{Source: src, Targets: targets.get})
	c.sweep(t.Context(), at(0))
	if n := testutil.CollectAndCount(c, "canary_outlier_ejected_endpoints", "canary_outlier_ejecting_proxies"); n != 2 {
		t.Fatalf("%d gauges, want 2", n)
	}
	for name, sweep := range map[string]func(context.Context, *Interest, Sink) error{
		"all proxies fail": func(_ context.Context, _ *Interest, sink Sink) error {
			sink.Fail("a", errors.New("connection refused"))
			return nil
		},
		"no proxies": func(context.Context, *Interest, Sink) error { return readErrorf(ReasonList, "none") },
		"no opt-in": func(_ context.Context, _ *Interest, sink Sink) error {
			sink.Fail("a", readErrorf(ReasonNoStats, "none"))
			return nil
		},
	} {
		src.sweep = sweep
		c.sweep(t.Context(), at(1))
		if n := testutil.CollectAndCount(c, "canary_outlier_ejected_endpoints", "canary_outlier_ejecting_proxies"); n != 0 {
			t.Errorf("%s: %d gauges, want none", name, n)
		}
		if n := testutil.CollectAndCount(c, "canary_outlier_ejections_total"); n != numTypes {
			t.Errorf("%s: %d counters, want %d", name, n, numTypes)
		}
		assertMetrics(t, c, `# HELP canary_outlier_observed_proxies Proxies of callers that were read in the last sweep and have a view of this version. 0 means that nothing is known about ejections.
# TYPE canary_outlier_observed_proxies gauge
canary_outlier_observed_proxies{canary="web",namespace="shop",role="canary"} 0
`, "canary_outlier_observed_proxies")
		if got := c.succeeded.Load(); got != at(0).UnixNano() {
			t.Errorf("%s: last success moved to %v", name, got)
		}
	}
}

// With nothing to watch nothing is missed, and no proxy is bothered.
func TestNoTargets(t *testing.T) {
	src := &script{}
	c := newTestCollector(t, Config{Source: src, Targets: func() []Target { return nil }})
	c.sweep(t.Context(), at(0))
	if src.count() != 0 || c.succeeded.Load() != at(0).UnixNano() {
		t.Errorf("%d reads, last success %v", src.count(), c.succeeded.Load())
	}
}

func TestTooManyTargets(t *testing.T) {
	src := &script{sweep: func(_ context.Context, _ *Interest, sink Sink) error {
		sink.Observe(proxyStats("a", 1, 1, 1))
		return nil
	}}
	targets := &targetList{}
	targets.set(canarySubset)
	c := newTestCollector(t, Config{Source: src, Targets: targets.get, MaxTargets: 1})
	c.sweep(t.Context(), at(0))
	targets.set(canarySubset, stableSubset)
	c.sweep(t.Context(), at(1))
	if n := testutil.CollectAndCount(c, objectFamilies...); n != 0 || c.errors[ReasonTargets].Load() != 1 {
		t.Errorf("%d series and %d errors, want 0 and 1", n, c.errors[ReasonTargets].Load())
	}
	targets.set(canarySubset)
	c.sweep(t.Context(), at(2))
	if n := testutil.CollectAndCount(c, "canary_outlier_observed_proxies"); n != 1 {
		t.Errorf("%d series after recovery, want 1", n)
	}
}

// Run sweeps at once and then at the interval, bounds a source that does not
// come back by itself, never makes a scrape wait, and takes the series with
// it when it ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &script{}
		fine := func(_ context.Context, _ *Interest, sink Sink) error {
			sink.Observe(proxyStats("a", 1, 1, 1))
			return nil
		}
		src.sweep = fine
		c := newTestCollector(t, Config{Source: src, Targets: func() []Target { return []Target{canarySubset} }, Interval: 15 * time.Second, Timeout: 9 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		observed := func() int { return testutil.CollectAndCount(c, "canary_outlier_ejecting_proxies") }
		if src.count() != 1 || observed() != 1 {
			t.Fatalf("at once: %d reads, %d series", src.count(), observed())
		}
		if err := c.Run(ctx); err == nil {
			t.Error("ran twice")
		}
		time.Sleep(14 * time.Second)
		src.mu.Lock()
		src.sweep = func(ctx context.Context, _ *Interest, sink Sink) error {
			<-ctx.Done()
			sink.Fail("a", ctx.Err())
			return nil
		}
		src.mu.Unlock()
		time.Sleep(2 * time.Second)
		// The second sweep hangs; a scrape shows the first.
		if src.count() != 2 || observed() != 1 {
			t.Fatalf("while hanging: %d reads, %d series", src.count(), observed())
		}
		time.Sleep(9 * time.Second)
		if observed() != 0 || c.errors[ReasonTimeout].Load() != 1 {
			t.Fatalf("after the timeout: %d series, %d timeouts", observed(), c.errors[ReasonTimeout].Load())
		}
		src.mu.Lock()
		src.sweep = fine
		src.mu.Unlock()
		time.Sleep(15 * time.Second)
		if observed() != 1 {
			t.Fatal("no series after recovery")
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := testutil.CollectAndCount(c, objectFamilies...); n != 0 {
			t.Errorf("%d series after the end", n)
		}
	})
}

func TestNewCollectorRefuses(t *testing.T) {
	src, targets := &script{}, func() []Target { return nil }
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{Targets: targets}, "no source"},
		{Config{Source: src}, "no targets"},
		{Config{Source: src, Targets: targets, Interval: -1}, "must be positive"},
	} {
		if _, err := NewCollector(tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}
