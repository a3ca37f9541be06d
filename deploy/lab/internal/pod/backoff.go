package pod

import "time"

// Defaults of a kubelet (pkg/kubelet/kubelet.go): containers and image pulls
// both start at 10 s and double up to 5 minutes.
const (
	initialBackoff    = 10 * time.Second
	DefaultMaxBackoff = 300 * time.Second
	// A container that ran this long starts afresh.
	backoffReset = 10 * time.Minute
)

// backoff is the delay before something that failed is tried again. The zero
// value has not failed yet. Like a kubelet's, the first retry of a container
// is immediate: a delay holds only after next has been called for an earlier
// failure.
type backoff struct {
	delay   time.Duration
	updated time.Time
}

// waiting reports how long after a failure at failed the next try is to wait,
// seen from now; zero or less when it is due.
func (b backoff) waiting(failed, now time.Time) time.Duration {
	if b.delay == 0 || b.expired(failed) {
		return 0
	}
	return failed.Add(b.delay).Sub(now)
}

func (b backoff) expired(failed time.Time) bool {
	return failed.Sub(b.updated) > backoffReset
}

// next is the back-off after one more failure, at failed, whose retry begins
// now. limit caps the delay, the first one included.
func (b backoff) next(failed, now time.Time, limit time.Duration) backoff {
	delay := b.delay * 2
	if b.delay == 0 || b.expired(failed) {
		delay = initialBackoff
	}
	return backoff{delay: min(delay, limit), updated: now}
}
