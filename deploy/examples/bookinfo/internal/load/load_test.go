package load

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestRunCountsAnswersAndUsesEveryURL(t *testing.T) {
	var a, b atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/a", func(http.ResponseWriter, *http.Request) { a.Add(1) })
	mux.HandleFunc("/b", func(w http.ResponseWriter, _ *http.Request) { b.Add(1); w.WriteHeader(503) })
	server := httptest.NewServer(mux)
	defer server.Close()
	got, err := Run(t.Context(), client(t), Config{URLs: []string{server.URL + "/a", server.URL + "/b", "http://127.0.0.1:1/"}, Rate: 5000, Requests: 30, Concurrency: 30, Timeout: 5 * time.Second}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if a.Load() != 10 || b.Load() != 10 {
		t.Errorf("asked a %d and b %d times, want 10 each", a.Load(), b.Load())
	}
	if got.Sent != 30 || got.Status["2xx"] != 10 || got.Status["5xx"] != 10 || got.Failed != 10 || got.Skipped != 0 {
		t.Errorf("result %+v", got)
	}
}

func TestRunIsBounded(t *testing.T) {
	var under, most atomic.Int64
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		under.Add(-1)
	}))
	defer server.Close()
	done := make(chan Result)
	go func() {
		r, err := Run(context.Background(), client(t), Config{URLs: []string{server.URL}, Rate: 10000, Requests: 50, Concurrency: 4, Timeout: 10 * time.Second}, quiet)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	for deadline := time.Now().Add(5 * time.Second); under.Load() < 4 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	r := <-done
	if most.Load() > 4 {
		t.Errorf("%d requests at once, limit 4", most.Load())
	}
	if r.Sent+r.Skipped != 50 || r.Sent < 4 {
		t.Errorf("result %+v: every request is either sent or skipped", r)
	}
}

func TestRunEndsWithItsContextAndDuration(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	base := Config{URLs: []string{server.URL}, Rate: 100, Concurrency: 2, Timeout: time.Second}
	timed := base
	timed.Duration = 30 * time.Millisecond
	if _, err := Run(t.Context(), client(t), timed, quiet); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Run(ctx, client(t), base, quiet); err != nil || r.Sent > 1 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestValidate(t *testing.T) {
	good := Config{URLs: []string{"http://x"}, Rate: 1, Concurrency: 1, Timeout: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.URLs = nil }, "no URL"},
		{func(c *Config) { c.URLs = []string{"http://a b"} }, "URL"},
		{func(c *Config) { c.Rate = 0 }, "rate 0: must be over 0"},
		{func(c *Config) { c.Rate = 10001 }, "at most 10000"},
		{func(c *Config) { c.Concurrency = 0 }, "concurrency 0: must be 1 to 1000"},
		{func(c *Config) { c.Timeout = 0 }, "timeout 0s"},
		{func(c *Config) { c.Duration = -1 }, "must not be negative"},
	} {
		c := good
		tc.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want %q", c, err, tc.want)
		}
	}
}
