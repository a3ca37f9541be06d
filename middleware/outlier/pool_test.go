package outlier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func withPool(c ConnectionPool) Option { return WithPolicy(TrafficPolicy{ConnectionPool: c}) }

// inBackground starts n requests and gives their errors.
func inBackground(t *testing.T, rt http.RoundTripper, n int) <-chan error {
	t.Helper()
	results := make(chan error, n)
	for range n {
		go func() {
			_, _, err := get(t, rt)
			results <- err
		}()
	}
	return results
}

func poolIs(t *testing.T, tr *Transport, conns, active, pending int64) {
	t.Helper()
	p := tr.pool
	eventually(t, fmt.Sprintf("%d connections, %d active, %d pending", conns, active, pending), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.conns.Load() == conns && p.active == active && p.pending == pending
	})
}

func wantOverflow(t *testing.T, err error, reason OverflowReason, limit int64) {
	t.Helper()
	var overflow *OverflowError
	if !errors.As(err, &overflow) || overflow.Reason != reason || overflow.Limit != limit || overflow.Cluster != "reviews" {
		t.Fatalf("got %v, want an overflow of %s at %d", err, reason, limit)
	}
}

// Istio's circuit breaking task: one connection, one pending, further requests
// fail at once and are not held against the endpoint.
func TestMaxConnectionsAndPending(t *testing.T) {
	b := newBackend(t)
	release := b.hold(t)
	tr := newTestTransport(t, Static(b.address), WithPolicy(TrafficPolicy{
		ConnectionPool: ConnectionPool{
			TCP:  TCPSettings{MaxConnections: 1},
			HTTP: HTTPSettings{HTTP1MaxPendingRequests: 1},
		},
		OutlierDetection: &OutlierDetection{Consecutive5xxErrors: u32(1)},
	}))
	first := inBackground(t, tr, 1)
	poolIs(t, tr, 1, 1, 0)
	second := inBackground(t, tr, 1)
	poolIs(t, tr, 1, 1, 1)
	for range 10 {
		_, _, err := get(t, tr)
		wantOverflow(t, err, OverflowPendingRequests, 1)
		if want := "outlier: cluster reviews: overflow: 1 pending_requests already outstanding"; err.Error() != want {
			t.Fatalf("got %q", err)
		}
	}
	release()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Fatal(err)
	}
	poolIs(t, tr, 1, 0, 0)
	if b.served.Load() != 2 || b.conns.Load() != 1 || len(ejectedAddresses(tr)) != 0 {
		t.Fatalf("served %d on %d connections, ejected %v", b.served.Load(), b.conns.Load(), ejectedAddresses(tr))
	}
}

// The limit holds for all requests together, at any time.
func TestMaxConnectionsHolds(t *testing.T) {
	b := newBackend(t)
	var open, most atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		now := open.Add(1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			open.Add(-1)
			return nil, err
		}
		return &openConn{Conn: c, open: &open}, nil
	}}
	tr := newTestTransport(t, Static(b.address), WithBaseTransport(base), withPool(ConnectionPool{
		TCP: TCPSettings{MaxConnections: 3}, HTTP: HTTPSettings{MaxRequestsPerConnection: 5}}))
	results := inBackground(t, tr, 200)
	for range 200 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	if b.served.Load() != 200 {
		t.Fatalf("served %d", b.served.Load())
	}
	if got := most.Load(); got != 3 {
		t.Fatalf("%d connections open at a time, want 3", got)
	}
	if got := b.conns.Load(); got < 40 {
		t.Fatalf("%d connections for 200 requests at 5 each, want at least 40", got)
	}
}

// openConn counts itself as open until it is closed.
type openConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *openConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.open.Add(-1) })
	return err
}

