package outlier

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is a real server whose answer can be changed.
type backend struct {
	*httptest.Server
	address string
	status  atomic.Int32
	served  atomic.Int64
	conns   atomic.Int64 // accepted ever
	open    atomic.Int64
	// gate, when set, holds every request until it is closed.
	gate atomic.Pointer[chan struct{}]
}

func newBackend(t testing.TB) *backend {
	t.Helper()
	b := &backend{}
	b.Server = httptest.NewUnstartedServer(b)
	b.Config.ConnState = b.connState
	b.Start()
	b.address = b.Listener.Addr().String()
	t.Cleanup(b.Close)
	return b
}

func newBackends(t testing.TB, n int) ([]*backend, Resolver) {
	t.Helper()
	all := make([]*backend, n)
	addresses := make([]string, n)
	for i := range all {
		all[i] = newBackend(t)
		addresses[i] = all[i].address
	}
	return all, Static(addresses...)
}

func (b *backend) connState(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		b.conns.Add(1)
		b.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		b.open.Add(-1)
	}
}

// hold makes requests wait and returns what lets them go.
func (b *backend) hold(t testing.TB) (release func()) {
	gate := make(chan struct{})
	b.gate.Store(&gate)
	var once sync.Once
	release = func() {
		once.Do(func() {
			b.gate.Store(nil)
			close(gate)
		})
	}
	t.Cleanup(release)
	return release
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.served.Add(1)
	if gate := b.gate.Load(); gate != nil {
		<-*gate
	}
	status := int(b.status.Load())
	switch status {
	case 0:
		status = http.StatusOK
	case -1: // reset instead of an answer
		panic(http.ErrAbortHandler)
	case -2: // break off in the middle of the body
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "not all")
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%s %s", b.address, r.Host)
}

// manualClock moves only when a test says so.
type manualClock struct {
	mu     sync.Mutex
	t      time.Time
	timers []*manualTimer
}

type manualTimer struct {
	at time.Time
	c  chan time.Time
}

func newManualClock() *manualClock { return &manualClock{t: epoch} }

func (m *manualClock) clock() clock {
	return clock{now: m.now, after: m.after}
}

func (m *manualClock) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.t
}

func (m *manualClock) after(d time.Duration) (<-chan time.Time, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	timer := &manualTimer{at: m.t.Add(d), c: make(chan time.Time, 1)}
	m.timers = append(m.timers, timer)
	return timer.c, func() {}
}

// advance moves the clock and fires what is due. It first waits for n timers to
// be set, so that no loop misses the move.
func (m *manualClock) advance(t testing.TB, n int, d time.Duration) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d timers", n), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.timers) >= n
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t = m.t.Add(d)
	var left []*manualTimer
	for _, timer := range m.timers {
		if timer.at.After(m.t) {
			left = append(left, timer)
			continue
		}
		timer.c <- m.t
	}
	m.timers = left
}

func withClock(c clock) Option {
	return func(cfg *config) error {
		cfg.clock = c
		return nil
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func newTestTransport(t testing.TB, r Resolver, opts ...Option) *Transport {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	tr, err := New("reviews", r, append([]Option{WithLogger(quiet)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// get makes a request to the service and gives the status and the body.
func get(t testing.TB, rt http.RoundTripper) (int, string, error) {
	t.Helper()
	return do(rt, newRequest(t, t.Context(), http.MethodGet, nil))
}

func newRequest(t testing.TB, ctx context.Context, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://reviews:9080/", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func do(rt http.RoundTripper, req *http.Request) (int, string, error) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func ejectedAddresses(tr *Transport) map[string]bool {
	out := map[string]bool{}
	for _, e := range tr.Endpoints() {
		if e.Ejected {
			out[e.Address] = true
		}
	}
	return out
}
