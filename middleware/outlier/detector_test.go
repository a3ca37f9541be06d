package outlier

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

func u32(v uint32) *uint32 { return &v }

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.0.%d:80", i+1)
	}
	return out
}

func newTestDetector(t *testing.T, o OutlierDetection, n int) *detector {
	t.Helper()
	if err := (TrafficPolicy{OutlierDetection: &o}).Validate(); err != nil {
		t.Fatal(err)
	}
	d := newDetector(o.rules())
	d.setHosts(names(n))
	return d
}

// feed reports the codes and gives the last decisions, as "type/decision".
func feed(d *detector, now time.Time, address string, codes ...int) []string {
	var out []string
	for _, c := range codes {
		for _, det := range d.report(now, address, c) {
			out = append(out, fmt.Sprintf("%s/%d", det.kind, det.decision))
		}
	}
	return out
}

func repeat(code, n int) []int { return slices.Repeat([]int{code}, n) }

func TestConsecutiveErrors(t *testing.T) {
	const (
		byGateway = "consecutive_gateway_failure/0"
		by5xx     = "consecutive_5xx/0"
	)
	for name, tc := range map[string]struct {
		o     OutlierDetection
		codes []int
		want  []string
	}{
		"default ejects at the fifth 5xx":                          {OutlierDetection{}, repeat(500, 5), []string{by5xx}},
		"default does not at the fourth":                           {OutlierDetection{}, repeat(500, 4), nil},
		"a success starts the count anew":                          {OutlierDetection{}, []int{500, 500, 500, 500, 200, 500, 500, 500, 500}, nil},
		"4xx is a success":                                         {OutlierDetection{}, []int{500, 500, 500, 500, 404, 500}, nil},
		"5xx of all kinds add up":                                  {OutlierDetection{}, []int{500, 501, 502, 503, 599}, []string{by5xx}},
		"600 is no 5xx":                                            {OutlierDetection{}, []int{500, 500, 500, 500, 600, 500}, nil},
		"consecutive5xxErrors 0 disables":                          {OutlierDetection{Consecutive5xxErrors: u32(0)}, repeat(500, 100), nil},
		"consecutive5xxErrors 1":                                   {OutlierDetection{Consecutive5xxErrors: u32(1)}, []int{500}, []string{by5xx}},
		"gateway errors are off by default":                        {OutlierDetection{Consecutive5xxErrors: u32(0)}, repeat(503, 100), nil},
		"gateway errors eject before 5xx":                          {OutlierDetection{ConsecutiveGatewayErrors: u32(3)}, []int{502, 503, 504}, []string{byGateway}},
		"500 is no gateway error and restarts it":                  {OutlierDetection{ConsecutiveGatewayErrors: u32(3), Consecutive5xxErrors: u32(0)}, []int{502, 503, 500, 504, 502}, nil},
		"505 is no gateway error":                                  {OutlierDetection{ConsecutiveGatewayErrors: u32(1), Consecutive5xxErrors: u32(0)}, []int{505, 501, 500}, nil},
		"500 counts for 5xx beside gateway errors":                 {OutlierDetection{ConsecutiveGatewayErrors: u32(3), Consecutive5xxErrors: u32(4)}, []int{502, 503, 500, 502}, []string{by5xx}},
		"gateway at the same count as 5xx wins":                    {OutlierDetection{ConsecutiveGatewayErrors: u32(5)}, repeat(503, 5), []string{byGateway}},
		"gateway above 5xx has no effect":                          {OutlierDetection{ConsecutiveGatewayErrors: u32(6)}, repeat(503, 5), []string{by5xx}},
		"consecutiveErrors counts gateway errors":                  {OutlierDetection{ConsecutiveErrors: 2}, []int{503, 502}, []string{byGateway}},
		"consecutiveErrors turns 5xx off":                          {OutlierDetection{ConsecutiveErrors: 2}, repeat(500, 100), nil},
		"consecutiveErrors yields to the newer fields":             {OutlierDetection{ConsecutiveErrors: 1, ConsecutiveGatewayErrors: u32(3), Consecutive5xxErrors: u32(2)}, []int{503, 503}, []string{by5xx}},
		"errors in flight to an ejected one are not counted again": {OutlierDetection{Consecutive5xxErrors: u32(2)}, repeat(500, 50), []string{by5xx}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDetector(t, tc.o, 10)
			if got := feed(d, epoch, "10.0.0.1:80", tc.codes...); !slices.Equal(got, tc.want) {
				t.Fatalf("detected %v, want %v", got, tc.want)
			}
			if got, want := d.ejected, len(tc.want); got != want {
				t.Fatalf("ejected %d, want %d", got, want)
			}
		})
	}
}

