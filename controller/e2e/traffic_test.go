//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// traffic is what the middleware of services would count, of pods that exist in name only,
// so that a test decides how many requests there are and how many of them fail.
type traffic struct {
	mu    sync.Mutex
	flows map[string]flow
	// open lets openSeries appear.
	open atomic.Bool
}

// openSeries is a series that is there once a test says so.
const openSeries = "e2e_gate_open"

type flow struct {
	since, until time.Time
	rate, bad    float64
}

// set lets the pods of a Deployment serve rate requests a second, of which the share bad
// fails. A rate of 0 leaves its counters where they are.
func (t *traffic) set(namespace, deployment string, rate, bad float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := fmt.Sprintf(`namespace=%q,pod="%s-6b7c8d9f4-x2v4b"`, namespace, deployment)
	if was, ok := t.flows[key]; ok && rate == 0 {
		was.until = time.Now()
		t.flows[key] = was
		return
	}
	t.flows[key] = flow{since: time.Now(), rate: rate, bad: bad}
}

func (t *traffic) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const name = "http_server_request_duration_seconds_count"
	fmt.Fprintf(w, "# TYPE %s counter\n", name)
	if t.open.Load() {
		fmt.Fprintf(w, "%s 0.25\n", openSeries)
	}
	now := time.Now()
	for labels, f := range t.flows {
		until := now
		if !f.until.IsZero() {
			until = f.until
		}
		requests := f.rate * until.Sub(f.since).Seconds()
		bad := float64(int64(requests * f.bad))
		fmt.Fprintf(w, "%s{%s,http_response_status_code=\"200\"} %.0f\n", name, labels, requests-bad)
		if bad > 0 {
			fmt.Fprintf(w, "%s{%s,http_response_status_code=\"503\"} %.0f\n", name, labels, bad)
		}
	}
}

// gates is a Prometheus that scrapes the traffic of all tests of gates.
var gates struct {
	once    sync.Once
	traffic *traffic
	server  *servers.PrometheusServer
	err     error
}

// withTraffic starts the Prometheus once, for as long as the process of the tests.
func withTraffic(t *testing.T) (*traffic, string) {
	t.Helper()
	gates.once.Do(func() {
		gates.traffic = &traffic{flows: map[string]flow{}}
		target := httptest.NewServer(gates.traffic)
		gates.server, gates.err = servers.StartPrometheus(env.ctx, servers.PrometheusOptions{
			Options: servers.Options{Progress: os.Stderr},
			Config: fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: services\n  honor_labels: true\n  static_configs: [{targets: [%q]}]\n",
				strings.TrimPrefix(target.URL, "http://")),
		})
		if gates.err != nil {
			return
		}
		env.atEnd = append(env.atEnd, func() error { defer target.Close(); return gates.server.Stop() })
	})
	if gates.err != nil {
		t.Fatal(gates.err)
	}
	return gates.traffic, gates.server.URL
}

// switchable is a way to Prometheus that can be cut, and that may ask for a token.
type switchable struct {
	*httptest.Server
	cut   atomic.Bool
	token string
}

func newSwitchable(t *testing.T, target string) *switchable {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	s, proxy := &switchable{}, httputil.NewSingleHostReverseProxy(u)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
			http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// gatedCanary releases new in place of old in two batches, by the error rate alone.
func gatedCanary(prometheus string) *v1alpha1.Canary {
	c := canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4))
	c.Spec.Info.PauseType = v1alpha1.PauseNone
	c.Spec.Gate = &v1alpha1.Gate{
		Prometheus:   &v1alpha1.PrometheusSource{Address: prometheus},
		Interval:     &metav1.Duration{Duration: time.Second},
		HoldDeadline: &metav1.Duration{Duration: 10 * time.Minute},
		Checks: []v1alpha1.GateCheck{{Name: "error-rate", Proportion: &v1alpha1.ProportionCheck{
			Preset: v1alpha1.PresetHTTPServer, Max: "1%",
		}}},
	}
	return c
}
