package outlier

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLive runs ten real servers of which three fail, in three ways, on the real
// clock: they are ejected, the client's error rate falls below 1 %, they are
// healed, return after their time and are used again.
func TestLive(t *testing.T) {
	const base = 1500 * time.Millisecond
	backends, r := newBackends(t, 10)
	policy, err := ParsePolicy([]byte(`
outlierDetection:
  consecutive5xxErrors: 3
  interval: 50ms
  baseEjectionTime: 1500ms
  maxEjectionPercent: 30
`))
	if err != nil {
		t.Fatal(err)
	}
	tr := newTestTransport(t, r, WithPolicy(policy.TrafficPolicy))
	bad := backends[:3]
	bad[0].status.Store(500)
	bad[1].status.Store(503)
	bad[2].status.Store(-1)

	// requests sends n from eight callers and counts the failures.
	requests := func(n int) (failures int64) {
		var failed, next atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for next.Add(1) <= int64(n) {
					if status, _, err := get(t, tr); err != nil || status >= 500 {
						failed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		return failed.Load()
	}
	allEjected := func() bool {
		e := ejectedAddresses(tr)
		return len(e) == 3 && e[bad[0].address] && e[bad[1].address] && e[bad[2].address]
	}
	eventually(t, "three ejections", func() bool {
		requests(20)
		return allEjected()
	})
	// Only batches during which all three stayed in the same ejection count: on a
	// busy machine one may end and the next begin within a batch.
	ejections := func() (at [3]time.Time) {
		for i, e := range tr.Endpoints()[:3] {
			at[i] = e.EjectedAt
		}
		return at
	}
	var sent, failed int64
	eventually(t, "2000 requests while all three are ejected", func() bool {
		all, before := allEjected(), ejections()
		n := requests(50)
		if all && ejections() == before {
			sent += 50
			failed += n
		}
		return sent >= 2000
	})
	if rate := float64(failed) / float64(sent); rate >= 0.01 {
		t.Fatalf("%d of %d failed, want less than 1 %%", failed, sent)
	}
	t.Logf("%d of %d requests failed while three of ten were ejected", failed, sent)

	served := make([]int64, 3)
	for i, b := range bad {
		b.status.Store(0)
		served[i] = b.served.Load()
	}
	var ejected []EndpointStatus
	eventually(t, "an instant at which some are ejected or all are back", func() bool {
		ejected = tr.Endpoints()[:3]
		return true
	})
	eventually(t, "the three to return", func() bool {
		requests(20)
		now := time.Now()
		for i, e := range tr.Endpoints()[:3] {
			if !e.Ejected && ejected[i].Ejected && now.Before(ejected[i].EjectedAt.Add(base)) {
				t.Fatalf("%s returned after %s, before its %s", e.Address, now.Sub(ejected[i].EjectedAt), base)
			}
		}
		return len(ejectedAddresses(tr)) == 0
	})
	if n := requests(100); n != 0 {
		t.Fatalf("%d of 100 failed after all were healed", n)
	}
	for i, b := range bad {
		if got := b.served.Load() - served[i]; got < 10 {
			t.Errorf("%s served %d requests after its return, want its tenth of 100", b.address, got)
		}
	}
}

// rawServer answers at the least cost, so that the client is what is measured.
func rawServer(t testing.TB, status string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	answer := "HTTP/1.1 " + status + "\r\nContent-Length: 2\r\n\r\nok"
	serve := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) > 2 {
				continue
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// TestRate offers 5,000 requests a second for two seconds, in open loop, with
// endpoints that fail, come and go while every limit is in force. Under -race it
// is what shows the locking to be right; the accounting must come out even.
func TestRate(t *testing.T) {
	const rate, seconds = 5000, 2
	var all []string
	for i := range 10 {
		status := "200 OK"
		if i < 2 {
			status = "503 Service Unavailable"
		}
		all = append(all, rawServer(t, status))
	}
	var resolves atomic.Int64
	r := ResolverFunc(func(context.Context) ([]string, error) {
		// The last endpoint leaves and returns.
		return all[:len(all)-int(resolves.Add(1)%2)], nil
	})
	tr := newTestTransport(t, r, WithResolveInterval(20*time.Millisecond), WithPolicy(TrafficPolicy{
		ConnectionPool: ConnectionPool{
			TCP:  TCPSettings{MaxConnections: 64},
			HTTP: HTTPSettings{HTTP1MaxPendingRequests: 2048, HTTP2MaxRequests: 1024, MaxRequestsPerConnection: 500, MaxRetries: 10},
		},
		OutlierDetection: &OutlierDetection{ConsecutiveGatewayErrors: u32(3), Interval: 10 * time.Millisecond,
			BaseEjectionTime: 100 * time.Millisecond, MaxEjectionPercent: 30},
	}))
	var ok, status503, other, overflowed atomic.Int64
	request := func() {
		resp, err := tr.RoundTrip(newRequest(t, t.Context(), http.MethodGet, nil))
		var overflow *OverflowError
		switch {
		case errors.As(err, &overflow):
			overflowed.Add(1)
		case err != nil:
			other.Add(1)
			t.Error(err)
		default:
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == 503 {
				status503.Add(1)
			} else {
				ok.Add(1)
			}
		}
	}
	var wg sync.WaitGroup
	start := time.Now()
	for sent := 0; sent < rate*seconds; {
		due := min(int(time.Since(start).Seconds()*rate), rate*seconds)
		for ; sent < due; sent++ {
			wg.Go(request)
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	elapsed := time.Since(start)
	total := ok.Load() + status503.Load() + other.Load() + overflowed.Load()
	t.Logf("%d requests in %s (%.0f/s): %d ok, %d 503, %d overflowed, %d failed", total, elapsed.Round(time.Millisecond),
		float64(total)/elapsed.Seconds(), ok.Load(), status503.Load(), overflowed.Load(), other.Load())
	if total != rate*seconds || other.Load() != 0 || ok.Load() == 0 {
		t.Fatal("not every request has the outcome it should")
	}
	if got := overflowed.Load(); float64(got) != counterValue(t, tr.metrics.poolOverflow[OverflowRequests])+counterValue(t, tr.metrics.poolOverflow[OverflowPendingRequests]) {
		t.Fatalf("%d overflows seen, the metrics differ", got)
	}
	p := tr.pool
	eventually(t, "no request outstanding", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.active == 0 && p.pending == 0 && p.retrying == 0
	})
	tr.CloseIdleConnections()
	eventually(t, "no connection and no group left", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.conns.Load() == 0 && len(p.groups) == 0
	})
}

// BenchmarkRoundTrip compares the transport, every feature on, with a plain
// http.Transport against one server that costs next to nothing.
func BenchmarkRoundTrip(b *testing.B) {
	run := func(b *testing.B, rt http.RoundTripper, url string) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
				if err != nil {
					b.Error(err)
					return
				}
				if _, _, err := do(rt, req); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	}
	b.Run("outlier", func(b *testing.B) {
		tr, err := New("reviews", Static(rawServer(b, "200 OK"), rawServer(b, "200 OK")), WithLogger(slog.New(slog.DiscardHandler)),
			WithPolicy(TrafficPolicy{OutlierDetection: &OutlierDetection{}, ConnectionPool: ConnectionPool{
				TCP: TCPSettings{MaxConnections: 100}, HTTP: HTTPSettings{HTTP1MaxPendingRequests: 1000, HTTP2MaxRequests: 1000}}}))
		if err != nil {
			b.Fatal(err)
		}
		defer tr.Close()
		run(b, tr, "http://reviews/")
	})
	b.Run("net/http", func(b *testing.B) {
		tr := &http.Transport{MaxIdleConnsPerHost: 100}
		defer tr.CloseIdleConnections()
		run(b, tr, "http://"+rawServer(b, "200 OK")+"/")
	})
}
