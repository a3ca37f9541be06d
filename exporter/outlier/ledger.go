package outlier

import (
	"time"
)

const (
	// bootSlack is how much the moment of a proxy's start, worked out from its
	// uptime in whole seconds, may wander without being a restart.
	bootSlack = 3 * time.Second
	// retention is how long a proxy that cannot be read keeps its counters.
	retention = 15 * time.Minute
)

// ledger carries what has to be remembered between sweeps: the counters each
// proxy last showed, since when each target has been watched, and the
// ejections counted so far. It has no clock and is not safe for concurrent use.
type ledger struct {
	proxies map[string]*proxyRecord
	watched map[watchKey]time.Time
	totals  map[Series]*total
}

type watchKey struct {
	series   Series
	selector string
}

// total is the number of ejections of one series since it is watched.
type total [numTypes]float64

// proxyRecord is what a proxy last showed. Counters that were 0 are not kept:
// for a proxy that was read since a target is watched, no value means 0.
type proxyRecord struct {
	created, booted, read time.Time
	counters              map[string]*counterRecord
	ejected               map[endpointKey]struct{}
}

// counterRecord are the counters of one cluster when they were last seen.
type counterRecord struct {
	values [numTypes]float64
	read   time.Time
}

type endpointKey struct{ cluster, address string }

func newLedger() *ledger {
	return &ledger{
		proxies: map[string]*proxyRecord{},
		watched: map[watchKey]time.Time{},
		totals:  map[Series]*total{},
	}
}

// Result is what a sweep found about one version of one Canary.
type Result struct {
	Series
	// Observed proxies have a view of the version, Ejecting of them eject at
	// least one of its endpoints. With Observed 0 nothing is known.
	Observed, Ejecting int
	// Ejected is the number of distinct endpoints ejected by at least one
	// proxy; a lower bound where the source does not name endpoints.
	Ejected int
	// Counted: Ejections has been counted at least once.
	Counted   bool
	Ejections [numTypes]float64
}

// sweep is one pass over the proxies.
type sweep struct {
	*ledger
	start    time.Time
	interest *Interest
	views    []view
}

// view gathers what all proxies say about one series.
type view struct {
	observed, ejecting int
	maxActive          float64
	endpoints          map[string]struct{}
	counted            bool
}

// begin starts a sweep. Targets that are no longer asked for are forgotten.
// The error names invalid targets; the sweep covers the valid ones.
func (l *ledger) begin(start time.Time, targets []Target) (*sweep, error) {
	watched := make(map[watchKey]time.Time, len(targets))
	interest, err := newInterest(targets, func(t Target) time.Time {
		key := watchKey{series: t.series(), selector: t.selector()}
		since, ok := l.watched[key]
		if !ok {
			since = start
		}
		watched[key] = since
		return since
	})
	l.watched = watched
	live := make(map[Series]struct{}, len(interest.series))
	for _, s := range interest.series {
		live[s] = struct{}{}
	}
	for s := range l.totals {
		if _, ok := live[s]; !ok {
			delete(l.totals, s)
		}
	}
	return &sweep{ledger: l, start: start, interest: interest, views: make([]view, len(interest.series))}, err
}

// observe takes the reading of one proxy.
func (s *sweep) observe(r Reading) {
	p, known := s.proxies[r.Proxy]
	if !known {
		p = &proxyRecord{}
		s.proxies[r.Proxy] = p
	}
	restarted := known && p.restarted(r)
	if restarted {
		p.counters, p.ejected = nil, nil
	}
	o := observation{sweep: s, reading: &r, record: p, restarted: restarted, ejected: map[endpointKey]struct{}{}, seen: map[int]*seen{}}
	for i := range r.Clusters {
		o.cluster(&r.Clusters[i])
	}
	for series, v := range o.seen {
		s.views[series].add(v)
	}
	p.ejected = o.ejected
	p.created, p.booted, p.read = r.Created, r.Booted, s.start
}

// restarted reports whether the proxy started anew since it was last read.
func (p *proxyRecord) restarted(r Reading) bool {
	if !p.created.IsZero() && !r.Created.IsZero() && !p.created.Equal(r.Created) {
		return true
	}
	return !p.booted.IsZero() && !r.Booted.IsZero() && r.Booted.Sub(p.booted) > bootSlack
}

// observation is the reading of one proxy being accounted for.
type observation struct {
	sweep     *sweep
	reading   *Reading
	record    *proxyRecord
	restarted bool
	ejected   map[endpointKey]struct{}
	seen      map[int]*seen
}

// seen is one proxy's view of one series, over all clusters that lead to it.
type seen struct {
	observed  bool
	active    float64
	endpoints []string
}

func (o *observation) series(n int) *seen {
	v := o.seen[n]
	if v == nil {
		v = &seen{}
		o.seen[n] = v
	}
	return v
}

