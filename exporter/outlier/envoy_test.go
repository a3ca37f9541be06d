package outlier

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// runTests is goleak.VerifyTestMain with, in the e2e tests, a server around it.
var runTests = func(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMain(m *testing.M) { runTests(m) }

// sinkRecorder keeps what a source gives.
type sinkRecorder struct {
	mu       sync.Mutex
	readings map[string]Reading
	failures map[string]Reason
	errs     map[string]error
}

func readAll(t testing.TB, ctx context.Context, s Source, in *Interest) *sinkRecorder {
	t.Helper()
	r := &sinkRecorder{readings: map[string]Reading{}, failures: map[string]Reason{}, errs: map[string]error{}}
	if err := s.Read(ctx, in, r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *sinkRecorder) Observe(r Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readings[r.Proxy] = r
}

func (s *sinkRecorder) Fail(proxy string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(proxy, "callers/")
	s.failures[name], s.errs[name] = reasonOf(err), err
}

func TestEnvoySourceAnswers(t *testing.T) {
	for _, kind := range []struct {
		kind Kind
		good string
		ct   string
	}{
		{KindEnvoyStats, istioStats, "text/plain; charset=UTF-8"},
		{KindEnvoyAdmin, clustersAnswer, "application/json"},
	} {
		t.Run(string(kind.kind), func(t *testing.T) {
			m := newMesh(t)
			m.proxy("good", body(kind.ct, kind.good))
			m.proxy("error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, kind.good, 500) })
			m.proxy("forbidden", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) })
			m.proxy("redirect", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			})
			m.proxy("html", body("text/html; charset=utf-8", "<html>Welcome</html>"))
			m.proxy("html-as-text", body("text/plain", "<!DOCTYPE html><html>Welcome</html>\n"))
			m.proxy("half", cutOffBody(kind.good))
			m.proxy("half-chunked", func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, kind.good[:len(kind.good)/2])
				w.(http.Flusher).Flush()
				refuse(w, r)
			})
			m.proxy("half-without-length", func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\n"+kind.good[:len(kind.good)/2])
			})
			m.proxy("hang", hang)
			m.proxy("hang-in-body", hangInBody(kind.good))
			m.proxy("abort", refuse)
			m.proxy("empty", body(kind.ct, ""))
			m.proxy("too-large", func(w http.ResponseWriter, _ *http.Request) {
				for range 3 << 10 {
					if _, err := w.Write(spaces[:1<<10]); err != nil {
						return
					}
				}
			})
			source := m.source(t, kind.kind, Options{ProxyTimeout: 5 * time.Second, MaxBodyBytes: 2 << 20})
			got := readAll(t, t.Context(), source, interestOf(t, canarySubset))
			want := map[string]Reason{
				"error": ReasonStatus, "forbidden": ReasonStatus, "redirect": ReasonStatus,
				"html": ReasonMalformed, "html-as-text": ReasonMalformed,
				"half": ReasonUnreachable, "half-chunked": ReasonUnreachable, "half-without-length": ReasonMalformed,
				"hang": ReasonTimeout, "hang-in-body": ReasonTimeout, "abort": ReasonUnreachable,
				"empty": ReasonNoStats, "too-large": ReasonTooLarge,
			}
			if kind.kind == KindEnvoyAdmin {
				want["empty"] = ReasonMalformed
			}
			for name, reason := range want {
				if got.failures[name] != reason {
					t.Errorf("%s: reason %q (%v), want %q", name, got.failures[name], got.errs[name], reason)
				}
			}
			if len(got.readings) != 1 || len(got.failures) != len(want) {
				t.Errorf("%d readings and %d failures, want 1 and %d", len(got.readings), len(got.failures), len(want))
			}
			if c := got.readings["good"].Clusters; len(c) != 1 || c[0].Name != v2 {
				t.Errorf("good: %+v", c)
			}
		})
	}
}

var spaces = []byte(strings.Repeat(" \n", 512))

