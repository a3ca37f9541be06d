package jaegerudp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"
)

const (
	// lookupTimeout bounds one look-up of the agent's name.
	lookupTimeout = 2 * time.Second
	// firstRetry is the pause after a failed look-up; it doubles up to the
	// resolve interval.
	firstRetry = time.Second
)

var errNoAddress = errors.New("the name has no address")

// choose returns the address to send to: the current one while the name still
// has it, else the first IPv4 address, else the first of any kind. IPv4 comes
// first because agents listen on 0.0.0.0 far more often than on [::].
func choose(current netip.Addr, found []netip.Addr) (netip.Addr, bool) {
	var first netip.Addr
	for _, a := range found {
		a = a.Unmap()
		if a == current {
			return a, true
		}
		if !first.IsValid() || (first.Is6() && a.Is4()) {
			first = a
		}
	}
	return first, first.IsValid()
}

// watcher looks the agent's name up again and again and tells the exporter
// which address to use.
type watcher struct {
	resolver Resolver
	host     string
	interval time.Duration
	current  netip.Addr
	found    chan<- netip.Addr
	wake     <-chan struct{} // a send failed: look now
	warn     func(msg string, args ...any)
}

// lookup resolves once, bounded by lookupTimeout.
func (w *watcher) lookup(ctx context.Context) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all, err := w.resolver.LookupNetIP(ctx, "ip", w.host)
	if err != nil {
		return netip.Addr{}, err
	}
	a, ok := choose(w.current, slices.Clone(all))
	if !ok {
		return netip.Addr{}, errNoAddress
	}
	return a, nil
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	last := time.Now()
	retry := firstRetry
	wait := w.interval
	if !w.current.IsValid() {
		wait = min(firstRetry, w.interval)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			// A dead agent fails every packet; its name need not be asked for
			// each of them.
			if time.Since(last) < firstRetry {
				continue
			}
		case <-timer.C:
		}
		last = time.Now()
		a, err := w.lookup(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.warn("looking up the Jaeger agent failed; keeping the address in use", "host", w.host, "address", w.current, "err", err)
			wait = min(retry, w.interval)
			retry *= 2
		default:
			retry, wait = firstRetry, w.interval
			if a != w.current {
				w.current = a
				select {
				case w.found <- a:
				case <-ctx.Done():
					return
				}
			}
		}
		timer.Reset(wait)
	}
}
