package push

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway keeps groups as a Pushgateway does. TestRealPushgateway has the real
// one.
type gateway struct {
	*httptest.Server
	mu     sync.Mutex
	groups map[string]map[string]float64 // path: metric: value
	log    []string
	auth   string
	// refuse, if set, answers in the gateway's place.
	refuse func(w http.ResponseWriter, r *http.Request) bool
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{groups: map[string]map[string]float64{}}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, r.Method)
	g.auth = r.Header.Get("Authorization")
	if g.refuse != nil && g.refuse(w, r) {
		return
	}
	switch r.Method {
	case http.MethodPut:
		values := map[string]float64{}
		dec := expfmt.NewDecoder(r.Body, expfmt.ResponseFormat(r.Header))
		for {
			var f dto.MetricFamily
			if err := dec.Decode(&f); err != nil {
				if !errors.Is(err, io.EOF) {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				break
			}
			for _, m := range f.Metric {
				values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		g.groups[r.URL.Path] = values
	case http.MethodDelete:
		delete(g.groups, r.URL.Path)
		w.WriteHeader(http.StatusAccepted)
	}
}

func (g *gateway) group(path string) map[string]float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.groups[path]
}

func registry(t *testing.T) (*prometheus.Registry, prometheus.Counter) {
	t.Helper()
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "checks_total", Help: "Checks."})
	r.MustRegister(c)
	return r, c
}

func pusher(t *testing.T, c Config) *Pusher {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p.backoff = time.Millisecond
	t.Cleanup(p.client.CloseIdleConnections)
	return p
}

func TestPushAndDelete(t *testing.T) {
	g := newGateway(t)
	r, c := registry(t)
	c.Add(3)
	p := pusher(t, Config{URL: strings.Replace(g.URL, "http://", "http://ci:secret@", 1), Job: "release", Grouping: map[string]string{"instance": "42"}, Gatherer: r})
	if err := p.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.group("/metrics/job/release/instance/42")["checks_total"]; got != 3 {
		t.Errorf("pushed %v, want 3", got)
	}
	if want := "Basic " + base64.StdEncoding.EncodeToString([]byte("ci:secret")); g.auth != want {
		t.Errorf("authorization %q, want %q", g.auth, want)
	}
	if err := p.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.group("/metrics/job/release/instance/42"); got != nil {
		t.Errorf("left behind: %v", got)
	}
}

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name    string
		job     error
		success float64
	}{{"success", nil, 1}, {"failure", boom, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGateway(t)
			r, c := registry(t)
			p := pusher(t, Config{URL: g.URL, Job: "release", Gatherer: r, Interval: time.Millisecond, Linger: time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := float64(time.Now().Unix())
			done := make(chan error)
			finish := make(chan struct{})
			go func() {
				done <- p.run(ctx, func(context.Context) error {
					c.Add(5)
					<-finish
					c.Add(2)
					return tc.job
				})
			}()
			// While it runs, the job's state is there but no outcome.
			eventually(t, func() bool { return g.group("/metrics/job/release")["checks_total"] == 5 })
			if _, ok := g.group("/metrics/job/release")["batch_job_success"]; ok {
				t.Error("outcome before the end")
			}
			if start := g.group("/metrics/job/release")["batch_job_start_timestamp_seconds"]; start < before {
				t.Errorf("start %v, want at least %v", start, before)
			}
			close(finish)
			// The outcome stays to be scraped,
			eventually(t, func() bool { _, ok := g.group("/metrics/job/release")["batch_job_success"]; return ok })
			got := g.group("/metrics/job/release")
			if got["batch_job_success"] != tc.success || got["checks_total"] != 7 || got["batch_job_completion_timestamp_seconds"] < before {
				t.Errorf("outcome %v, want success %v and 7 checks", got, tc.success)
			}
			// and goes at the end, which the cancelled context brings forward.
			cancel()
			if err := <-done; !errors.Is(err, tc.job) || (tc.job == nil && err != nil) {
				t.Errorf("got %v, want %v", err, tc.job)
			}
			if got := g.group("/metrics/job/release"); got != nil {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func TestRunDeletesAfterPanic(t *testing.T) {
	g := newGateway(t)
	r, _ := registry(t)
	p := pusher(t, Config{URL: g.URL, Job: "release", Gatherer: r})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("panic swallowed")
			}
		}()
		_ = p.run(t.Context(), func(context.Context) error {
			eventually(t, func() bool { return g.group("/metrics/job/release") != nil })
			panic("boom")
		})
	}()
	if got := g.group("/metrics/job/release"); got != nil {
		t.Errorf("left behind: %v", got)
	}
}

// Spaces and plus signs of the group arrive as they are.
func TestGroupSpelling(t *testing.T) {
	g := newGateway(t)
	r, _ := registry(t)
	p := pusher(t, Config{URL: g.URL + "/a+b", Job: "a b+c", Grouping: map[string]string{"x": "1 2+3"}, Gatherer: r})
	if err := p.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g.group("/a+b/metrics/job/a b+c/x/1 2+3") == nil {
		t.Errorf("groups %v", g.groups)
	}
	if err := p.Delete(t.Context()); err != nil || len(g.groups) != 0 {
		t.Errorf("left %v, %v", g.groups, err)
	}
}

// A gateway that is down neither stops the job nor hides its result.
func TestRunWithoutGateway(t *testing.T) {
	g := newGateway(t)
	g.Close()
	r, _ := registry(t)
	boom := errors.New("boom")
	p := pusher(t, Config{URL: g.URL, Job: "release", Gatherer: r, Timeout: 50 * time.Millisecond, Interval: -1})
	ran := false
	err := p.run(t.Context(), func(context.Context) error { ran = true; return boom })
	var pushErr *Error
	if !ran || !errors.Is(err, boom) || !errors.As(err, &pushErr) {
		t.Fatalf("ran %v, got %v", ran, err)
	}
	for _, want := range []string{"push metrics", "delete metrics", `{job="release"}`, g.URL} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from %q", want, err)
		}
	}
}

