package outlier

import "time"

// EjectionType is the rule that an endpoint broke. The names are those in
// Envoy's statistics.
type EjectionType string

// The detection types that DestinationRule's outlierDetection can switch on.
const (
	Consecutive5xx            EjectionType = "consecutive_5xx"
	ConsecutiveGatewayFailure EjectionType = "consecutive_gateway_failure"
)

// ejectionTypes lists every label value, so that metrics exist from the start.
var ejectionTypes = []EjectionType{Consecutive5xx, ConsecutiveGatewayFailure}

// decision is what became of an endpoint that broke a rule.
type decision int

const (
	// enforced: the endpoint is ejected.
	enforced decision = iota
	// overflowed: maxEjectionPercent kept it in.
	overflowed
	// suppressed: fewer than minHealthPercent are healthy, ejection is off.
	suppressed
)

// detection is one broken rule and its decision.
type detection struct {
	address  string
	kind     EjectionType
	decision decision
	// duration is how long an enforced ejection lasts at least.
	duration time.Duration
	// times the endpoint was ejected in a row, this time included.
	times int
}

// host is what the detector remembers of one endpoint.
type host struct {
	consecutive5xx     uint32
	consecutiveGateway uint32
	ejected            bool
	ejectedAt          time.Time
	// returnedAt is zero until the endpoint came back from an ejection.
	returnedAt time.Time
	// multiplier of the base ejection time: it grows with each ejection and
	// decays with each sweep in good health.
	multiplier int
	ejections  uint64
}

// detector decides which endpoints are ejected. It has no clock, no lock and no
// I/O: time comes in as an argument, decisions go out as values.
type detector struct {
	rules   rules
	hosts   map[string]*host
	order   []string
	ejected int
}

func newDetector(r rules) *detector {
	return &detector{rules: r, hosts: map[string]*host{}}
}

// mayEject applies maxEjectionPercent: one endpoint may always be ejected, a
// further one only while the share including it stays within the limit.
func mayEject(ejected, total, maxPercent int) bool {
	return ejected == 0 || (ejected+1)*100 <= maxPercent*total
}

// ejectionOff applies minHealthPercent.
func ejectionOff(healthy, total, minHealthPercent int) bool {
	return healthy*100 < minHealthPercent*total
}

// ejectionTime is base x multiplier, at most longest.
func ejectionTime(base, longest time.Duration, multiplier int) time.Duration {
	if int64(multiplier) > int64(longest/base) {
		return longest
	}
	return base * time.Duration(multiplier)
}

// nextMultiplier grows the multiplier with an ejection. It stops one step after
// the ejection time has reached its longest (multiplier x base < longest +
// base, as in Envoy, written so that it cannot overflow).
func nextMultiplier(base, longest time.Duration, multiplier int) int {
	if int64(multiplier)-1 <= int64((longest-1)/base) {
		return multiplier + 1
	}
	return multiplier
}

// setHosts replaces the endpoints. Those that stay keep their state; those that
// go take theirs with them.
func (d *detector) setHosts(addresses []string) {
	next := make(map[string]*host, len(addresses))
	d.order = d.order[:0:0]
	d.ejected = 0
	for _, a := range addresses {
		if _, twice := next[a]; twice {
			continue
		}
		h, ok := d.hosts[a]
		if !ok {
			h = &host{}
		}
		if h.ejected {
			d.ejected++
		}
		next[a] = h
		d.order = append(d.order, a)
	}
	d.hosts = next
}

// report takes in the outcome of one request: a status code, or the code that
// localOriginCode gives a request without an answer. At most two rules can
// break on one outcome.
func (d *detector) report(now time.Time, address string, code int) []detection {
	h, ok := d.hosts[address]
	if !ok || !d.rules.enabled {
		return nil
	}
	if code < 500 || code > 599 {
		h.consecutive5xx, h.consecutiveGateway = 0, 0
		return nil
	}
	var found []detection
	if code == 502 || code == 503 || code == 504 {
		h.consecutiveGateway++
		// Equality, not >=: requests still in flight to an ejected endpoint go on
		// counting and must not break the rule again.
		if h.consecutiveGateway == d.rules.consecutiveGateway && !h.ejected {
			found = append(found, d.detect(now, address, h, ConsecutiveGatewayFailure))
			h.consecutiveGateway = 0
		}
	} else {
		h.consecutiveGateway = 0
	}
	h.consecutive5xx++
	if h.consecutive5xx == d.rules.consecutive5xx && !h.ejected {
		found = append(found, d.detect(now, address, h, Consecutive5xx))
		h.consecutive5xx = 0
	}
	return found
}

func (d *detector) detect(now time.Time, address string, h *host, kind EjectionType) detection {
	det := detection{address: address, kind: kind}
	total := len(d.order)
	switch {
	case ejectionOff(total-d.ejected, total, d.rules.minHealthPercent):
		det.decision = suppressed
	case !mayEject(d.ejected, total, d.rules.maxEjectionPercent):
		det.decision = overflowed
	default:
		h.ejected, h.ejectedAt = true, now
		h.ejections++
		h.multiplier = nextMultiplier(d.rules.baseEjection, d.rules.maxEjection, h.multiplier)
		d.ejected++
		det.decision = enforced
		det.times = h.multiplier
		det.duration = ejectionTime(d.rules.baseEjection, d.rules.maxEjection, h.multiplier)
	}
	return det
}

// sweep is due once per interval: it returns the endpoints whose time is over
// and lets the multiplier of those in good health decay. It gives back the
// addresses that returned.
func (d *detector) sweep(now time.Time) []string {
	var returned []string
	for _, a := range d.order {
		h := d.hosts[a]
		if h.ejected && now.Sub(h.ejectedAt) >= ejectionTime(d.rules.baseEjection, d.rules.maxEjection, h.multiplier) {
			// Counters start anew, or the errors from before would eject it again.
			h.consecutive5xx, h.consecutiveGateway = 0, 0
			h.ejected, h.returnedAt = false, now
			d.ejected--
			returned = append(returned, a)
			continue
		}
		if !h.ejected && h.multiplier > 0 && !h.returnedAt.IsZero() && now.Sub(h.returnedAt) >= d.rules.interval {
			h.multiplier--
		}
	}
	return returned
}

// available are the endpoints that get traffic, in the order given, and whether
// ejection is switched off because too few are healthy.
func (d *detector) available() (addresses []string, off bool) {
	total := len(d.order)
	if ejectionOff(total-d.ejected, total, d.rules.minHealthPercent) {
		return append(addresses, d.order...), true
	}
	for _, a := range d.order {
		if !d.hosts[a].ejected {
			addresses = append(addresses, a)
		}
	}
	return addresses, false
}
