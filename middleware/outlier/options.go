//lint:file-ignore SA1019 Transports that set the old dial functions are refused by name.

package outlier

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of this transport's own options.
const (
	DefaultResolveInterval = 30 * time.Second
	DefaultRetryAttempts   = 2
)

// RetryPolicy says what is tried again on another endpoint. maxRetries of the
// connection pool bounds how many retries are outstanding at a time.
type RetryPolicy struct {
	// Attempts after the first; 0 turns retries off.
	Attempts int
	// Statuses of responses to try again, for requests that are idempotent and
	// whose body can be had again. A failure to connect is always tried again,
	// since nothing was sent.
	Statuses []int
}

type config struct {
	policy          TrafficPolicy
	resolveInterval time.Duration
	base            *http.Transport
	hosts           map[string]bool
	fallback        http.RoundTripper
	retry           RetryPolicy
	registerer      prometheus.Registerer
	logger          *slog.Logger
	clock           clock
}

// Option configures New.
type Option func(*config) error

// WithPolicy sets the limits and the outlier detection; without it nothing is
// limited and nothing ejected.
func WithPolicy(p TrafficPolicy) Option {
	return func(c *config) error {
		c.policy = p
		return p.Validate()
	}
}

// WithResolveInterval sets how often the Resolver is asked again; the default is
// 30 s. A failure is tried again after 1 s, 2 s, 4 s and so on up to the
// interval.
func WithResolveInterval(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("resolve interval must be positive, got %s", d)
		}
		c.resolveInterval = d
		return nil
	}
}

// WithBaseTransport takes TLS, protocols, dialer and header timeouts from t,
// which is cloned. Its Proxy and its own connection limits are not used. The
// default is a clone of http.DefaultTransport.
func WithBaseTransport(t *http.Transport) Option {
	return func(c *config) error {
		switch {
		case t == nil:
			return errors.New("base transport is nil")
		case t.DialTLSContext != nil || t.DialTLS != nil || t.Dial != nil: //nolint:staticcheck // refused, not used
			return errors.New("base transport: only DialContext can be wrapped, not Dial, DialTLS or DialTLSContext")
		}
		c.base = t.Clone()
		return nil
	}
}

// WithHosts limits the transport to requests for these hosts (as in the URL,
// with the port if it has one). Others go to fallback, or to
// http.DefaultTransport when it is nil. Without this option every request goes
// to the cluster, redirects to other hosts included.
func WithHosts(fallback http.RoundTripper, hosts ...string) Option {
	return func(c *config) error {
		if len(hosts) == 0 {
			return errors.New("hosts: none given")
		}
		c.hosts = make(map[string]bool, len(hosts))
		for _, h := range hosts {
			c.hosts[strings.ToLower(h)] = true
		}
		if fallback == nil {
			fallback = http.DefaultTransport
		}
		c.fallback = fallback
		return nil
	}
}

// WithRetry replaces the default of two attempts after a failure to connect.
func WithRetry(r RetryPolicy) Option {
	return func(c *config) error {
		if r.Attempts < 0 {
			return fmt.Errorf("retry attempts must not be negative, got %d", r.Attempts)
		}
		for _, s := range r.Statuses {
			if s < 400 || s > 599 {
				return fmt.Errorf("retry statuses must be 4xx or 5xx, got %d", s)
			}
		}
		c.retry = r
		return nil
	}
}

// WithRegisterer puts the metrics on reg until Close; without it there are none
// to see. Several transports can share reg if their clusters differ.
func WithRegisterer(reg prometheus.Registerer) Option {
	return func(c *config) error {
		c.registerer = reg
		return nil
	}
}

// WithLogger sets where ejections, returns and failures to resolve are logged;
// the default is slog.Default().
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("logger is nil")
		}
		c.logger = l
		return nil
	}
}

// clock is the transport's only source of time, so that tests can move it.
type clock struct {
	now   func() time.Time
	after func(time.Duration) (fires <-chan time.Time, stop func())
}

func systemClock() clock {
	return clock{
		now: time.Now,
		after: func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTimer(d)
			return t.C, func() { t.Stop() }
		},
	}
}
