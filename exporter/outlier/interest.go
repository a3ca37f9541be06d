package outlier

import (
	"errors"
	"time"
)

// Interest is the set of targets of one sweep, indexed by the cluster names
// that lead to them. It does not change after it was made and may be used by
// any number of goroutines.
type Interest struct {
	targets []interestTarget
	series  []Series

	exact     map[string][]int
	bySubset  map[subsetKey][]int
	byService map[subsetKey][]int
	owners    map[string][]owner
}

type interestTarget struct {
	Target
	series int
	// since is the start of the first sweep that watched this target.
	since time.Time
}

type subsetKey struct{ namespace, service, subset string }

// owner is a target that holds an address.
type owner struct {
	target int
	since  time.Time
}

// newInterest indexes targets. since gives the moment from which each target
// has been watched. Invalid targets are left out and reported.
func newInterest(targets []Target, since func(Target) time.Time) (*Interest, error) {
	in := &Interest{
		exact:     map[string][]int{},
		bySubset:  map[subsetKey][]int{},
		byService: map[subsetKey][]int{},
		owners:    map[string][]owner{},
	}
	var invalid []error
	index := map[Series]int{}
	for _, t := range targets {
		if err := t.Validate(); err != nil {
			invalid = append(invalid, err)
			continue
		}
		s, ok := index[t.series()]
		if !ok {
			s = len(in.series)
			index[t.series()] = s
			in.series = append(in.series, t.series())
		}
		n := len(in.targets)
		in.targets = append(in.targets, interestTarget{Target: t, series: s, since: since(t)})
		for _, c := range t.Clusters {
			in.exact[c] = append(in.exact[c], n)
		}
		if t.Service != "" {
			key := subsetKey{namespace: t.serviceNamespace(), service: t.Service}
			in.byService[key] = append(in.byService[key], n)
			if t.Subset != "" {
				key.subset = t.Subset
				in.bySubset[key] = append(in.bySubset[key], n)
			}
		}
		for _, e := range t.Endpoints {
			a := canonicalAddress(e.Address)
			in.owners[a] = append(in.owners[a], owner{target: n, since: e.Since})
		}
	}
	return in, errors.Join(invalid...)
}

// Targets are the valid targets of the sweep. The slice must not be changed.
func (in *Interest) Targets() []Target {
	out := make([]Target, len(in.targets))
	for i := range in.targets {
		out[i] = in.targets[i].Target
	}
	return out
}

// Wants reports whether what a proxy says about the cluster can be attributed
// to any target.
func (in *Interest) Wants(cluster string) bool {
	m := in.resolve(cluster)
	if m.exclusive {
		return true
	}
	for _, t := range m.targets {
		if len(in.targets[t].Endpoints) > 0 {
			return true
		}
	}
	return false
}

// match is what a cluster leads to.
type match struct {
	targets []int
	// exclusive: every endpoint of the cluster belongs to the one series that
	// all targets share. Otherwise only addresses tell.
	exclusive bool
}

// resolve finds the targets of a cluster, the most specific rule first:
// an explicit name, then Service and subset, then the Service alone.
func (in *Interest) resolve(cluster string) match {
	if ts := in.exact[cluster]; len(ts) > 0 {
		return match{targets: ts, exclusive: in.oneSeries(ts)}
	}
	c, ok := parseClusterName(cluster)
	if !ok {
		return match{}
	}
	if c.subset != "" {
		if ts := in.bySubset[c.key()]; len(ts) > 0 {
			return match{targets: ts, exclusive: in.oneSeries(ts)}
		}
	}
	ts := in.byService[subsetKey{namespace: c.namespace, service: c.service}]
	exclusive := in.oneSeries(ts)
	for _, t := range ts {
		// The whole Service, or a subset nobody names, holds more than the
		// subset this target is.
		if in.targets[t].Subset != "" {
			exclusive = false
		}
	}
	return match{targets: ts, exclusive: exclusive}
}

func (c clusterName) key() subsetKey {
	return subsetKey{namespace: c.namespace, service: c.service, subset: c.subset}
}

func (in *Interest) oneSeries(targets []int) bool {
	for _, t := range targets {
		if in.targets[t].series != in.targets[targets[0]].series {
			return false
		}
	}
	return len(targets) > 0
}

// attribute finds the target an endpoint of a cluster belongs to, as observed
// at the given moment, or -1.
func (in *Interest) attribute(m match, address string, observed time.Time) int {
	if m.exclusive {
		return m.newest(in)
	}
	best := -1
	var since time.Time
	for _, o := range in.owners[canonicalAddress(address)] {
		if o.since.After(observed) || !m.has(o.target) {
			continue
		}
		// An address that two pods claim belongs to the later one.
		if best < 0 || o.since.After(since) {
			best, since = o.target, o.since
		}
	}
	return best
}

func (m match) has(target int) bool {
	for _, t := range m.targets {
		if t == target {
			return true
		}
	}
	return false
}

// newest is the matched target that has been watched for the shortest time:
// what was not watched for long enough is not counted.
func (m match) newest(in *Interest) int {
	best := m.targets[0]
	for _, t := range m.targets[1:] {
		if in.targets[t].since.After(in.targets[best].since) {
			best = t
		}
	}
	return best
}
