package prometheus

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// turnsKept is how long the turns of a Prometheus that nobody asks are kept. It is longer
// than a limiter takes to fill up, so that nothing is gained by waiting for it.
const turnsKept = 10 * time.Minute

// turnstile bounds what each Prometheus is asked, by host and port, over all Canaries.
type turnstile struct {
	concurrent int
	perSecond  float64

	mu    sync.Mutex
	turns map[string]*turns
}

// turns are those of one Prometheus.
type turns struct {
	slots *semaphore.Weighted
	rate  *rate.Limiter

	// users and left are the turnstile's.
	users int
	left  time.Time

	offset queryOffset
}

func newTurnstile(concurrent int, perSecond float64) *turnstile {
	return &turnstile{concurrent: concurrent, perSecond: perSecond, turns: map[string]*turns{}}
}

// enter returns the turns of a Prometheus; leave gives them back. Turns that nobody has
// wanted for long are dropped: Canaries could name ever new addresses.
func (t *turnstile) enter(key string, now time.Time) *turns {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, old := range t.turns {
		if k != key && old.users == 0 && now.Sub(old.left) > turnsKept {
			delete(t.turns, k)
		}
	}
	of := t.turns[key]
	if of == nil {
		of = &turns{
			slots: semaphore.NewWeighted(int64(t.concurrent)),
			rate:  rate.NewLimiter(rate.Limit(t.perSecond), t.concurrent),
		}
		t.turns[key] = of
	}
	of.users++
	return of
}

func (t *turnstile) leave(of *turns, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.users--
	of.left = now
}

// take waits for a turn, at the longest until ctx is done. It returns whether it was had;
// then release ends it.
func (t *turns) take(ctx context.Context) (release func(), ok bool) {
	if t.slots.Acquire(ctx, 1) != nil {
		return nil, false
	}
	if t.rate.Wait(ctx) != nil {
		t.slots.Release(1)
		return nil, false
	}
	return func() { t.slots.Release(1) }, true
}
