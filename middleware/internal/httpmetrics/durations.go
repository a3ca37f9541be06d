package httpmetrics

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the label value for whatever is not known or not within the bounds.
// It is the one the OpenTelemetry semantic conventions use for unknown methods.
const Other = "_OTHER"

// DefaultBuckets are the boundaries, in seconds, the HTTP semantic conventions
// advise for request durations.
var DefaultBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// exemplarEvery is how often one classic bucket of one series takes a new
// exemplar. Only the last before a scrape is ever seen, and scrapes are
// seconds apart, so nothing is lost by leaving out the others; making one
// costs more than the rest of an observation together.
const exemplarEvery = 100 * time.Millisecond

const (
	labelMethod = "http_request_method"
	labelStatus = "http_response_status_code"
)

// Bounds are the limits of one histogram.
type Bounds struct {
	// Series is how many label sets there may be. Beyond it the value label
	// becomes Other and the status its class ("5xx", which a matcher such as
	// "5.." still finds); these few come on top.
	Series int
	// Values is how many values the value label may take; 0 leaves it to
	// Series.
	Values int
}

// durations is a histogram over method, status and one more label, with
// everything looked up once.
type durations struct {
	vec     *prometheus.HistogramVec
	label   string
	buckets []float64
	bounds  Bounds

	values atomic.Pointer[map[string]*value]
	other  *value

	mu     sync.Mutex // guards additions to everything below and in values
	series int
}

// value holds the series of one value of the value label.
type value struct {
	d       *durations
	name    string
	methods atomic.Pointer[[]*Series]
}

// Series is the histogram of one method and one route or server address. It
// is safe for concurrent use.
type Series struct {
	v        *value
	method   string
	children atomic.Pointer[[]*child]
}

// child is the histogram of one status.
type child struct {
	status    int
	observer  prometheus.Observer
	exemplars prometheus.ExemplarObserver
	taken     []atomic.Int64 // per bucket, when the last exemplar was taken
}

func newDurations(name, help, label string, buckets []float64, bounds Bounds) *durations {
	d := &durations{
		vec: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    name,
			Help:    help,
			Buckets: buckets,
			// 1.1 keeps the error of a quantile below 5 %.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{labelMethod, label, labelStatus}),
		label:   label,
		buckets: buckets,
		bounds:  bounds,
	}
	d.other = &value{d: d, name: Other}
	d.values.Store(&map[string]*value{Other: d.other})
	return d
}

// lookup finds the series of a method and a value of the value label, or makes
// it. method must come from a bounded set.
func (d *durations) lookup(method, name string) *Series {
	v := (*d.values.Load())[name]
	if v == nil {
		v = d.addValue(name)
	}
	return v.lookup(method)
}

func (d *durations) addValue(name string) *value {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.values.Load()
	if v := old[name]; v != nil {
		return v
	}
	// Other is always among them and does not count.
	if d.bounds.Values > 0 && len(old) > d.bounds.Values || d.series >= d.bounds.Series {
		return d.other
	}
	// Readers hold the old map without a lock, so it is replaced, not changed.
	// Values are few and come early in the life of a process.
	values := make(map[string]*value, len(old)+1)
	for k, v := range old {
		values[k] = v
	}
	v := &value{d: d, name: name}
	values[name] = v
	d.values.Store(&values)
	return v
}

func (v *value) lookup(method string) *Series {
	if s := v.find(method); s != nil {
		return s
	}
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if s := v.find(method); s != nil {
		return s
	}
	s := &Series{v: v, method: method}
	var methods []*Series
	if old := v.methods.Load(); old != nil {
		methods = slices.Clone(*old)
	}
	methods = append(methods, s)
	v.methods.Store(&methods)
	return s
}

func (v *value) find(method string) *Series {
	if methods := v.methods.Load(); methods != nil {
		for _, s := range *methods {
			if s.method == method {
				return s
			}
		}
	}
	return nil
}

// Observe notes one request that ended at now, on any clock that does not go
// back and is past zero, with the given status, 0 when none was sent or
// received. traceID is the hex id for the exemplar and is
// called only when one is due; nil leaves it out.
func (s *Series) Observe(status int, took, now time.Duration, traceID func() string) {
	c := s.find(status)
	if c == nil {
		c = s.add(status)
	}
	seconds := took.Seconds()
	if traceID != nil && c.exemplars != nil && c.due(bucket(s.v.d.buckets, seconds), now) {
		c.exemplars.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": traceID()})
		return
	}
	c.observer.Observe(seconds)
}

func (s *Series) find(status int) *child {
	if children := s.children.Load(); children != nil {
		for _, c := range *children {
			if c.status == status {
				return c
			}
		}
	}
	return nil
}

func (s *Series) add(status int) *child {
	d := s.v.d
	d.mu.Lock()
	if c := s.find(status); c != nil {
		d.mu.Unlock()
		return c
	}
	full := d.series >= d.bounds.Series
	switch {
	case full && s.v != d.other:
		d.mu.Unlock()
		return d.other.lookup(s.method).over(status)
	case full:
		d.mu.Unlock()
		return s.over(status)
	}
	defer d.mu.Unlock()
	d.series++
	return s.insert(status, statusLabel(status))
}

// over finds or makes the child of a status class, for when the limit is
// reached. The class is kept under a negative status, which no response has.
func (s *Series) over(status int) *child {
	class := -1 - status/100
	if status < 0 || status > 599 {
		class = -100
	}
	if c := s.find(class); c != nil {
		return c
	}
	s.v.d.mu.Lock()
	defer s.v.d.mu.Unlock()
	if c := s.find(class); c != nil {
		return c
	}
	return s.insert(class, classLabel(status))
}

func (s *Series) insert(status int, label string) *child {
	d := s.v.d
	observer := d.vec.With(prometheus.Labels{labelMethod: s.method, d.label: s.v.name, labelStatus: label})
	c := &child{status: status, observer: observer, taken: make([]atomic.Int64, len(d.buckets)+1)}
	c.exemplars, _ = observer.(prometheus.ExemplarObserver)
	var children []*child
	if old := s.children.Load(); old != nil {
		children = slices.Clone(*old)
	}
	children = append(children, c)
	s.children.Store(&children)
	return c
}

// due reports whether a bucket may take an exemplar at now and notes that it
// does.
func (c *child) due(bucket int, now time.Duration) bool {
	last := c.taken[bucket].Load()
	return (last == 0 || int64(now)-last >= int64(exemplarEvery)) && c.taken[bucket].CompareAndSwap(last, int64(now))
}

// bucket is the index of the bucket a duration falls into; the upper bounds
// are inclusive.
func bucket(bounds []float64, seconds float64) int {
	i, _ := slices.BinarySearch(bounds, seconds)
	return i
}

func statusLabel(status int) string {
	switch {
	case status == 0:
		return ""
	case status < 100 || status > 599:
		return Other
	}
	return strconv.Itoa(status)
}

func classLabel(status int) string {
	switch {
	case status == 0:
		return ""
	case status < 100 || status > 599:
		return Other
	}
	return strconv.Itoa(status/100) + "xx"
}
