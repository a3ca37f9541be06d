package outlier

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// pool holds the connections to all endpoints of a cluster and enforces
// connectionPool. It is built on http.ClientConn, because http.Transport can
// neither bound connections over several hosts, nor bound its queue, nor count
// the requests of a connection.
//
// Lock order: mu is held while calling Available and Err of a ClientConn, never
// while calling its other methods, since those may run the state hook, which
// takes mu.
type pool struct {
	cluster string
	limits  limits
	base    *http.Transport
	metrics *metrics
	now     func() time.Time
	// failed is told of each connection that could not be established.
	failed func(address string, err error)

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	conns  atomic.Int64
	freed  chan struct{}

	mu       sync.Mutex
	closed   bool
	groups   map[groupKey]*group
	kept     map[string]bool // the endpoints that still exist; nil: all
	pending  int64
	active   int64
	retrying int64
}

func newPool(cluster string, l limits, base *http.Transport, now func() time.Time) *pool {
	p := &pool{cluster: cluster, limits: l, now: now,
		base:   base,
		groups: map[groupKey]*group{}, freed: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	dial := base.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	base.DialContext = dialEndpoint(dial)
	p.work.Go(p.serveFreed)
	return p
}

// acquire reserves a slot on a connection to the endpoint. It waits for one if
// it must and the limits let it, until ctx ends.
func (p *pool) acquire(ctx context.Context, key groupKey) (*lease, error) {
	queued := false
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, ErrClosed
		}
		if p.active >= p.limits.maxRequests {
			p.mu.Unlock()
			return nil, p.overflow(OverflowRequests, p.limits.maxRequests)
		}
		g := p.group(key)
		c := p.takeReady(g)
		if c == nil {
			// One that had its turn and lost the connection is not refused now.
			if !queued && p.pending >= p.limits.maxPending {
				p.reap(g)
				p.mu.Unlock()
				return nil, p.overflow(OverflowPendingRequests, p.limits.maxPending)
			}
			w := &waiter{result: make(chan handover, 1)}
			g.waiters = append(g.waiters, w)
			p.pending++
			p.serve(g)
			if !queued && p.blocked(g) {
				p.metrics.poolOverflow[OverflowConnections].Inc()
			}
			queued = true
			p.mu.Unlock()
			var err error
			if c, err = p.wait(ctx, g, w); err != nil {
				return nil, err
			}
			p.mu.Lock()
			if p.active >= p.limits.maxRequests {
				p.unclaim(c)
				p.mu.Unlock()
				return nil, p.overflow(OverflowRequests, p.limits.maxRequests)
			}
		}
		p.active++
		p.mu.Unlock()

		err := c.cc.Reserve()

		p.mu.Lock()
		c.claims--
		if err != nil {
			// The server closed it in between, or wants no more on it.
			p.active--
			c.retired = true
			spent := p.spent(c)
			if c.cc.Err() != nil {
				p.forget(c)
			}
			p.mu.Unlock()
			if spent {
				p.shut(c)
			}
			continue
		}
		l := &lease{conn: c, reused: c.served > 0}
		c.active++
		c.served++
		if c.served >= p.limits.maxPerConn {
			c.retired = true
		}
		p.offer(c)
		p.mu.Unlock()
		return l, nil
	}
}