// As in Envoy an endpoint without a connection gets one beyond the limit.
func TestEveryEndpointGetsAConnection(t *testing.T) {
	backends, r := newBackends(t, 3)
	tr := newTestTransport(t, r, withPool(ConnectionPool{TCP: TCPSettings{MaxConnections: 1}}))
	for range 9 {
		if _, _, err := get(t, tr); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range backends {
		if b.conns.Load() != 1 || b.served.Load() != 3 {
			t.Fatalf("%d connections, %d served", b.conns.Load(), b.served.Load())
		}
	}
	poolIs(t, tr, 3, 0, 0)
}

func TestMaxRequests(t *testing.T) {
	b := newBackend(t)
	release := b.hold(t)
	tr := newTestTransport(t, Static(b.address), withPool(ConnectionPool{HTTP: HTTPSettings{HTTP2MaxRequests: 2}}))
	results := inBackground(t, tr, 2)
	poolIs(t, tr, 2, 2, 0)
	_, _, err := get(t, tr)
	wantOverflow(t, err, OverflowRequests, 2)
	release()
	if err := errors.Join(<-results, <-results); err != nil {
		t.Fatal(err)
	}
	// A response whose body is not read to its end still counts.
	var open []*http.Response
	for range 2 {
		resp, err := tr.RoundTrip(newRequest(t, t.Context(), http.MethodGet, nil))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
	}
	_, _, err = get(t, tr)
	wantOverflow(t, err, OverflowRequests, 2)
	for _, resp := range open {
		resp.Body.Close()
	}
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
}

func TestMaxRequestsPerConnection(t *testing.T) {
	for limit, want := range map[int32]int64{1: 12, 5: 3, 12: 1, 0: 1} {
		b := newBackend(t)
		tr := newTestTransport(t, Static(b.address), withPool(ConnectionPool{HTTP: HTTPSettings{MaxRequestsPerConnection: limit}}))
		for range 12 {
			if _, _, err := get(t, tr); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.conns.Load(); got != want {
			t.Errorf("limit %d: 12 requests on %d connections, want %d", limit, got, want)
		}
	}
}

func TestConnectTimeout(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-stuck:
			return nil, errors.New("not reached")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	tr := newTestTransport(t, Static("10.0.0.1:80", "10.0.0.2:80"), WithBaseTransport(base), WithRetry(RetryPolicy{}),
		WithPolicy(TrafficPolicy{
			ConnectionPool:   ConnectionPool{TCP: TCPSettings{ConnectTimeout: 20 * time.Millisecond}},
			OutlierDetection: &OutlierDetection{ConsecutiveGatewayErrors: u32(1), Consecutive5xxErrors: u32(0)},
		}))
	_, _, err := get(t, tr)
	var connect *ConnectError
	if !errors.As(err, &connect) || connect.Endpoint != "10.0.0.1:80" || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if !ejectedAddresses(tr)["10.0.0.1:80"] {
		t.Fatal("the endpoint was not ejected")
	}
	// A caller that gives up before the dial does is not blamed and does not hide
	// the failure: the other endpoint's dial fails on its own, and is an overflow
	// of the default 10 %, since one of two is ejected.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := do(tr, newRequest(t, ctx, http.MethodGet, nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	eventually(t, "the second dial to count", func() bool { return counterValue(t, tr.metrics.overflow[ConsecutiveGatewayFailure]) == 1 })
}

func TestRetryAfterConnectFailure(t *testing.T) {
	good := newBackend(t)
	dead := unusedAddress(t)
	tr := newTestTransport(t, Static(dead, good.address))
	for range 10 {
		req := newRequest(t, t.Context(), http.MethodPost, strings.NewReader("once"))
		req.GetBody = nil // nothing was sent, so the body is still whole
		if status, _, err := do(tr, req); err != nil || status != 200 {
			t.Fatalf("%d %v", status, err)
		}
	}
	if got := counterValue(t, tr.metrics.retries); got != 10 {
		t.Fatalf("%v retries, want 10: a retry takes the good endpoint's turn, so the next starts at the dead one", got)
	}
	off := newTestTransport(t, Static(dead), WithRetry(RetryPolicy{}))
	_, _, err := get(t, off)
	var connect *ConnectError
	if !errors.As(err, &connect) || connect.Endpoint != dead || connect.Cluster != "reviews" {
		t.Fatalf("got %v", err)
	}
}

func TestRetryStatuses(t *testing.T) {
	backends, r := newBackends(t, 2)
	backends[0].status.Store(503)
	tr := newTestTransport(t, r, WithRetry(RetryPolicy{Attempts: 1, Statuses: []int{503}}))
	if status, _, err := get(t, tr); err != nil || status != 200 {
		t.Fatalf("%d %v", status, err)
	}
	// The cursor is at the first again; a POST must not be sent twice.
	if status, _, err := do(tr, newRequest(t, t.Context(), http.MethodPost, strings.NewReader("x"))); err != nil || status != 503 {
		t.Fatalf("%d %v", status, err)
	}
	// When all fail, the last response is given.
	backends[1].status.Store(503)
	if status, body, err := get(t, tr); err != nil || status != 503 || body == "" {
		t.Fatalf("%d %q %v", status, body, err)
	}
	poolIs(t, tr, 2, 0, 0)
}

// maxRetries 1: with one retry outstanding the next is not made. For a failure to
// connect that is an error of its own which still tells the failure.
func TestMaxRetries(t *testing.T) {
	slow := newBackend(t)
	release := slow.hold(t)
	dead := unusedAddress(t)
	tr := newTestTransport(t, Static(dead, slow.address), withPool(ConnectionPool{HTTP: HTTPSettings{MaxRetries: 1}}))
	first := inBackground(t, tr, 1) // dead, then slow
	eventually(t, "the retry", func() bool { return slow.served.Load() == 1 })
	_, _, err := get(t, tr) // dead, then no retry
	wantOverflow(t, err, OverflowRetries, 1)
	var connect *ConnectError
	if !errors.As(err, &connect) || connect.Endpoint != dead {
		t.Fatalf("got %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

// A connection the server closed while idle is replaced, for POST as well when
// nothing was sent on it, and counts against no one.
func TestStaleConnection(t *testing.T) {
	b := newBackend(t)
	tr := newTestTransport(t, Static(b.address), WithRetry(RetryPolicy{}),
		WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{Consecutive5xxErrors: u32(1)}}))
	for range 50 {
		if _, _, err := do(tr, newRequest(t, t.Context(), http.MethodGet, nil)); err != nil {
			t.Fatal(err)
		}
		b.CloseClientConnections()
	}
	if got := ejectedAddresses(tr); len(got) != 0 {
		t.Fatalf("ejected %v", got)
	}
}

func TestIdleTimeout(t *testing.T) {
	b := newBackend(t)
	clk := newManualClock()
	tr := newTestTransport(t, Static(b.address), withClock(clk.clock()), withPool(ConnectionPool{HTTP: HTTPSettings{IdleTimeout: 15 * time.Second}}))
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
	clk.advance(t, 2, 10*time.Second)
	clk.advance(t, 2, 0) // the sweep at 10 s is over once its next timer is set
	poolIs(t, tr, 1, 0, 0)
	clk.advance(t, 2, 10*time.Second)
	poolIs(t, tr, 0, 0, 0)
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
	tr.CloseIdleConnections()
	poolIs(t, tr, 0, 0, 0)
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A request that chose its endpoint just before the endpoint went away connects to it
// afterwards. Its connection must not outlive it.
func TestLateRequestToAnEndpointThatWent(t *testing.T) {
	b := newBackend(t)
	tr := newTestTransport(t, Static(b.address))
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
	tr.pool.keep(map[string]bool{})
	eventually(t, "the idle connection to close", func() bool { return b.open.Load() == 0 })
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
	if served, conns := b.served.Load(), b.conns.Load(); served != 2 || conns != 2 {
		t.Fatalf("%d requests on %d connections", served, conns)
	}
	eventually(t, "the late connection to close", func() bool { return b.open.Load() == 0 })
	poolIs(t, tr, 0, 0, 0)
}

// A connection whose endpoint goes away while a request claims it closes when the
// request gives up.
func TestUnclaimedConnectionToAnEndpointThatWent(t *testing.T) {
	b := newBackend(t)
	tr := newTestTransport(t, Static(b.address))
	if _, _, err := get(t, tr); err != nil {
		t.Fatal(err)
	}
	p := tr.pool
	p.mu.Lock()
	var c *conn
	for _, g := range p.groups {
		c = p.takeReady(g)
	}
	p.mu.Unlock()
	if c == nil {
		t.Fatal("no connection to claim")
	}
	p.keep(map[string]bool{})
	p.mu.Lock()
	p.unclaim(c)
	p.mu.Unlock()
	eventually(t, "the connection to close", func() bool { return b.open.Load() == 0 })
	poolIs(t, tr, 0, 0, 0)
}