// A body of 100 MB is read as it arrives: the heap does not grow by it.
func TestLargeBodiesAreNotHeld(t *testing.T) {
	const size = 100 << 20
	filler := strings.Repeat("envoy_cluster_outlier_detection_ejections_active{cluster_name=\"outbound|80||other.shop.svc.cluster.local\"} 0\n", 1000)
	list := endpointList(20, 10)
	list = list[len(`{"cluster_statuses":[`) : len(list)-2]
	for _, tc := range []struct {
		kind              Kind
		head, chunk, tail string
	}{
		{KindEnvoyStats, "", filler, istioStats},
		{KindEnvoyAdmin, `{"cluster_statuses":[`, list + ",", clustersAnswer[strings.Index(clustersAnswer, "[")+1:]},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			m := newMesh(t)
			var sent atomic.Int64
			m.proxy("large", func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, tc.head)
				for n := 0; n < size; n += len(tc.chunk) {
					io.WriteString(w, tc.chunk)
				}
				io.WriteString(w, tc.tail)
				sent.Store(size)
			})
			source := m.source(t, tc.kind, Options{ProxyTimeout: 5 * time.Minute})
			runtime.GC()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			peak := watchHeap(t)
			got := readAll(t, t.Context(), source, interestOf(t, canarySubset))
			if c := got.readings["large"].Clusters; len(c) != 1 || c[0].Name != v2 {
				t.Fatalf("got %+v, %v", c, got.errs)
			}
			if sent.Load() < size {
				t.Fatalf("only %d bytes sent", sent.Load())
			}
			if grown := int64(peak()) - int64(before.HeapAlloc); grown > 32<<20 {
				t.Errorf("heap grew by %d MiB", grown>>20)
			}
		})
	}
}

// watchHeap samples the heap until the returned function gives the peak.
func watchHeap(t *testing.T) (peak func() uint64) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			most = max(most, s.HeapAlloc)
			select {
			case <-stop:
				done <- most
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { close(stop); return <-done }
}

// A sweep ends when its time is up, whatever the proxies do, and those that
// hung last time are asked last, so that the others are read all the same.
func TestHangingProxiesDoNotStarveTheOthers(t *testing.T) {
	m := newMesh(t)
	for i := range 40 {
		m.proxy(fmt.Sprintf("hang-%d", i), hang)
	}
	for i := range 40 {
		m.proxy(fmt.Sprintf("good-%d", i), statsBody(istioStats))
	}
	source := m.source(t, KindEnvoyStats, Options{Concurrency: 4, ProxyTimeout: time.Minute})
	in := interestOf(t, canarySubset)
	sweep := func(limit time.Duration) *sinkRecorder {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return readAll(t, ctx, source, in)
	}
	// All four readers are stuck with the first four proxies.
	first := sweep(time.Second)
	if len(first.readings)+len(first.failures) != 80 {
		t.Fatalf("first sweep: %d read, %d failed, want 80 in all", len(first.readings), len(first.failures))
	}
	// Everything failed, so the order is the same; only hanging proxies that
	// are known to hang may be last.
	for i := range 40 {
		m.proxy(fmt.Sprintf("hang-%d", i), statsBody(istioStats))
	}
	if second := sweep(time.Minute); len(second.readings) != 80 {
		t.Fatalf("second sweep: %d read, want 80", len(second.readings))
	}
	for i := range 40 {
		m.proxy(fmt.Sprintf("hang-%d", i), hang)
	}
	source.(*envoySource).failed = map[string]bool{}
	for i := range 40 {
		source.(*envoySource).failed[fmt.Sprintf("hang-%d", i)] = true
	}
	third := sweep(5 * time.Second)
	if len(third.readings) != 40 || len(third.failures) != 40 {
		t.Fatalf("third sweep: %d read, %d failed, want 40 and 40", len(third.readings), len(third.failures))
	}
	for name, reason := range third.failures {
		if reason != ReasonTimeout || !strings.HasPrefix(name, "hang-") {
			t.Errorf("%s: %s", name, reason)
		}
	}
}

func TestLastFailedLast(t *testing.T) {
	got := lastFailedLast([]Proxy{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}}, map[string]bool{"a": true, "c": true, "gone": true})
	var order string
	for _, p := range got {
		order += p.ID
	}
	if order != "bdac" {
		t.Errorf("order %s, want bdac", order)
	}
}

func TestEnvoySourceWithoutProxies(t *testing.T) {
	broken := ProxyListerFunc(func(context.Context) ([]Proxy, error) { return nil, fmt.Errorf("cache not synced") })
	empty := ProxyListerFunc(func(context.Context) ([]Proxy, error) { return nil, nil })
	for _, lister := range []ProxyLister{broken, empty} {
		source, err := NewSource(KindEnvoyStats, Options{Proxies: lister})
		if err != nil {
			t.Fatal(err)
		}
		err = source.Read(t.Context(), interestOf(t, canarySubset), &sinkRecorder{})
		if err == nil || reasonOf(err) != ReasonList {
			t.Errorf("got %v, want reason list", err)
		}
	}
}

