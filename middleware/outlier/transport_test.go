package outlier

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRoundRobin(t *testing.T) {
	backends, r := newBackends(t, 3)
	tr := newTestTransport(t, r)
	for range 30 {
		status, body, err := get(t, tr)
		if err != nil || status != 200 || !strings.HasSuffix(body, " reviews:9080") {
			t.Fatalf("%d %q %v", status, body, err)
		}
	}
	for _, b := range backends {
		if got := b.served.Load(); got != 10 {
			t.Errorf("%s served %d of 30, want 10", b.address, got)
		}
		if got := b.conns.Load(); got != 1 {
			t.Errorf("%s got %d connections for requests one after another, want 1", b.address, got)
		}
	}
}

// A failing endpoint is ejected at the fifth error, skipped while it is ejected
// and used again after 30 s of the injected clock.
func TestEjectionAndReturn(t *testing.T) {
	backends, r := newBackends(t, 4)
	clk := newManualClock()
	tr := newTestTransport(t, r, WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{}}), withClock(clk.clock()))
	bad := backends[2]
	bad.status.Store(500)
	errorsSeen := 0
	for range 200 {
		status, _, err := get(t, tr)
		if err != nil {
			t.Fatal(err)
		}
		if status == 500 {
			errorsSeen++
		}
	}
	if errorsSeen != 5 || bad.served.Load() != 5 {
		t.Fatalf("%d errors, %d requests to the failing endpoint; want 5 and 5", errorsSeen, bad.served.Load())
	}
	bad.status.Store(0)
	e := tr.Endpoints()[2]
	if !e.Ejected || !e.EjectedAt.Equal(epoch) || !e.ReturnsAfter.Equal(epoch.Add(30*time.Second)) || e.Ejections != 1 {
		t.Fatalf("status %+v", e)
	}
	clk.advance(t, 2, 10*time.Second)
	clk.advance(t, 2, 10*time.Second)
	if !ejectedAddresses(tr)[bad.address] {
		t.Fatal("returned before its time")
	}
	clk.advance(t, 2, 10*time.Second)
	eventually(t, "the return", func() bool { return !ejectedAddresses(tr)[bad.address] })
	for range 40 {
		if status, _, err := get(t, tr); err != nil || status != 200 {
			t.Fatalf("%d %v", status, err)
		}
	}
	if got := bad.served.Load(); got != 15 {
		t.Fatalf("served %d, want 5 + 10", got)
	}
}

// Every way not to answer counts: refused, reset, broken off and timed out.
func TestLocalOriginFailures(t *testing.T) {
	refused := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}()
	for name, status := range map[string]int32{"reset": -1, "broken off": -2, "refused": 0, "timed out": -3} {
		t.Run(name, func(t *testing.T) {
			good, bad := newBackend(t), newBackend(t)
			address := bad.address
			timeout := 10 * time.Second
			switch name {
			case "refused":
				address = refused
			case "timed out":
				bad.hold(t)
				timeout = 50 * time.Millisecond
			default:
				bad.status.Store(status)
			}
			tr := newTestTransport(t, Static(good.address, address), WithRetry(RetryPolicy{}),
				WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{ConsecutiveGatewayErrors: u32(3), Consecutive5xxErrors: u32(0)}}))
			failures := 0
			for i := range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				_, _, err := do(tr, newRequest(t, ctx, http.MethodPost, nil))
				cancel()
				if err != nil {
					failures++
				} else if i == 0 && err != nil {
					t.Fatal(err)
				}
			}
			if failures != 3 || !ejectedAddresses(tr)[address] {
				t.Fatalf("%d failures, ejected %v; want 3 and %s", failures, ejectedAddresses(tr), address)
			}
		})
	}
}

// What the caller does wrong is never an endpoint's fault.
func TestCallerFaultsDoNotEject(t *testing.T) {
	broken := errors.New("disk on fire")
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, request := range map[string]func() *http.Request{
		"canceled": func() *http.Request { return newRequest(t, canceled, http.MethodGet, nil) },
		"bad header": func() *http.Request {
			r := newRequest(t, t.Context(), http.MethodGet, nil)
			r.Header["X-Bad"] = []string{"a\r\nb"}
			return r
		},
		"bad method": func() *http.Request {
			r := newRequest(t, t.Context(), http.MethodGet, nil)
			r.Method = "G ET"
			return r
		},
		"failing body": func() *http.Request {
			return newRequest(t, t.Context(), http.MethodPost, io.MultiReader(strings.NewReader("some"), failingReader{broken}))
		},
		"short body": func() *http.Request {
			r := newRequest(t, t.Context(), http.MethodPost, io.MultiReader(strings.NewReader("some")))
			r.ContentLength = 10
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			tr := newTestTransport(t, Static(b.address),
				WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{Consecutive5xxErrors: u32(1)}}))
			for range 5 {
				if _, _, err := do(tr, request()); err == nil {
					t.Fatal("no error")
				}
			}
			if got := ejectedAddresses(tr); len(got) != 0 {
				t.Fatalf("ejected %v", got)
			}
			if status, _, err := get(t, tr); err != nil || status != 200 {
				t.Fatalf("%d %v", status, err)
			}
		})
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// A caller that leaves while its request is being served does not eject.
func TestCancelInFlightDoesNotEject(t *testing.T) {
	b := newBackend(t)
	release := b.hold(t)
	tr := newTestTransport(t, Static(b.address), WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{Consecutive5xxErrors: u32(1)}}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := do(tr, newRequest(t, ctx, http.MethodGet, nil))
		done <- err
	}()
	eventually(t, "the request", func() bool { return b.served.Load() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	release()
	if status, _, err := get(t, tr); err != nil || status != 200 || len(ejectedAddresses(tr)) != 0 {
		t.Fatalf("%d %v, ejected %v", status, err, ejectedAddresses(tr))
	}
}

func TestNoHealthyEndpoint(t *testing.T) {
	b := newBackend(t)
	b.status.Store(503)
	tr := newTestTransport(t, Static(b.address), WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{Consecutive5xxErrors: u32(1)}}))
	if status, _, err := get(t, tr); err != nil || status != 503 {
		t.Fatalf("%d %v", status, err)
	}
	_, _, err := get(t, tr)
	if !errors.Is(err, ErrNoHealthyEndpoint) || err.Error() != "outlier: cluster reviews: no healthy endpoint: 1 of 1 ejected" {
		t.Fatalf("got %v", err)
	}
}