func TestDetectionOffWithoutOutlierDetection(t *testing.T) {
	var none *OutlierDetection
	d := newDetector(none.rules())
	d.setHosts(names(3))
	if got := feed(d, epoch, "10.0.0.1:80", repeat(500, 100)...); got != nil {
		t.Fatalf("detected %v", got)
	}
	if a, off := d.available(); len(a) != 3 || off {
		t.Fatalf("available %v, off %v", a, off)
	}
}

func TestUnknownEndpointIsIgnored(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1)}, 3)
	if got := feed(d, epoch, "10.9.9.9:80", 500); got != nil {
		t.Fatalf("detected %v", got)
	}
}

func TestMayEject(t *testing.T) {
	for _, tc := range []struct {
		ejected, total, percent int
		want                    bool
	}{
		{0, 1, 10, true},    // one is always ejectable: 1/1 = 100 % > 10 %
		{0, 10, 10, true},   // 1/10 = 10 %
		{1, 10, 10, false},  // 2/10 = 20 % > 10 %
		{1, 19, 10, false},  // 2/19 = 10.5 %
		{1, 20, 10, true},   // 2/20 = 10 %
		{2, 10, 30, true},   // 3/10 = 30 %
		{3, 10, 30, false},  // 4/10 = 40 %
		{1, 3, 67, true},    // 2/3 = 66.7 %
		{1, 3, 66, false},   // 2/3 = 66.7 % > 66 %
		{9, 10, 100, true},  // 10/10
		{49, 100, 50, true}, // 50/100
		{50, 100, 50, false},
	} {
		if got := mayEject(tc.ejected, tc.total, tc.percent); got != tc.want {
			t.Errorf("mayEject(%d, %d, %d) = %v", tc.ejected, tc.total, tc.percent, got)
		}
	}
}

func TestMaxEjectionPercent(t *testing.T) {
	for name, tc := range map[string]struct {
		percent int32
		hosts   int
		ejected int
	}{
		"default 10 % of 10":         {0, 10, 1},
		"default 10 % of 25":         {0, 25, 2},
		"default of 3, always one":   {0, 3, 1},
		"1 % of 1, always one":       {1, 1, 1},
		"50 % of 10":                 {50, 10, 5},
		"50 % of 3 is 1":             {50, 3, 1},
		"100 % of 4":                 {100, 4, 4},
		"34 % of 6 is 2 (2.04 of 6)": {34, 6, 2},
		"33 % of 6 is 1 (1.98 of 6)": {33, 6, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDetector(t, OutlierDetection{MaxEjectionPercent: tc.percent, Consecutive5xxErrors: u32(2)}, tc.hosts)
			overflows := 0
			for _, a := range names(tc.hosts) {
				for _, det := range append(d.report(epoch, a, 500), d.report(epoch, a, 500)...) {
					if det.decision == overflowed {
						overflows++
					}
				}
			}
			if d.ejected != tc.ejected || overflows != tc.hosts-tc.ejected {
				t.Fatalf("ejected %d, overflowed %d; want %d and %d", d.ejected, overflows, tc.ejected, tc.hosts-tc.ejected)
			}
			if a, _ := d.available(); len(a) != tc.hosts-tc.ejected {
				t.Fatalf("%d available", len(a))
			}
		})
	}
}

// After an overflow the count starts anew: with 2 errors to break the rule, the
// next overflow is at the 4th error, not at the 3rd.
func TestOverflowRestartsTheCount(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(2)}, 5)
	feed(d, epoch, "10.0.0.1:80", 500, 500)
	want := []string{"consecutive_5xx/1", "consecutive_5xx/1"}
	if got := feed(d, epoch, "10.0.0.2:80", repeat(500, 5)...); !slices.Equal(got, want) {
		t.Fatalf("detected %v, want %v", got, want)
	}
}

func TestEjectionTimeTable(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		base, longest time.Duration
		multiplier    int
		want          time.Duration
	}{
		{30 * s, 300 * s, 1, 30 * s},
		{30 * s, 300 * s, 2, 60 * s},
		{30 * s, 300 * s, 9, 270 * s},
		{30 * s, 300 * s, 10, 300 * s},
		{30 * s, 300 * s, 11, 300 * s},
		{7 * s, 300 * s, 42, 294 * s},
		{7 * s, 300 * s, 43, 300 * s},  // 301 s is cut
		{900 * s, 900 * s, 1, 900 * s}, // a base above 300 s is its own longest
		{900 * s, 900 * s, 2, 900 * s},
		{1 << 62, 1 << 62, 2, 1 << 62}, // would overflow as a product
	} {
		if got := ejectionTime(tc.base, tc.longest, tc.multiplier); got != tc.want {
			t.Errorf("ejectionTime(%s, %s, %d) = %s, want %s", tc.base, tc.longest, tc.multiplier, got, tc.want)
		}
	}
}