func TestNewSource(t *testing.T) {
	lister := ProxyListerFunc(func(context.Context) ([]Proxy, error) { return nil, nil })
	for _, tc := range []struct {
		kind Kind
		o    Options
		want string
	}{
		{KindNone, Options{}, ""},
		{KindEnvoyStats, Options{Proxies: lister}, ""},
		{KindEnvoyAdmin, Options{Proxies: lister}, ""},
		{KindPrometheus, Options{PrometheusURL: "http://prometheus.monitoring:9090"}, ""},
		{KindEnvoyStats, Options{}, "outlier source envoy-stats: no proxy lister"},
		{KindEnvoyStats, Options{Proxies: lister, Port: 70000}, "port 70000"},
		{KindEnvoyStats, Options{Proxies: lister, Path: "stats"}, `path "stats"`},
		{KindEnvoyStats, Options{Proxies: lister, Concurrency: -1}, "concurrency -1"},
		{KindEnvoyStats, Options{Proxies: lister, ProxyTimeout: -1}, "proxy timeout"},
		{KindEnvoyStats, Options{Proxies: lister, MaxBodyBytes: -1}, "body limit"},
		{KindPrometheus, Options{}, "not an http or https URL"},
		{KindPrometheus, Options{PrometheusURL: "prometheus:9090"}, "not an http or https URL"},
		{KindPrometheus, Options{PrometheusURL: "http://p", ProxyLabels: []string{"a b"}}, `proxy label "a b"`},
		{KindPrometheus, Options{PrometheusURL: "http://p", Matchers: map[string]string{"-": ""}}, `matcher "-"`},
		{KindPrometheus, Options{PrometheusURL: "http://p", Window: time.Millisecond}, "window 1ms"},
		{"envoy", Options{}, "want one of none, envoy-stats, envoy-admin or prometheus"},
	} {
		_, err := NewSource(tc.kind, tc.o)
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s %+v: got %v, want %q", tc.kind, tc.o, err, tc.want)
		}
	}
	if k, err := ParseKind(""); k != KindNone || err != nil {
		t.Errorf("empty kind: %q, %v", k, err)
	}
	if _, err := ParseKind("istio"); err == nil {
		t.Error("unknown kind accepted")
	}
}

// BenchmarkSweep reads 2,000 proxies, one in ten of which hangs, and accounts
// for what they say; the proxies' own work is in the time as well. The claim is
// that a sweep takes less than 10 s.
func BenchmarkSweep(b *testing.B) {
	for _, kind := range []struct {
		kind   Kind
		answer string
	}{
		{KindEnvoyStats, sidecarStats(200)},
		{KindEnvoyAdmin, endpointList(20, 10)},
	} {
		b.Run(string(kind.kind), func(b *testing.B) {
			m := newMesh(b)
			for i := range 2000 {
				if i%10 == 9 {
					m.proxy(fmt.Sprint(i), hang)
				} else {
					m.proxy(fmt.Sprint(i), statsBody(kind.answer))
				}
			}
			source := m.source(b, kind.kind, Options{})
			l := newLedger()
			target := Target{Namespace: "shop", Canary: "web", Role: RoleCanary, Service: "svc-3"}
			for n := 0; b.Loop(); n++ {
				s, err := l.begin(at(n), []Target{target})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				got := readAll(b, ctx, source, s.interest)
				cancel()
				for _, r := range got.readings {
					s.observe(r)
				}
				if res := s.finish()[0]; res.Observed != 1800 {
					b.Fatalf("%d of 1800 proxies observed, failures %v", res.Observed, len(got.failures))
				}
			}
		})
	}
}

// sidecarStats is what a sidecar with so many clusters answers to statsFilter.
func sidecarStats(clusters int) string {
	var b strings.Builder
	names := []string{nameActive, nameConnection}
	for tail := range counterOf {
		names = append(names, nameEnforced+tail)
	}
	for _, name := range names {
		for c := range clusters {
			fmt.Fprintf(&b, "%s{cluster_name=%q} 1\n", name, clusterNumber(c))
		}
	}
	return b.String()
}