func TestRetries(t *testing.T) {
	for _, tc := range []struct {
		name     string
		status   int
		failures int
		requests int
		wantErr  string
	}{
		{"passing failure", 503, 2, 3, ""},
		{"too many requests", 429, 1, 2, ""},
		{"refusal", 400, 9, 1, "status code 400"},
		{"no such path", 404, 9, 1, "status code 404"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGateway(t)
			g.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
				if len(g.log) > tc.failures {
					return false
				}
				http.Error(w, strings.Repeat("because ", 10_000), tc.status)
				return true
			}
			r, _ := registry(t)
			err := pusher(t, Config{URL: g.URL, Job: "release", Gatherer: r}).Push(t.Context())
			if (err == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
			if err != nil && len(err.Error()) > 5<<10 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			if len(g.log) != tc.requests {
				t.Errorf("%d requests, want %d", len(g.log), tc.requests)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	r, _ := registry(t)
	p := pusher(t, Config{URL: s.URL, Job: "release", Gatherer: r, Timeout: 50 * time.Millisecond})
	for op, do := range map[string]func(context.Context) error{"push": p.Push, "delete": p.Delete} {
		err := do(t.Context())
		var e *Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Op != op {
			t.Errorf("%s: got %v", op, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	r, _ := registry(t)
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{Job: "j", Gatherer: r}, "url"},
		{Config{URL: "gateway:9091", Job: "j", Gatherer: r}, "not an http or https URL"},
		{Config{URL: "http://u:secret@[", Job: "j", Gatherer: r}, "url is not a URL"},
		{Config{URL: "ftp://u:secret@gateway", Job: "j", Gatherer: r}, "not an http or https URL"},
		{Config{URL: "http://g", Gatherer: r}, "job is empty"},
		{Config{URL: "http://g", Job: "j"}, "gatherer"},
		{Config{URL: "http://g", Job: "j", Gatherer: r, Timeout: -1}, "timeout"},
		{Config{URL: "http://g", Job: "j", Gatherer: r, Grouping: map[string]string{"job": "x"}}, `grouping label "job"`},
		{Config{URL: "http://g", Job: "j", Gatherer: r, Grouping: map[string]string{"a-b": "x"}}, `grouping label "a-b"`},
	} {
		_, err := New(tc.c)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("did not happen in 20 s")
		}
	}
}
