package outlier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Collector.
type Config struct {
	// Source is what to read; required.
	Source Source
	// Targets are the versions to report; required. It is called once per
	// sweep and once per scrape, concurrently, so it must be quick and must
	// not wait for anything: a lister's cache, not an API call.
	Targets func() []Target
	// Interval is the time from the start of one sweep to the start of the
	// next, 15 s. Envoy's shortest ejection is 30 s by default.
	Interval time.Duration
	// Timeout bounds one sweep, 9 s.
	Timeout time.Duration
	// MaxTargets bounds the per-object series: with more targets, none are
	// published, and scrape_errors_total{reason="targets"} says so. 4000.
	MaxTargets int
	// Logger says what cannot be read. Nothing is logged if nil.
	Logger *slog.Logger
}

// Collector publishes the outlier metrics. Run sweeps the source, Collect
// renders the last sweep; the two do not wait for each other. All methods are
// safe for concurrent use.
type Collector struct {
	c      Config
	ledger *ledger
	last   atomic.Pointer[[]Result]
	// succeeded is the Unix time in nanoseconds of the last success; 0 before.
	succeeded atomic.Int64
	errors    map[Reason]*atomic.Uint64
	running   atomic.Bool
	failing   int
}

var (
	objectLabels = []string{"namespace", "canary", "role"}

	descEjected = prometheus.NewDesc("canary_outlier_ejected_endpoints",
		"Endpoints of this version that outlier detection of at least one observed proxy has ejected. Absent while no proxy is observed.", objectLabels, nil)
	descEjecting = prometheus.NewDesc("canary_outlier_ejecting_proxies",
		"Observed proxies that eject at least one endpoint of this version. Absent while no proxy is observed.", objectLabels, nil)
	descObserved = prometheus.NewDesc("canary_outlier_observed_proxies",
		"Proxies of callers that were read in the last sweep and have a view of this version. 0 means that nothing is known about ejections.", objectLabels, nil)
	descEjections = prometheus.NewDesc("canary_outlier_ejections_total",
		"Ejections of endpoints of this version enforced by all proxies, by kind of outlier detection.", append(objectLabels[:3:3], "type"), nil)
	descSuccess = prometheus.NewDesc("canary_outlier_last_success_timestamp_seconds",
		"Unix time of the last sweep that read at least one proxy, or that had no version to ask about. 0 before the first.", []string{"source"}, nil)
	descErrors = prometheus.NewDesc("canary_outlier_scrape_errors_total",
		"Proxies, or whole sweeps, that could not be read, by reason.", []string{"source", "reason"}, nil)
)

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector checks the configuration. Nothing is read before Run.
func NewCollector(c Config) (*Collector, error) {
	c.Interval = cmp.Or(c.Interval, 15*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 9*time.Second)
	c.MaxTargets = cmp.Or(c.MaxTargets, 4000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Source == nil:
		return nil, errors.New("outlier collector: no source")
	case c.Targets == nil:
		return nil, errors.New("outlier collector: no targets function")
	case c.Interval <= 0 || c.Timeout <= 0 || c.MaxTargets <= 0:
		return nil, fmt.Errorf("outlier collector: interval %v, timeout %v and target limit %d must be positive", c.Interval, c.Timeout, c.MaxTargets)
	}
	out := &Collector{c: c, ledger: newLedger(), errors: map[Reason]*atomic.Uint64{}}
	for _, r := range reasons {
		out.errors[r] = &atomic.Uint64{}
	}
	return out, nil
}