func (o *observation) cluster(c *ClusterReading) {
	in := o.sweep.interest
	m := in.resolve(c.Name)
	if len(m.targets) == 0 {
		return
	}
	for i := range c.Endpoints {
		if t := in.attribute(m, c.Endpoints[i].Address, o.reading.At); t >= 0 {
			o.endpoint(c.Name, &in.targets[t], &c.Endpoints[i])
		}
	}
	if !m.exclusive {
		// The statistics of a cluster that holds both versions say nothing
		// about either.
		return
	}
	t := &in.targets[m.newest(in)]
	if c.HasActive && (c.Active > 0 || c.Connections != 0) {
		v := o.series(t.series)
		v.observed = true
		// One pod behind two ports is in two clusters: the larger number, not
		// the sum.
		v.active = max(v.active, c.Active)
	}
	o.counters(c, t)
}

// endpoint takes one endpoint of a list. An endpoint that the proxy never
// connected to tells nothing about the version.
func (o *observation) endpoint(cluster string, t *interestTarget, e *EndpointReading) {
	v := o.series(t.series)
	v.observed = v.observed || e.Ejected || e.Connections != 0
	s := o.sweep
	s.views[t.series].counted = true
	if !e.Ejected {
		return
	}
	v.endpoints = append(v.endpoints, e.Address)
	key := endpointKey{cluster: cluster, address: e.Address}
	o.ejected[key] = struct{}{}
	if _, before := o.record.ejected[key]; !before && o.startedFromZero(t) {
		s.total(t.series)[counterTotal]++
	}
}

// counters adds what the counters of a cluster grew by.
func (o *observation) counters(c *ClusterReading, t *interestTarget) {
	var growth [numTypes]float64
	published := false
	for i, value := range c.Enforced {
		if value < 0 {
			continue
		}
		published = true
		growth[i] = o.growth(o.record.counters[c.Name], i, value, t)
	}
	if !published {
		return
	}
	o.remember(c)
	s := o.sweep
	s.views[t.series].counted = true
	total := s.total(t.series)
	typed := 0.0
	for i := range counterTotal {
		total[i] += growth[i]
		typed += growth[i]
	}
	total[counterTotal] += max(0, growth[counterTotal]-typed)
}

// growth is by how much a counter grew since it was last seen. A smaller value
// is a reset: the proxy restarted, or the cluster or the idle statistic was
// removed and made again. Where the last value is not known, or from before
// the target was watched, the value is history and counts for nothing.
func (o *observation) growth(last *counterRecord, counter int, value float64, t *interestTarget) float64 {
	switch {
	case last != nil && last.values[counter] > 0 && !last.read.Before(t.since):
		if previous := last.values[counter]; value >= previous {
			return value - previous
		}
		return value
	case o.startedFromZero(t):
		return value
	default:
		return 0
	}
}

// remember keeps the counters of a cluster for the next sweep. A counter that
// is absent now keeps the value it had: absence is not a reset.
func (o *observation) remember(c *ClusterReading) {
	last := o.record.counters[c.Name]
	for i, value := range c.Enforced {
		if value > 0 && last == nil {
			if o.record.counters == nil {
				o.record.counters = map[string]*counterRecord{}
			}
			last = &counterRecord{}
			o.record.counters[c.Name] = last
		}
		if value >= 0 && last != nil {
			last.values[i] = value
		}
	}
	if last != nil {
		last.read = o.sweep.start
	}
}

// startedFromZero reports whether a counter that has no remembered value was
// 0 when the target began to be watched: the proxy was read since then, or
// started since then. Otherwise its value is history from before.
func (o *observation) startedFromZero(t *interestTarget) bool {
	return o.restarted || !o.record.read.Before(t.since) ||
		o.young(o.reading.Created, t) || o.young(o.reading.Booted, t)
}

// young reports whether a proxy that started at the given moment did so while
// the target was watched, and so lately that it cannot have been counted
// before and forgotten since.
func (o *observation) young(started time.Time, t *interestTarget) bool {
	return started.After(t.since) && o.sweep.start.Sub(started) < retention
}

func (s *sweep) total(series int) *total {
	key := s.interest.series[series]
	t := s.totals[key]
	if t == nil {
		t = &total{}
		s.totals[key] = t
	}
	return t
}

func (v *view) add(s *seen) {
	if !s.observed {
		return
	}
	v.observed++
	if s.active > 0 || len(s.endpoints) > 0 {
		v.ejecting++
	}
	v.maxActive = max(v.maxActive, s.active)
	if v.endpoints == nil && len(s.endpoints) > 0 {
		v.endpoints = map[string]struct{}{}
	}
	for _, e := range s.endpoints {
		v.endpoints[e] = struct{}{}
	}
}

// finish ends the sweep. Proxies that were not read for long are forgotten, and
// counters that were absent for long.
func (s *sweep) finish() []Result {
	for id, p := range s.proxies {
		if s.start.Sub(p.read) > retention {
			delete(s.proxies, id)
			continue
		}
		for cluster, c := range p.counters {
			if s.start.Sub(c.read) > retention {
				delete(p.counters, cluster)
			}
		}
	}
	out := make([]Result, len(s.views))
	for i := range s.views {
		v := &s.views[i]
		if v.counted {
			s.total(i)
		}
		r := Result{Series: s.interest.series[i], Observed: v.observed, Ejecting: v.ejecting}
		r.Ejected = max(len(v.endpoints), int(v.maxActive))
		if t := s.totals[r.Series]; t != nil {
			r.Counted, r.Ejections = true, *t
		}
		out[i] = r
	}
	return out
}
