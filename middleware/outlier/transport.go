package outlier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Transport is an http.RoundTripper that balances the requests of one cluster
// over its endpoints. The host of a request's URL names the service, for its
// Host header and for TLS; where it is sent is the transport's choice. It is
// safe for concurrent use and must be closed.
type Transport struct {
	cluster  string
	hosts    map[string]bool
	fallback http.RoundTripper
	retry    RetryPolicy
	logger   *slog.Logger
	clock    clock
	rules    rules
	pool     *pool
	metrics  *metrics

	view   atomic.Pointer[view]
	cursor atomic.Uint64

	mu         sync.Mutex
	detector   *detector
	resolveErr error

	resolved  chan struct{} // closed after the first attempt to resolve
	ctx       context.Context
	cancel    context.CancelFunc
	loops     sync.WaitGroup
	closeOnce sync.Once
}

// view is what the balancer chooses from, replaced as a whole.
type view struct {
	available []string
	members   int
	ejected   int
	off       bool
}

// New starts a transport for a cluster, whose name identifies it in metrics,
// logs and errors. It does not wait for the endpoints: the first requests do.
func New(cluster string, endpoints Resolver, opts ...Option) (*Transport, error) {
	if cluster == "" {
		return nil, errors.New("outlier: cluster name is empty")
	}
	fail := func(err error) (*Transport, error) {
		return nil, fmt.Errorf("outlier: cluster %s: %w", cluster, err)
	}
	if endpoints == nil {
		return fail(errors.New("no resolver"))
	}
	if v, ok := endpoints.(interface{ validate() error }); ok {
		if err := v.validate(); err != nil {
			return fail(err)
		}
	}
	c := config{
		resolveInterval: DefaultResolveInterval,
		retry:           RetryPolicy{Attempts: DefaultRetryAttempts},
		logger:          slog.Default(),
		clock:           systemClock(),
	}
	for _, opt := range opts {
		if err := opt(&c); err != nil {
			return fail(err)
		}
	}
	if c.base == nil {
		base, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			base = &http.Transport{ForceAttemptHTTP2: true}
		}
		c.base = base.Clone()
	}
	c.base.Proxy = nil

	t := &Transport{
		cluster:  cluster,
		hosts:    c.hosts,
		fallback: c.fallback,
		retry:    c.retry,
		logger:   c.logger.With("cluster", cluster),
		clock:    c.clock,
		rules:    c.policy.OutlierDetection.rules(),
		resolved: make(chan struct{}),
	}
	t.detector = newDetector(t.rules)
	t.publish()
	t.pool = newPool(cluster, c.policy.ConnectionPool.limits(), c.base, c.clock.now)
	t.pool.failed = func(address string, err error) { t.report(address, localOriginCode(err)) }
	t.metrics = newMetrics(cluster, t.occupancy())
	t.pool.metrics = t.metrics
	if err := t.metrics.register(c.registerer); err != nil {
		t.pool.close()
		return fail(err)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.loops.Go(func() { t.resolveLoop(endpoints, c.resolveInterval) })
	t.loops.Go(t.sweepLoop)
	return t, nil
}

// Close stops the transport: requests in flight are interrupted, waiting ones
// get ErrClosed, connections are closed (but for those a 101 response has given
// to the caller), the metrics leave their Registerer, and none of its goroutines
// is left when it returns. It may be called more than once.
func (t *Transport) Close() error {
	t.closeOnce.Do(func() {
		t.cancel()
		t.pool.close()
		t.loops.Wait()
		t.metrics.unregister()
	})
	return nil
}

// CloseIdleConnections closes the connections without a request;
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	t.pool.closeWhere(func(*conn) bool { return true })
}

// EndpointStatus is the state of one endpoint.
type EndpointStatus struct {
	Address string
	Ejected bool
	// EjectedAt and ReturnsAfter are zero unless ejected. The endpoint returns
	// with the first sweep after ReturnsAfter, one interval later at most.
	EjectedAt    time.Time
	ReturnsAfter time.Time
	// Ejections since the endpoint was first resolved.
	Ejections uint64
}

// Endpoints lists the endpoints in the order they are used in.
func (t *Transport) Endpoints() []EndpointStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := make([]EndpointStatus, 0, len(t.detector.order))
	for _, a := range t.detector.order {
		h := t.detector.hosts[a]
		s := EndpointStatus{Address: a, Ejected: h.ejected, Ejections: h.ejections}
		if h.ejected {
			s.EjectedAt = h.ejectedAt
			s.ReturnsAfter = h.ejectedAt.Add(ejectionTime(t.rules.baseEjection, t.rules.maxEjection, h.multiplier))
		}
		status = append(status, s)
	}
	return status
}

// publish makes the detector's state the balancer's. mu is held.
func (t *Transport) publish() {
	available, off := t.detector.available()
	t.view.Store(&view{available: available, members: len(t.detector.order), ejected: t.detector.ejected, off: off})
}

