package outlier

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawRules(t *rapid.T) rules {
	o := &OutlierDetection{
		Consecutive5xxErrors:     u32(rapid.Uint32Range(0, 4).Draw(t, "5xx")),
		ConsecutiveGatewayErrors: u32(rapid.Uint32Range(0, 4).Draw(t, "gateway")),
		Interval:                 time.Duration(rapid.IntRange(1, 60).Draw(t, "interval")) * time.Second,
		BaseEjectionTime:         time.Duration(rapid.IntRange(1, 600).Draw(t, "base")) * time.Second,
		MaxEjectionPercent:       rapid.Int32Range(0, 100).Draw(t, "max"),
		MinHealthPercent:         rapid.Int32Range(0, 100).Draw(t, "min"),
	}
	return o.rules()
}

// Whatever happens: an ejection is never made beyond maxEjectionPercent but for
// the one that is always allowed, nor while too few are healthy; only healthy
// endpoints are available unless ejection is off; times stay within bounds; and
// once errors stop, everything returns.
func TestDetectorInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRules(t)
		d := newDetector(r)
		hosts := names(rapid.IntRange(1, 30).Draw(t, "hosts"))
		d.setHosts(hosts)
		now := epoch
		steps := rapid.IntRange(1, 300).Draw(t, "steps")
		for range steps {
			switch op := rapid.IntRange(0, 20).Draw(t, "op"); {
			case op == 0:
				hosts = names(rapid.IntRange(0, 30).Draw(t, "hosts"))
				d.setHosts(hosts)
			case op <= 3:
				now = now.Add(r.interval)
				for _, a := range d.sweep(now) {
					if d.hosts[a].ejected {
						t.Fatalf("%s returned and is ejected", a)
					}
				}
			case op == 4:
				now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "pass")) * time.Second)
			case len(hosts) > 0:
				a := rapid.SampledFrom(hosts).Draw(t, "host")
				code := rapid.SampledFrom([]int{200, 404, 500, 500, 502, 503, 504}).Draw(t, "code")
				healthyBefore := len(d.order) - d.ejected
				for _, det := range d.report(now, a, code) {
					checkDetection(t, d, r, det, healthyBefore)
				}
			}
			checkState(t, d, r)
		}
		// No more errors: after the longest ejection and a sweep none is ejected,
		// and in the end no history is left.
		now = now.Add(r.maxEjection)
		d.sweep(now)
		if d.ejected != 0 {
			t.Fatalf("%d still ejected after %s", d.ejected, r.maxEjection)
		}
		for range int(r.maxEjection/r.baseEjection) + 3 {
			now = now.Add(r.interval)
			d.sweep(now)
		}
		for a, h := range d.hosts {
			if h.multiplier != 0 {
				t.Fatalf("%s keeps multiplier %d", a, h.multiplier)
			}
		}
	})
}

func checkDetection(t *rapid.T, d *detector, r rules, det detection, healthyBefore int) {
	total := len(d.order)
	switch det.decision {
	case enforced:
		if d.ejected > 1 && d.ejected*100 > r.maxEjectionPercent*total {
			t.Fatalf("%d of %d ejected with maxEjectionPercent %d", d.ejected, total, r.maxEjectionPercent)
		}
		if healthyBefore*100 < r.minHealthPercent*total {
			t.Fatalf("ejected with %d of %d healthy and minHealthPercent %d", healthyBefore, total, r.minHealthPercent)
		}
		if det.duration < r.baseEjection || det.duration > r.maxEjection {
			t.Fatalf("ejected for %s, base %s, longest %s", det.duration, r.baseEjection, r.maxEjection)
		}
	case overflowed:
		if d.ejected == 0 {
			t.Fatal("overflow with none ejected: one must always be ejectable")
		}
	case suppressed:
		if r.minHealthPercent == 0 {
			t.Fatal("suppressed without minHealthPercent")
		}
	}
	if d.hosts[det.address].ejected != (det.decision == enforced) {
		t.Fatalf("decision %d does not match the state", det.decision)
	}
}

func checkState(t *rapid.T, d *detector, r rules) {
	ejected := 0
	for _, a := range d.order {
		if d.hosts[a].ejected {
			ejected++
		}
	}
	if ejected != d.ejected || len(d.order) != len(d.hosts) {
		t.Fatalf("counts %d, are %d; %d in order, %d known", d.ejected, ejected, len(d.order), len(d.hosts))
	}
	available, off := d.available()
	if off {
		if len(available) != len(d.order) {
			t.Fatal("ejection off but not all are available")
		}
		return
	}
	if len(available) != len(d.order)-ejected {
		t.Fatalf("%d available of %d with %d ejected", len(available), len(d.order), ejected)
	}
	for _, a := range available {
		if d.hosts[a].ejected {
			t.Fatalf("%s is ejected and available", a)
		}
	}
}