// wait blocks until the waiter is served or ctx ends.
func (p *pool) wait(ctx context.Context, g *group, w *waiter) (*conn, error) {
	select {
	case h := <-w.result:
		return h.conn, h.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, q := range g.waiters {
		if q == w {
			g.waiters = append(g.waiters[:i], g.waiters[i+1:]...)
			p.pending--
			p.reap(g)
			return nil, ctx.Err()
		}
	}
	// It was served at the same moment: pass the connection on.
	if h := <-w.result; h.conn != nil {
		p.unclaim(h.conn)
	}
	return nil, ctx.Err()
}

// finish gives the slot back; it may be called more than once.
func (p *pool) finish(l *lease) {
	l.once.Do(func() {
		c := l.conn
		p.mu.Lock()
		p.active--
		c.active--
		c.idleSince = p.now()
		// Retired connections are closed here and not in the state hook, which
		// can run before net/http has handed the response to its caller.
		spent := p.spent(c)
		p.offer(c)
		p.serve(c.group)
		p.mu.Unlock()
		if spent {
			p.shut(c)
		}
	})
}

// shut closes a retired connection. It leaves its group only when its socket is
// closed, or its successor would be one more than tcp.maxConnections.
func (p *pool) shut(c *conn) {
	c.close()
	p.mu.Lock()
	p.forget(c)
	p.mu.Unlock()
}

// changed is the state hook: a request ended on the connection, or it closed.
func (p *pool) changed(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.cc.Err() != nil {
		p.forget(c)
		return
	}
	p.offer(c)
	p.serve(c.group)
}

// group finds or makes the group of a key. mu is held.
func (p *pool) group(key groupKey) *group {
	g, ok := p.groups[key]
	if !ok {
		g = &group{key: key, conns: map[*conn]struct{}{}}
		p.groups[key] = g
	}
	return g
}

// reap drops a group in which nothing is left. mu is held.
func (p *pool) reap(g *group) {
	if len(g.conns) == 0 && len(g.waiters) == 0 && g.dialing == 0 && p.groups[g.key] == g {
		delete(p.groups, g.key)
	}
}

// free is how many more requests a connection takes now. mu is held.
func (p *pool) free(c *conn) int64 {
	if c.retired || c.removed || c.cc.Err() != nil {
		return 0
	}
	return min(int64(c.cc.Available()-c.claims), p.limits.maxPerConn-c.served-int64(c.claims))
}

// offer puts a connection back among the ready ones if it can take a request.
// mu is held.
func (p *pool) offer(c *conn) {
	if !c.ready && p.free(c) > 0 {
		c.ready = true
		c.group.ready = append(c.group.ready, c)
	}
}

// takeReady claims a connection that can take a request now. mu is held.
func (p *pool) takeReady(g *group) *conn {
	for len(g.ready) > 0 {
		c := g.ready[len(g.ready)-1]
		free := p.free(c)
		if free <= 1 {
			g.ready[len(g.ready)-1] = nil
			g.ready = g.ready[:len(g.ready)-1]
			c.ready = false
		}
		if free >= 1 {
			c.claims++
			return c
		}
	}
	return nil
}

// spent reports whether a connection is to be closed: it takes no further request
// and has none. A request that chose its endpoint before the endpoint went away may
// still connect to it afterwards; such a connection is spent with that request. mu
// is held.
func (p *pool) spent(c *conn) bool {
	if p.kept != nil && !p.kept[c.group.key.address] {
		c.retired = true
	}
	return c.retired && c.active == 0 && c.claims == 0
}

// unclaim gives a claimed connection back unused. mu is held.
func (p *pool) unclaim(c *conn) {
	c.claims--
	if p.spent(c) && !p.closed {
		p.work.Go(func() { p.shut(c) })
	}
	p.offer(c)
	p.serve(c.group)
}

// serve hands ready connections to waiters and starts the dials that the rest
// need. mu is held.
func (p *pool) serve(g *group) {
	for len(g.waiters) > 0 {
		c := p.takeReady(g)
		if c == nil {
			break
		}
		p.hand(g, handover{conn: c})
	}
	for !p.closed && p.wanted(g) > 0 && p.mayDial(g) {
		g.dialing++
		p.conns.Add(1)
		p.metrics.connections.Inc()
		p.work.Go(func() { p.dial(g) })
	}
}

// hand answers the first waiter. mu is held.
func (p *pool) hand(g *group, h handover) {
	w := g.waiters[0]
	g.waiters = g.waiters[1:]
	p.pending--
	w.result <- h
}

// wanted is how many more dials the waiters could use. mu is held.
func (p *pool) wanted(g *group) int {
	n := len(g.waiters) - g.dialing
	if g.http2 && n > 0 {
		// One HTTP/2 connection serves them all.
		n = 1 - g.dialing
	}
	return n
}

// mayDial applies tcp.maxConnections. As in Envoy, an endpoint without any
// connection gets one regardless, or it could starve. mu is held.
func (p *pool) mayDial(g *group) bool {
	return p.conns.Load() < p.limits.maxConnections || len(g.conns)+g.dialing == 0
}

// blocked: a waiter gets no connection of its own because of the limit. mu is held.
func (p *pool) blocked(g *group) bool { return p.wanted(g) > 0 && !p.mayDial(g) }

// forget takes a connection out of its group. mu is held.
func (p *pool) forget(c *conn) {
	if c.removed {
		return
	}
	c.removed = true
	delete(c.group.conns, c)
	if c.ready {
		for i, r := range c.group.ready {
			if r == c {
				c.group.ready = append(c.group.ready[:i], c.group.ready[i+1:]...)
				break
			}
		}
		c.ready = false
	}
	p.serve(c.group)
	p.reap(c.group)
}

func (p *pool) overflow(reason OverflowReason, limit int64) *OverflowError {
	p.metrics.poolOverflow[reason].Inc()
	return &OverflowError{Cluster: p.cluster, Reason: reason, Limit: limit}
}

// beginRetry applies http.maxRetries; endRetry must follow a nil error.
func (p *pool) beginRetry() *OverflowError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retrying >= p.limits.maxRetries {
		return p.overflow(OverflowRetries, p.limits.maxRetries)
	}
	p.retrying++
	return nil
}

func (p *pool) endRetry() {
	p.mu.Lock()
	p.retrying--
	p.mu.Unlock()
}

func (p *pool) read(value *int64) func() float64 {
	return func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		return float64(*value)
	}
}