// Run sweeps until ctx is done, then withdraws the per-object series: a
// replica that lost the leadership must not go on showing what it last saw.
// It returns when the last sweep has ended. It may be run again, not twice at
// once.
func (c *Collector) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("outlier collector: already running")
	}
	defer c.running.Store(false)
	defer c.last.Store(nil)
	ticker := time.NewTicker(c.c.Interval)
	defer ticker.Stop()
	for {
		c.sweep(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// sweep reads the source once and publishes what it found.
func (c *Collector) sweep(ctx context.Context, now time.Time) {
	targets := c.c.Targets()
	if len(targets) > c.c.MaxTargets {
		c.failed(ctx, readErrorf(ReasonTargets, "%d targets are more than the %d that series are published for", len(targets), c.c.MaxTargets))
		c.last.Store(nil)
		return
	}
	s, err := c.ledger.begin(now, targets)
	if err != nil {
		c.failed(ctx, &ReadError{Reason: ReasonTargets, Err: err})
	}
	if len(s.views) == 0 {
		c.succeeded.Store(now.UnixNano())
		c.publish(s.finish())
		return
	}
	bounded, cancel := context.WithTimeout(ctx, c.c.Timeout)
	defer cancel()
	sink := &sweepSink{sweep: s, collector: c}
	err = c.c.Source.Read(bounded, s.interest, sink)
	if ctx.Err() != nil {
		// Cut short by the end of Run, not by the proxies.
		return
	}
	if err != nil {
		c.failed(ctx, err)
	} else if sink.read > 0 {
		c.succeeded.Store(now.UnixNano())
	}
	c.report(ctx, sink)
	c.publish(s.finish())
}

func (c *Collector) publish(results []Result) { c.last.Store(&results) }

func (c *Collector) failed(ctx context.Context, err error) {
	c.errors[reasonOf(err)].Add(1)
	c.c.Logger.WarnContext(ctx, "Outlier ejections cannot be read", "source", c.c.Source.Kind(), "err", err)
}

// report logs a change in how many proxies cannot be read, with one example.
func (c *Collector) report(ctx context.Context, s *sweepSink) {
	if s.unread == c.failing {
		return
	}
	level := slog.LevelWarn
	if s.unread == 0 {
		level = slog.LevelInfo
	}
	attrs := []any{"source", c.c.Source.Kind(), "read", s.read, "unread", s.unread}
	if s.example != nil {
		attrs = append(attrs, "example", s.example)
	}
	c.c.Logger.Log(ctx, level, "Proxies that cannot be read for outlier ejections", attrs...)
	c.failing = s.unread
}

// sweepSink passes readings to the sweep one at a time.
type sweepSink struct {
	collector *Collector
	mu        sync.Mutex
	sweep     *sweep
	read      int
	unread    int
	example   error
}

func (s *sweepSink) Observe(r Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	s.sweep.observe(r)
}

func (s *sweepSink) Fail(proxy string, err error) {
	s.collector.errors[reasonOf(err)].Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread++
	if s.example == nil {
		s.example = fmt.Errorf("%s: %w", proxy, err)
	}
}

// Describe sends the descriptions of the metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEjected, descEjecting, descObserved, descEjections, descSuccess, descErrors} {
		ch <- d
	}
}

// Collect sends the result of the last sweep for those Canaries that still
// exist.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	source := string(c.c.Source.Kind())
	ch <- prometheus.MustNewConstMetric(descSuccess, prometheus.GaugeValue, float64(c.succeeded.Load())/1e9, source)
	for _, r := range reasons {
		ch <- prometheus.MustNewConstMetric(descErrors, prometheus.CounterValue, float64(c.errors[r].Load()), source, string(r))
	}
	results := c.last.Load()
	if results == nil || len(*results) == 0 {
		return
	}
	live := map[Series]bool{}
	for _, t := range c.c.Targets() {
		live[t.series()] = true
	}
	for i := range *results {
		if r := &(*results)[i]; live[r.Series] {
			r.collect(ch)
		}
	}
}

func (r *Result) collect(ch chan<- prometheus.Metric) {
	labels := []string{r.Namespace, r.Canary, string(r.Role)}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(descObserved, r.Observed)
	if r.Observed > 0 {
		gauge(descEjecting, r.Ejecting)
		gauge(descEjected, r.Ejected)
	}
	if r.Counted {
		for i, t := range EjectionTypes {
			ch <- prometheus.MustNewConstMetric(descEjections, prometheus.CounterValue, r.Ejections[i], append(labels[:3:3], string(t))...)
		}
	}
}