func TestNextMultiplier(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		base, longest time.Duration
		most          int
	}{
		{30 * s, 300 * s, 11}, // 10 x 30 s < 330 s still grows, 11 x 30 s = 330 s does not
		{7 * s, 300 * s, 44},  // 43 x 7 s = 301 s < 307 s grows, 44 x 7 s = 308 s does not
		{300 * s, 300 * s, 2}, // 1 x 300 s < 600 s grows, 2 x 300 s does not
		{900 * s, 900 * s, 2},
		{1 << 62, 1 << 62, 2},
	} {
		m := 0
		for range 100 {
			m = nextMultiplier(tc.base, tc.longest, m)
		}
		if m != tc.most {
			t.Errorf("base %s: multiplier ends at %d, want %d", tc.base, m, tc.most)
		}
	}
}

// One endpoint that fails again the moment it returns, base 30 s, interval 10 s:
// ejections of 30, 60, 90, ... 300 s and no longer.
func TestEjectionsGrowToTheMaximum(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1)}, 5)
	now := epoch
	for i, want := range []int{30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300} {
		found := d.report(now, "10.0.0.1:80", 500)
		if len(found) != 1 || found[0].decision != enforced || found[0].duration != time.Duration(want)*time.Second {
			t.Fatalf("ejection %d: %+v, want %d s", i+1, found, want)
		}
		start := now
		for d.ejected == 1 {
			now = now.Add(10 * time.Second)
			d.sweep(now)
		}
		if got := now.Sub(start); got != time.Duration(want)*time.Second {
			t.Fatalf("ejection %d lasted %s, want %d s", i+1, got, want)
		}
	}
	if got := d.hosts["10.0.0.1:80"].ejections; got != 12 {
		t.Fatalf("%d ejections", got)
	}
}

// An ejection of 30 s ends with the first sweep at or after 30 s: with sweeps at
// 12, 24 and 36 s that is 36 s.
func TestReturnWaitsForASweep(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1), Interval: 12 * time.Second}, 5)
	d.report(epoch, "10.0.0.1:80", 500)
	for _, tc := range []struct {
		at      time.Duration
		ejected int
	}{{12 * time.Second, 1}, {24 * time.Second, 1}, {36 * time.Second, 0}} {
		d.sweep(epoch.Add(tc.at))
		if d.ejected != tc.ejected {
			t.Fatalf("at %s: %d ejected, want %d", tc.at, d.ejected, tc.ejected)
		}
	}
	d2 := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1)}, 5)
	d2.report(epoch, "10.0.0.1:80", 500)
	if got := d2.sweep(epoch.Add(30*time.Second - time.Nanosecond)); got != nil {
		t.Fatalf("returned %v a nanosecond early", got)
	}
	if got := d2.sweep(epoch.Add(30 * time.Second)); !slices.Equal(got, []string{"10.0.0.1:80"}) {
		t.Fatalf("returned %v at 30 s", got)
	}
}

// Three ejections in a row make the multiplier 3. Back in service at time R it
// decays with each sweep at or after R + 10 s: 2 after R+10, 1 after R+20, so a
// failure after R+20 ejects for 60 s; after R+30 it is 0 and ejects for 30 s.
func TestMultiplierDecays(t *testing.T) {
	for _, tc := range []struct {
		healthySweeps int
		want          time.Duration
	}{{0, 120 * time.Second}, {1, 90 * time.Second}, {2, 60 * time.Second}, {3, 30 * time.Second}, {9, 30 * time.Second}} {
		d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1)}, 5)
		now := epoch
		for range 3 {
			d.report(now, "10.0.0.1:80", 500)
			for d.ejected == 1 {
				now = now.Add(10 * time.Second)
				d.sweep(now)
			}
		}
		for range tc.healthySweeps {
			now = now.Add(10 * time.Second)
			d.sweep(now)
		}
		found := d.report(now, "10.0.0.1:80", 500)
		if len(found) != 1 || found[0].duration != tc.want {
			t.Errorf("after %d sweeps in health: %+v, want %s", tc.healthySweeps, found, tc.want)
		}
	}
}

// A sweep sooner than an interval after the return does not decay.
func TestNoDecayWithinAnInterval(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1)}, 5)
	d.report(epoch, "10.0.0.1:80", 500)
	d.sweep(epoch.Add(30 * time.Second))
	d.sweep(epoch.Add(39 * time.Second))
	if got := d.hosts["10.0.0.1:80"].multiplier; got != 1 {
		t.Fatalf("multiplier %d after 9 s, want 1", got)
	}
	d.sweep(epoch.Add(40 * time.Second))
	if got := d.hosts["10.0.0.1:80"].multiplier; got != 0 {
		t.Fatalf("multiplier %d after 10 s, want 0", got)
	}
}