// With minHealthPercent the same endpoint, the only one, keeps its traffic.
func TestMinHealthPercentKeepsTraffic(t *testing.T) {
	backends, r := newBackends(t, 2)
	for _, b := range backends {
		b.status.Store(503)
	}
	tr := newTestTransport(t, r, WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{
		Consecutive5xxErrors: u32(1), MaxEjectionPercent: 100, MinHealthPercent: 51}}))
	for range 20 {
		if status, _, err := get(t, tr); err != nil || status != 503 {
			t.Fatalf("%d %v", status, err)
		}
	}
	// One is ejected, which leaves 50 % < 51 %: ejection is off, both get traffic.
	if got := len(ejectedAddresses(tr)); got != 1 {
		t.Fatalf("%d ejected", got)
	}
	for _, b := range backends {
		if got := b.served.Load(); got != 10 {
			t.Errorf("served %d, want 10", got)
		}
	}
}

func TestResolverUpdates(t *testing.T) {
	backends, _ := newBackends(t, 2)
	var answer atomic.Pointer[func() ([]string, error)]
	set := func(f func() ([]string, error)) { answer.Store(&f) }
	set(func() ([]string, error) { return nil, errors.New("no such zone") })
	clk := newManualClock()
	tr := newTestTransport(t, ResolverFunc(func(context.Context) ([]string, error) { return (*answer.Load())() }), withClock(clk.clock()))

	_, _, err := get(t, tr)
	if want := "outlier: cluster reviews: no healthy endpoint: resolving endpoints: no such zone"; err == nil || err.Error() != want || !errors.Is(err, ErrNoHealthyEndpoint) {
		t.Fatalf("got %v", err)
	}
	use := func(n int) {
		t.Helper()
		before := backends[n].served.Load()
		eventually(t, "the endpoint to be used", func() bool {
			_, _, err := get(t, tr)
			return err == nil && backends[n].served.Load() > before
		})
	}
	set(func() ([]string, error) { return []string{backends[0].address}, nil })
	clk.advance(t, 2, time.Second) // the first retry after a failure
	use(0)
	set(func() ([]string, error) { return []string{backends[1].address}, nil })
	clk.advance(t, 2, 30*time.Second)
	use(1)
	eventually(t, "the old connection to close", func() bool { return backends[0].open.Load() == 0 })
	// A failure keeps the endpoints, an empty answer removes them.
	set(func() ([]string, error) { return nil, errors.New("timeout") })
	clk.advance(t, 2, 30*time.Second)
	use(1)
	set(func() ([]string, error) { return nil, nil })
	clk.advance(t, 2, 30*time.Second)
	eventually(t, "no endpoint", func() bool {
		_, _, err := get(t, tr)
		return errors.Is(err, ErrNoHealthyEndpoint)
	})
}

func TestDNSReresolved(t *testing.T) {
	s := newDNSServer(t, "reviews.")
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	var hits [2]atomic.Int64
	for i, l := range []net.Listener{first, second} {
		srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits[i].Add(1) })}
		done := make(chan struct{})
		go func() { defer close(done); _ = srv.Serve(l) }()
		t.Cleanup(func() { srv.Close(); <-done })
	}
	s.set([4]byte{127, 0, 0, 1})
	clk := newManualClock()
	tr := newTestTransport(t, DNS("reviews.:"+port, s.resolver()), withClock(clk.clock()))
	if status, _, err := get(t, tr); err != nil || status != 200 || hits[0].Load() != 1 {
		t.Fatalf("%d %v, %d hits", status, err, hits[0].Load())
	}
	s.set([4]byte{127, 0, 0, 2})
	clk.advance(t, 2, 30*time.Second)
	eventually(t, "the new address", func() bool {
		if _, _, err := get(t, tr); err != nil {
			t.Fatal(err)
		}
		return hits[1].Load() > 0
	})
}

func TestWithHosts(t *testing.T) {
	ours, other := newBackend(t), newBackend(t)
	fallback := &http.Transport{}
	defer fallback.CloseIdleConnections()
	tr := newTestTransport(t, Static(ours.address), WithHosts(fallback, "reviews:9080"))
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, other.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := do(tr, req); err != nil {
		t.Fatal(err)
	}
	if ours.served.Load() != 1 || other.served.Load() != 1 {
		t.Fatalf("served %d and %d, want 1 and 1", ours.served.Load(), other.served.Load())
	}
}

func TestClose(t *testing.T) {
	b := newBackend(t)
	b.hold(t)
	tr := newTestTransport(t, Static(b.address), WithPolicy(TrafficPolicy{ConnectionPool: ConnectionPool{TCP: TCPSettings{MaxConnections: 1}}}))
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := get(t, tr)
			results <- err
		}()
	}
	eventually(t, "one served and one waiting", func() bool {
		tr.pool.mu.Lock()
		defer tr.pool.mu.Unlock()
		return tr.pool.active == 1 && tr.pool.pending == 1
	})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	if _, _, err := get(t, tr); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
