package outlier

import (
	"context"
	"net/http"
	"time"
)

// dial establishes one connection for a group.
func (p *pool) dial(g *group) {
	s := &socket{released: p.release}
	ctx, cancel := context.WithTimeout(p.ctx, p.limits.connectTimeout)
	defer cancel()
	cc, err := p.base.NewClientConn(withTarget(ctx, g.key.address, s), g.key.scheme, g.key.authority)
	if err != nil {
		s.release()
		p.dialFailed(g, err)
		return
	}
	c := &conn{cc: cc, group: g, socket: s, idleSince: p.now()}
	p.mu.Lock()
	g.dialing--
	if p.closed {
		p.mu.Unlock()
		c.close()
		return
	}
	g.conns[c] = struct{}{}
	g.http2 = cc.Available() > 1
	p.offer(c)
	p.serve(g)
	spent := p.spent(c)
	p.mu.Unlock()
	if spent {
		p.shut(c)
		return
	}
	cc.SetStateHook(func(*http.ClientConn) { p.changed(c) })
}

func (p *pool) dialFailed(g *group, err error) {
	if p.ctx.Err() == nil {
		// Before the request learns of it, so that its retry and the next request
		// already see the endpoint's new state.
		p.metrics.connectFailed.Inc()
		p.failed(g.key.address, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g.dialing--
	if p.closed {
		return
	}
	// The first waiter bears it; the next ones get their own dial.
	if len(g.waiters) > 0 {
		p.hand(g, handover{err: &ConnectError{Cluster: p.cluster, Endpoint: g.key.address, Err: err}})
	}
	p.serve(g)
	p.reap(g)
}

// release is called when a socket is closed. net/http does that while it holds a
// lock that Available takes, so mu cannot be taken here.
func (p *pool) release() {
	p.conns.Add(-1)
	select {
	case p.freed <- struct{}{}:
	default: // a signal is waiting already
	}
}

// serveFreed gives the places of closed sockets to whichever group waits.
func (p *pool) serveFreed() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.freed:
		}
		p.mu.Lock()
		for _, g := range p.groups {
			if len(g.waiters) > 0 {
				p.serve(g)
			}
		}
		p.mu.Unlock()
	}
}

// keep says which endpoints still exist: connections to others take no further
// request and close when theirs are done. The map is kept and not changed.
func (p *pool) keep(addresses map[string]bool) {
	p.mu.Lock()
	p.kept = addresses
	p.mu.Unlock()
	p.closeWhere(p.spent)
}

// closeIdle closes the connections without requests since before.
func (p *pool) closeIdle(before time.Time) {
	p.closeWhere(func(c *conn) bool { return c.idleSince.Before(before) })
}

// closeWhere closes the connections that match and have no request.
func (p *pool) closeWhere(match func(*conn) bool) {
	var idle []*conn
	p.mu.Lock()
	for _, g := range p.groups {
		for c := range g.conns {
			if match(c) && c.active == 0 && c.claims == 0 {
				c.retired = true
				idle = append(idle, c)
			}
		}
	}
	p.mu.Unlock()
	for _, c := range idle {
		p.shut(c)
	}
}

// close ends everything: waiters get ErrClosed, requests in flight are
// interrupted, and no goroutine of the pool is left when it returns.
func (p *pool) close() {
	var open []*conn
	p.mu.Lock()
	p.closed = true
	for _, g := range p.groups {
		for len(g.waiters) > 0 {
			p.hand(g, handover{err: ErrClosed})
		}
		for c := range g.conns {
			open = append(open, c)
		}
	}
	p.mu.Unlock()
	p.cancel()
	for _, c := range open {
		c.close()
	}
	p.work.Wait()
}