// report gives the detector the outcome of a request to an endpoint.
func (t *Transport) report(address string, code int) {
	t.mu.Lock()
	found := t.detector.report(t.clock.now(), address, code)
	if len(found) > 0 {
		t.publish()
	}
	t.mu.Unlock()
	for _, d := range found {
		t.metrics.detected[d.kind].Inc()
		switch d.decision {
		case enforced:
			t.metrics.enforced[d.kind].Inc()
			t.logger.Warn("endpoint ejected", "endpoint", d.address, "type", string(d.kind), "duration", d.duration, "times", d.times)
		case overflowed:
			t.metrics.overflow[d.kind].Inc()
			t.logger.Debug("endpoint not ejected: maxEjectionPercent reached", "endpoint", d.address, "type", string(d.kind))
		case suppressed:
			t.logger.Debug("endpoint not ejected: fewer than minHealthPercent are healthy", "endpoint", d.address, "type", string(d.kind))
		}
	}
}

func (t *Transport) sweepLoop() {
	for {
		fires, stop := t.clock.after(t.rules.interval)
		select {
		case <-t.ctx.Done():
			stop()
			return
		case <-fires:
		}
		now := t.clock.now()
		t.mu.Lock()
		returned := t.detector.sweep(now)
		if len(returned) > 0 {
			t.publish()
		}
		t.mu.Unlock()
		for _, a := range returned {
			t.logger.Info("endpoint returned", "endpoint", a)
		}
		t.pool.closeIdle(now.Add(-t.pool.limits.idleConnTimeout))
	}
}

func (t *Transport) resolveLoop(r Resolver, interval time.Duration) {
	failures := 0
	for first := true; ; first = false {
		addresses, err := r.Resolve(t.ctx)
		if t.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = checkAddresses(addresses)
		}
		if err != nil {
			failures++
			t.metrics.resolveFailed.Inc()
			t.logger.Warn("resolving endpoints failed", "error", err)
		} else {
			failures = 0
		}
		t.update(addresses, err)
		if first {
			close(t.resolved)
		}
		fires, stop := t.clock.after(nextResolve(interval, failures))
		select {
		case <-t.ctx.Done():
			stop()
			return
		case <-fires:
		}
	}
}

// nextResolve is the interval, or after failures 1 s, 2 s, 4 s up to it.
func nextResolve(interval time.Duration, failures int) time.Duration {
	if failures == 0 || failures > 30 {
		return interval
	}
	return min(interval, time.Second<<(failures-1))
}

func checkAddresses(addresses []string) error {
	for _, a := range addresses {
		if err := checkAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// update takes in one answer of the resolver. An error keeps the endpoints.
func (t *Transport) update(addresses []string, err error) {
	t.mu.Lock()
	t.resolveErr = err
	if err == nil {
		t.detector.setHosts(addresses)
		t.publish()
	}
	t.mu.Unlock()
	if err != nil {
		return
	}
	members := make(map[string]bool, len(addresses))
	for _, a := range addresses {
		members[a] = true
	}
	t.pool.keep(members)
}

// awaitEndpoints waits for the first answer of the resolver.
func (t *Transport) awaitEndpoints(ctx context.Context) error {
	select {
	case <-t.resolved:
		return nil
	default:
	}
	select {
	case <-t.resolved:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ctx.Done():
		return fmt.Errorf("outlier: cluster %s: %w", t.cluster, ErrClosed)
	}
}

// pick is round robin over the available endpoints, passing over those already
// tried for this request while there are others.
func (t *Transport) pick(tried []string) (string, error) {
	v := t.view.Load()
	n := uint64(len(v.available))
	if n == 0 {
		t.metrics.noneHealthy.Inc()
		t.mu.Lock()
		resolveErr := t.resolveErr
		t.mu.Unlock()
		if resolveErr != nil {
			return "", fmt.Errorf("outlier: cluster %s: %w: resolving endpoints: %w", t.cluster, ErrNoHealthyEndpoint, resolveErr)
		}
		return "", fmt.Errorf("outlier: cluster %s: %w: %d of %d ejected", t.cluster, ErrNoHealthyEndpoint, v.ejected, v.members)
	}
	if v.off {
		t.metrics.offRequests.Inc()
	}
	var address string
	for range n {
		address = v.available[(t.cursor.Add(1)-1)%n]
		if !slices.Contains(tried, address) {
			break
		}
	}
	return address, nil
}

// key is what connections for a request can be shared by.
func (t *Transport) key(u *url.URL, address string) groupKey {
	k := groupKey{address: address, scheme: u.Scheme, authority: address}
	if u.Scheme == "https" {
		port := u.Port()
		if port == "" {
			port = "443"
		}
		k.authority = net.JoinHostPort(strings.ToLower(u.Hostname()), port)
		if ascii, err := httpguts.PunycodeHostPort(k.authority); err == nil {
			k.authority = ascii
		}
	}
	return k
}

func (t *Transport) occupancy() occupancy {
	return occupancy{
		ejected: func() float64 { return float64(t.view.Load().ejected) },
		healthy: func() float64 { v := t.view.Load(); return float64(v.members - v.ejected) },
		members: func() float64 { return float64(t.view.Load().members) },
		off: func() float64 {
			if t.view.Load().off {
				return 1
			}
			return 0
		},
		connections: func() float64 { return float64(t.pool.conns.Load()) },
		active:      t.pool.read(&t.pool.active),
		pending:     t.pool.read(&t.pool.pending),
		retrying:    t.pool.read(&t.pool.retrying),
	}
}
