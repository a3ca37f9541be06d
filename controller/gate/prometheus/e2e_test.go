//go:build e2e

package prometheus

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// scraper is a real Prometheus. It runs around all tests, so that what it takes is not
// mistaken for a leak of theirs.
var scraper *servers.PrometheusServer

func init() {
	runTests = func(m *testing.M) {
		var err error
		scraper, err = servers.StartPrometheus(context.Background(), servers.PrometheusOptions{
			Options: servers.Options{Progress: os.Stderr}, Config: "scrape_configs: []\n",
			Flags: []string{"--enable-feature=exemplar-storage"},
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

const (
	// patience bounds failures only: a case goes on as soon as it has what it waits for.
	patience = 75 * time.Second
	beat     = 100 * time.Millisecond
	// suffix makes the name of a Deployment that of its pod.
	suffix = "-6d4c8b7f9d-x2v5t"
	failID = "0af7651916cd43dd8448eb211c80319c"
)

// pod is a scrape target with the request metrics of the middleware.
type pod struct {
	mu       sync.Mutex
	handler  http.Handler
	requests *client.HistogramVec
	down     bool
	debt     map[string]float64
}

func newPod(metric string) *pod {
	p := &pod{}
	p.restart(metric)
	return p
}

// restart begins with counters at 0.
func (p *pod) restart(metric string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = client.NewHistogramVec(client.HistogramOpts{Name: metric, Help: "x", Buckets: []float64{.1, .25, .5, 1, 2.5}},
		[]string{"http_request_method", "http_route", "http_response_status_code"})
	registry := client.NewRegistry()
	registry.MustRegister(p.requests)
	p.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	p.debt = map[string]float64{}
}

// serve counts requests that came in the time since the last beat.
func (p *pod) serve(status string, perSecond float64, took float64, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.debt[status] += perSecond * d.Seconds()
	for ; p.debt[status] >= 1; p.debt[status]-- {
		o := p.requests.WithLabelValues("GET", "/", status)
		if strings.HasPrefix(status, "5") {
			o.(client.ExemplarObserver).ObserveWithExemplar(took, client.Labels{"trace_id": failID})
			continue
		}
		o.Observe(took)
	}
}

func (p *pod) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

func (p *pod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	handler, down := p.handler, p.down
	p.mu.Unlock()
	if down {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	handler.ServeHTTP(w, r)
}

// traffic is what a version gets: requests a second, the share of bad ones, and how long
// one takes in seconds.
type traffic struct {
	rate, bad, took float64
}

func (p *pod) take(t traffic, d time.Duration) {
	p.serve("200", t.rate*(1-t.bad), t.took, d)
	p.serve("503", t.rate*t.bad, t.took, d)
}

// step is something that changes with time, in seconds since the window started.
type step struct {
	at float64
	do func(*world)
}

// world is the surroundings of one case.
type world struct {
	newer, older *pod
	// loads are the traffic of the two now.
	load, oldLoad traffic
}

// truth is one line of the truth table.
type truth struct {
	name string
	gate *v1alpha1.Gate
	// address is where to ask; the real Prometheus if empty.
	address string
	// timeout of a query, long enough for a busy machine by default.
	timeout time.Duration
	// metric is the name of the histogram, that of the middleware if empty.
	metric string
	// before, load and oldLoad are traffic before the window (both versions) and in it.
	before, load, oldLoad traffic
	// warm is how long before lasts.
	warm  time.Duration
	steps []step
	// absent has no pods at all.
	absent bool
	// exposes is what something else exposes, after so many seconds of scraping. Its labels
	// are honoured.
	exposes func(seconds float64) string
	// verdict and action are how it must end, message what it must say then.
	verdict v1alpha1.Verdict
	action  gate.Action
	message string
	// each looks at every evaluation, after the first scrapes.
	each func(status *v1alpha1.GateStatus, g gate.Gathered) error
	// end looks at the last.
	end func(status *v1alpha1.GateStatus, g gate.Gathered) error
}

func (c *truth) namespace() string {
	return strings.NewReplacer(" ", "-", "+", "", "%", "", ",", "").Replace(strings.ToLower(c.name))
}

// interval is that of the gates.
const interval = 3 * time.Second

// check makes a gate that judges every three seconds and holds for ten.
func check(checks ...v1alpha1.GateCheck) *v1alpha1.Gate {
	return &v1alpha1.Gate{
		Interval: &metav1.Duration{Duration: interval}, HoldDeadline: &metav1.Duration{Duration: 10 * time.Second},
		Checks: checks,
	}
}

func errorRate() v1alpha1.GateCheck {
	return v1alpha1.GateCheck{Name: "errors", Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer, Max: "3%", Harm: "2%"}}
}

func value1(query string) v1alpha1.GateCheck {
	return v1alpha1.GateCheck{Name: "value", Threshold: &v1alpha1.ThresholdCheck{Query: query, Max: "0.5", Passes: 2, Failures: 2}}
}

// seen says that Prometheus has what the pods counted before the window.
func (c *truth) seen(ctx context.Context, g *Gatherer) bool {
	series := 0.
	for _, share := range []float64{c.before.bad, 1 - c.before.bad} {
		if c.before.rate*share > 0 {
			series += 2
		}
	}
	query := fmt.Sprintf(`count(http_server_request_duration_seconds_count{namespace=%q})`, c.namespace())
	return series == 0 || g.gather(ctx, threshold(query))["check"][0].Value.Value == series
}

// run plays the case: it goes on until the gate acts, or patience ends.
func (c *truth) run(ctx context.Context, w *world, g *Gatherer) error {
	begin := time.Now()
	for ; (time.Since(begin) < c.warm || !c.seen(ctx, g)) && ctx.Err() == nil; pause(ctx) {
		w.newer.take(c.before, beat)
		w.older.take(c.before, beat)
	}
	start := time.Now()
	w.load, w.oldLoad = c.load, c.oldLoad
	s := gate.Situation{
		RolloutID: "v1-" + c.namespace(), Namespace: c.namespace(), Canary: "web", New: "web-v2", Old: "web-v1",
		Batch: 1, Batches: 2, WindowStart: start, OldReplicas: 1,
	}
	var status *v1alpha1.GateStatus
	var outcome gate.Outcome
	steps, last := c.steps, start
	for ctx.Err() == nil {
		pause(ctx)
		now := time.Now()
		for len(steps) > 0 && now.Sub(start).Seconds() >= steps[0].at {
			steps[0].do(w)
			steps = steps[1:]
		}
		w.newer.take(w.load, now.Sub(last))
		w.older.take(w.oldLoad, now.Sub(last))
		last = now
		if gate.Due(c.gate, status, s, now) > 0 {
			continue
		}
		found := g.Gather(ctx, c.gate, s.Namespace, s, now)
		status = gate.Evaluate(c.gate, status, s, found, now)
		outcome, status = gate.Decide(c.gate, status, s, false, now)
		if c.each != nil {
			if err := c.each(status, found); err != nil {
				return fmt.Errorf("%w\nafter %s: %s", err, now.Sub(start), summary(status))
			}
		}
		if outcome.Action == gate.Hold {
			continue
		}
		switch {
		case outcome.Action != c.action || outcome.Verdict != c.verdict:
			return fmt.Errorf("%s and %s, want %s and %s\nafter %s: %s", outcome.Verdict, outcome.Action, c.verdict, c.action, now.Sub(start), summary(status))
		case !strings.Contains(outcome.Message, c.message):
			return fmt.Errorf("%q lacks %q", outcome.Message, c.message)
		case c.end != nil:
			return c.end(status, found)
		}
		return nil
	}
	return fmt.Errorf("neither promoted nor rolled back nor paused: %s", summary(status))
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(beat):
	}
}

func summary(status *v1alpha1.GateStatus) string {
	if status == nil {
		return "never evaluated"
	}
	text := fmt.Sprintf("%d evaluations", status.Evaluations)
	for _, c := range status.Checks {
		text += fmt.Sprintf("\n%s %s %s (new %v, old %v, history %q)", c.Name, c.Verdict, c.Message, c.New, c.Old, c.History)
	}
	for _, d := range status.Decisions {
		text += fmt.Sprintf("\n%s %s: %s", d.Verdict, d.Action, d.Evidence)
	}
	return text
}

// play runs the cases at once, against one Prometheus that scrapes all their pods each
// second, with rules. Each case is a test of its own.
func play(t *testing.T, cases []*truth, rules string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	mux := http.NewServeMux()
	target := httptest.NewServer(mux)
	defer target.Close()
	var jobs, others strings.Builder
	began := time.Now()
	worlds := make([]*world, len(cases))
	for i, c := range cases {
		metric := c.metric
		if metric == "" {
			metric = "http_server_request_duration_seconds"
		}
		w := &world{newer: newPod(metric), older: newPod(metric)}
		worlds[i] = w
		if c.exposes != nil {
			path := "/" + c.namespace() + "/exposes"
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain; version=0.0.4")
				_, _ = io.WriteString(w, c.exposes(time.Since(began).Seconds()))
			})
			fmt.Fprintf(&others, "  - targets: [%q]\n    labels: {case: %q, __metrics_path__: %q}\n", target.Listener.Addr(), c.namespace(), path)
		}
		if c.absent {
			continue
		}
		for name, p := range map[string]*pod{"web-v2": w.newer, "web-v1": w.older} {
			path := "/" + c.namespace() + "/" + name
			mux.Handle(path, p)
			fmt.Fprintf(&jobs, "  - targets: [%q]\n    labels: {namespace: %q, pod: %q, __metrics_path__: %q}\n",
				target.Listener.Addr(), c.namespace(), name+suffix, path)
		}
	}
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nscrape_configs:\n- job_name: pods\n  static_configs:\n" + jobs.String()
	if jobs.Len() == 0 {
		config = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
	}
	if others.Len() > 0 {
		config += "- job_name: others\n  honor_labels: true\n  static_configs:\n" + others.String()
	}
	if rules != "" {
		file := filepath.Join(t.TempDir(), "rules.yml")
		if err := os.WriteFile(file, []byte(rules), 0o644); err != nil {
			t.Fatal(err)
		}
		config += fmt.Sprintf("rule_files: [%q]\n", file)
	}
	if err := scraper.SetConfig(ctx, config); err != nil {
		t.Fatal(err)
	}
	if pods := strings.Count(jobs.String()+others.String(), "targets:"); pods > 0 {
		g := gatherer(t, Config{Addresses: []string{scraper.URL}})
		until(ctx, t, "every pod is scraped", func() bool {
			return g.gather(ctx, threshold(`count(up{job=~"pods|others"} == 1)`))["check"][0].Value.Value == float64(pods)
		})
	}
	results := make([]error, len(cases))
	took := make([]time.Duration, len(cases))
	var group sync.WaitGroup
	for i, c := range cases {
		group.Go(func() {
			address := c.address
			if address == "" {
				address = scraper.URL
			}
			g, err := New(Config{Addresses: strings.Split(address, ","), Timeout: c.timeout})
			if err != nil {
				results[i] = err
				return
			}
			defer g.Close()
			begin := time.Now()
			results[i] = c.run(ctx, worlds[i], g)
			took[i] = time.Since(begin)
		})
	}
	group.Wait()
	http.DefaultClient.CloseIdleConnections()
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if results[i] != nil {
				t.Errorf("after %s: %v", took[i].Round(time.Second), results[i])
			}
		})
	}
}

func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if pause(ctx); ctx.Err() != nil {
			t.Fatalf("%s: not in %s", what, patience)
		}
	}
}

// broken serves what is no healthy Prometheus and returns its address.
func broken(t *testing.T, tls bool, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quiet
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.URL
}

// refusing is an address at which nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