// Errors from before and during the ejection do not count after it.
func TestReturnStartsTheCountAnew(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(3), ConsecutiveGatewayErrors: u32(5)}, 5)
	feed(d, epoch, "10.0.0.1:80", 503, 503, 503, 503, 503, 503, 503)
	d.sweep(epoch.Add(30 * time.Second))
	if got := feed(d, epoch, "10.0.0.1:80", 503, 503); got != nil {
		t.Fatalf("detected %v after two errors", got)
	}
	if got := feed(d, epoch, "10.0.0.1:80", 503); len(got) != 1 {
		t.Fatalf("detected %v after the third", got)
	}
}

func TestEjectionOff(t *testing.T) {
	for _, tc := range []struct {
		healthy, total, min int
		want                bool
	}{
		{5, 10, 50, false}, // 50 % is not below 50 %
		{4, 10, 50, true},
		{2, 3, 67, true}, // 66.7 %
		{2, 3, 66, false},
		{0, 10, 0, false}, // 0 disables it, even with none healthy
		{0, 1, 1, true},
		{0, 0, 50, false}, // no endpoints: nothing to balance over
	} {
		if got := ejectionOff(tc.healthy, tc.total, tc.min); got != tc.want {
			t.Errorf("ejectionOff(%d, %d, %d) = %v", tc.healthy, tc.total, tc.min, got)
		}
	}
}

// 10 endpoints, all may be ejected, minHealthPercent 60: four ejections leave 6
// of 10 = 60 % healthy, which is enough; the fifth leaves 50 %, which switches
// ejection off for all; a sixth is then not made, and when the first returns
// (60 %) ejection is back in force.
func TestMinHealthPercent(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1), MaxEjectionPercent: 100, MinHealthPercent: 60}, 10)
	hosts := names(10)
	for i := range 4 {
		d.report(epoch.Add(time.Duration(i)*time.Second), hosts[i], 500)
	}
	if a, off := d.available(); off || !slices.Equal(a, hosts[4:]) {
		t.Fatalf("four ejected: available %v, off %v", a, off)
	}
	if got := d.report(epoch.Add(4*time.Second), hosts[4], 500); len(got) != 1 || got[0].decision != enforced {
		t.Fatalf("fifth: %+v", got)
	}
	if a, off := d.available(); !off || !slices.Equal(a, hosts) {
		t.Fatalf("five ejected: available %v, off %v", a, off)
	}
	if got := d.report(epoch.Add(5*time.Second), hosts[5], 500); len(got) != 1 || got[0].decision != suppressed {
		t.Fatalf("sixth: %+v", got)
	}
	if d.ejected != 5 {
		t.Fatalf("%d ejected, want 5", d.ejected)
	}
	d.sweep(epoch.Add(30 * time.Second))
	want := append([]string{hosts[0]}, hosts[5:]...)
	if a, off := d.available(); off || !slices.Equal(a, want) {
		t.Fatalf("one returned: available %v, off %v", a, off)
	}
	if got := d.report(epoch.Add(31*time.Second), hosts[5], 500); len(got) != 1 || got[0].decision != enforced {
		t.Fatalf("after the return: %+v", got)
	}
}

// Without minHealthPercent all may be ejected, and then none is left.
func TestAllEjected(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1), MaxEjectionPercent: 100}, 3)
	for _, a := range names(3) {
		d.report(epoch, a, 500)
	}
	if a, off := d.available(); len(a) != 0 || off {
		t.Fatalf("available %v, off %v", a, off)
	}
}

func TestSetHosts(t *testing.T) {
	d := newTestDetector(t, OutlierDetection{Consecutive5xxErrors: u32(1), MaxEjectionPercent: 50}, 4)
	d.report(epoch, "10.0.0.1:80", 500)
	d.report(epoch, "10.0.0.2:80", 500)
	// 1 goes and 5 comes: 2 stays ejected and one more may be.
	d.setHosts([]string{"10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80", "10.0.0.3:80"})
	if d.ejected != 1 || len(d.order) != 4 {
		t.Fatalf("%d of %v ejected", d.ejected, d.order)
	}
	if a, _ := d.available(); !slices.Equal(a, []string{"10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80"}) {
		t.Fatalf("available %v", a)
	}
	// 1 comes back as a new endpoint, with no history.
	d.setHosts(names(4))
	if h := d.hosts["10.0.0.1:80"]; h.ejected || h.multiplier != 0 {
		t.Fatalf("returned endpoint has history: %+v", h)
	}
	d.setHosts(nil)
	if a, off := d.available(); len(a) != 0 || off || d.ejected != 0 {
		t.Fatalf("available %v, off %v, ejected %d", a, off, d.ejected)
	}
}
