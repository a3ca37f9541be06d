package outlier

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// at is the moment of the nth sweep.
func at(n int) time.Time { return t0.Add(time.Duration(n) * 15 * time.Second) }

// sweepOnce makes one sweep of the readings and returns the result by role.
func sweepOnce(t *testing.T, l *ledger, start time.Time, targets []Target, readings ...Reading) map[Role]Result {
	t.Helper()
	s, err := l.begin(start, targets)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range readings {
		r.At = start
		s.observe(r)
	}
	out := map[Role]Result{}
	for _, r := range s.finish() {
		out[r.Role] = r
	}
	return out
}

// proxyStats is a reading of one cluster's statistics: -1 leaves one out.
func proxyStats(proxy string, active, consecutive5xx, total float64) Reading {
	c := newClusterReading(v2)
	c.HasActive, c.Active = active >= 0, max(active, 0)
	c.Enforced[0], c.Enforced[counterTotal] = consecutive5xx, total
	return Reading{Proxy: proxy, Clusters: []ClusterReading{*c}}
}

func proxyHosts(proxy, cluster string, endpoints ...EndpointReading) Reading {
	c := newClusterReading(cluster)
	c.Endpoints = endpoints
	return Reading{Proxy: proxy, Clusters: []ClusterReading{*c}}
}

func ejections(typed5xx, unspecified float64) [numTypes]float64 {
	var e [numTypes]float64
	e[0], e[counterTotal] = typed5xx, unspecified
	return e
}

func TestViewsAreTheCallers(t *testing.T) {
	targets := []Target{stableSubset, canarySubset}
	idle := proxyStats("idle", 0, 0, 0)
	idle.Clusters[0].Connections = 0
	noGauge := proxyStats("no-gauge", -1, 3, 3)
	got := sweepOnce(t, newLedger(), at(0), targets,
		proxyStats("a", 1, 5, 5), proxyStats("b", 3, 5, 5), proxyStats("c", 0, 0, 0), idle, noGauge, Reading{Proxy: "other"})
	c := got[RoleCanary]
	// Three proxies show the gauge and have used the cluster; two eject. The
	// statistics do not say which endpoints: at least the three of b.
	if c.Observed != 3 || c.Ejecting != 2 || c.Ejected != 3 {
		t.Errorf("canary %+v, want 3 observed, 2 ejecting, 3 ejected", c)
	}
	if s := got[RoleStable]; s.Observed != 0 || s.Counted {
		t.Errorf("stable %+v, want blind", s)
	}
}

func TestDistinctEndpoints(t *testing.T) {
	cluster := "outbound|80||web.shop.svc.cluster.local"
	other := "outbound|443||web.shop.svc.cluster.local"
	bad := func(a string) EndpointReading { return EndpointReading{Address: a, Ejected: true, Connections: 5} }
	good := func(a string) EndpointReading { return EndpointReading{Address: a, Connections: 5} }
	unused := func(a string) EndpointReading { return EndpointReading{Address: a, Connections: 0} }
	a := proxyHosts("a", cluster, good("10.0.0.1"), bad("10.0.0.3"))
	a.Clusters = append(a.Clusters, proxyHosts("", other, bad("10.0.0.3")).Clusters...)
	got := sweepOnce(t, newLedger(), t0.Add(2*time.Minute), sharedTargets(),
		a,
		proxyHosts("b", cluster, good("10.0.0.1"), bad("10.0.0.3"), bad("10.0.0.2")),
		proxyHosts("c", cluster, good("10.0.0.1"), unused("10.0.0.3")),
		proxyHosts("d", cluster, bad("10.0.0.77")))
	if s := got[RoleStable]; s.Observed != 3 || s.Ejecting != 0 || s.Ejected != 0 {
		t.Errorf("stable %+v, want 3 observed, none ejecting", s)
	}
	// 10.0.0.3 by a (on two ports) and b, 10.0.0.2 by b; c never called the
	// canary; the address d ejects is nobody's.
	if c := got[RoleCanary]; c.Observed != 2 || c.Ejecting != 2 || c.Ejected != 2 {
		t.Errorf("canary %+v, want 2 observed, 2 ejecting, 2 ejected", c)
	}
}

func TestSharedClusterStatisticsTellNothing(t *testing.T) {
	r := proxyStats("a", 2, 7, 7)
	r.Clusters[0].Name = "outbound|80||web.shop.svc.cluster.local"
	l := newLedger()
	for n := range 2 {
		got := sweepOnce(t, l, at(n), []Target{stableSubset, canarySubset}, r)
		for role, res := range got {
			if res.Observed != 0 || res.Counted {
				t.Errorf("sweep %d, %s: %+v, want blind", n, role, res)
			}
		}
	}
}

func TestCounters(t *testing.T) {
	targets := []Target{canarySubset}
	created := func(r Reading, n int) Reading { r.Created = at(n).Add(time.Second); return r }
	booted := func(r Reading, n int) Reading { r.Booted = at(n).Add(time.Second); return r }
	for _, tc := range []struct {
		name   string
		sweeps [][]Reading
		want   [numTypes]float64
	}{
		{"history before the first sweep does not count",
			[][]Reading{{proxyStats("a", 0, 40, 40)}}, ejections(0, 0)},
		{"growth counts, once, under its kind",
			[][]Reading{{proxyStats("a", 0, 40, 40)}, {proxyStats("a", 1, 42, 42)}, {proxyStats("a", 1, 42, 42)}}, ejections(2, 0)},
		{"all proxies are added up",
			[][]Reading{{proxyStats("a", 0, 1, 1), proxyStats("b", 0, 0, 0)}, {proxyStats("a", 1, 2, 2), proxyStats("b", 1, 3, 3)}}, ejections(4, 0)},
		{"a smaller value is a reset",
			[][]Reading{{proxyStats("a", 0, 40, 40)}, {proxyStats("a", 0, 3, 3)}}, ejections(3, 0)},
		{"a restart that grew past the old value, by container",
			[][]Reading{{created(proxyStats("a", 0, 2, 2), -9)}, {created(proxyStats("a", 0, 3, 3), 0)}}, ejections(3, 0)},
		{"a restart that grew past the old value, by uptime",
			[][]Reading{{booted(proxyStats("a", 0, 2, 2), -9)}, {booted(proxyStats("a", 0, 3, 3), 0)}}, ejections(3, 0)},
		{"uptime in whole seconds wanders",
			[][]Reading{{booted(proxyStats("a", 0, 2, 2), -9)}, {func() Reading {
				r := booted(proxyStats("a", 0, 3, 3), -9)
				r.Booted = r.Booted.Add(time.Second)
				return r
			}()}}, ejections(1, 0)},
		{"the first increment of a proxy that was read before",
			[][]Reading{{{Proxy: "a"}}, {proxyStats("a", 1, 1, 1)}}, ejections(1, 0)},
		{"a proxy that started since counts from zero",
			[][]Reading{{}, {created(proxyStats("a", 1, 2, 2), 0)}}, ejections(2, 0)},
		{"a proxy that started before does not",
			[][]Reading{{}, {created(proxyStats("a", 1, 2, 2), -9)}}, ejections(0, 0)},
		{"a sweep that failed loses nothing",
			[][]Reading{{proxyStats("a", 0, 1, 1)}, {}, {proxyStats("a", 0, 4, 4)}}, ejections(3, 0)},
		{"an evicted statistic that comes back counts what is new",
			[][]Reading{{proxyStats("a", 0, 4, 4)}, {{Proxy: "a"}}, {proxyStats("a", 0, 1, 1)}}, ejections(1, 0)},
		{"a statistic that was only hidden does not count again",
			[][]Reading{{proxyStats("a", 0, 4, 4)}, {{Proxy: "a"}}, {proxyStats("a", 0, 5, 5)}}, ejections(1, 0)},
		{"only the total is published",
			[][]Reading{{proxyStats("a", 0, -1, 1)}, {proxyStats("a", 0, -1, 5)}}, ejections(0, 4)},
		{"the total beyond the known kinds",
			[][]Reading{{proxyStats("a", 0, 1, 1)}, {proxyStats("a", 0, 2, 5)}}, ejections(1, 3)},
		{"only kinds are published",
			[][]Reading{{proxyStats("a", 0, 1, -1)}, {proxyStats("a", 0, 4, -1)}}, ejections(3, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger()
			var got Result
			for n, readings := range tc.sweeps {
				got = sweepOnce(t, l, at(n), targets, readings...)[RoleCanary]
			}
			if !got.Counted || got.Ejections != tc.want {
				t.Errorf("counted %v, %v; want %v", got.Counted, got.Ejections, tc.want)
			}
		})
	}
}

func TestEndpointEjectionsAreTransitions(t *testing.T) {
	targets := []Target{canarySubset}
	host := func(ejected bool) Reading {
		return proxyHosts("a", v2, EndpointReading{Address: "10.0.0.3", Ejected: ejected, Connections: 1})
	}
	l := newLedger()
	for n, tc := range []struct {
		reading Reading
		want    float64
	}{
		{host(true), 0},          // was so before we looked
		{host(false), 0},         // back
		{host(true), 1},          // ejected
		{host(true), 1},          // still
		{Reading{Proxy: "a"}, 1}, // the pod is gone
		{host(true), 2},          // a pod of the same address, ejected anew
	} {
		got := sweepOnce(t, l, at(n), targets, tc.reading)[RoleCanary]
		if got.Ejections[counterTotal] != tc.want {
			t.Errorf("sweep %d: %v ejections, want %v", n, got.Ejections[counterTotal], tc.want)
		}
	}
}

func TestDeletedAndRecreatedStartsAnew(t *testing.T) {
	first, second := canarySubset, canarySubset
	first.UID, second.UID = "1", "2"
	l := newLedger()
	sweepOnce(t, l, at(0), []Target{first}, proxyStats("a", 0, 1, 1))
	got := sweepOnce(t, l, at(1), []Target{first}, proxyStats("a", 0, 4, 4))[RoleCanary]
	if got.Ejections != ejections(3, 0) {
		t.Fatalf("first life: %v, want 3", got.Ejections)
	}
	if got := sweepOnce(t, l, at(2), nil); len(got) != 0 {
		t.Fatalf("deleted: %v", got)
	}
	if len(l.totals) != 0 || len(l.watched) != 0 {
		t.Fatalf("deleted Canary is remembered: %v, %v", l.totals, l.watched)
	}
	// What was ejected between the two lives belongs to neither.
	got = sweepOnce(t, l, at(3), []Target{second}, proxyStats("a", 0, 9, 9))[RoleCanary]
	if got.Ejections != ejections(0, 0) {
		t.Fatalf("second life starts with %v", got.Ejections)
	}
	got = sweepOnce(t, l, at(4), []Target{second}, proxyStats("a", 0, 10, 10))[RoleCanary]
	if got.Ejections != ejections(1, 0) {
		t.Fatalf("second life: %v, want 1", got.Ejections)
	}
}

func TestLedgerForgets(t *testing.T) {
	l := newLedger()
	targets := []Target{canarySubset}
	young := proxyStats("a", 0, 3, 3)
	young.Created = at(0).Add(time.Second)
	sweepOnce(t, l, at(0), targets)
	if got := sweepOnce(t, l, at(1), targets, young)[RoleCanary]; got.Ejections != ejections(3, 0) {
		t.Fatalf("got %v, want 3", got.Ejections)
	}
	sweepOnce(t, l, at(1).Add(retention+time.Second), targets)
	if len(l.proxies) != 0 {
		t.Fatalf("%d proxies remembered", len(l.proxies))
	}
	// Its counter was counted once already.
	got := sweepOnce(t, l, at(1).Add(retention+time.Minute), targets, young)[RoleCanary]
	if got.Ejections != ejections(3, 0) {
		t.Fatalf("counted again: %v", got.Ejections)
	}
}

func TestInvalidTargetsDoNotStopTheOthers(t *testing.T) {
	s, err := newLedger().begin(at(0), []Target{{Namespace: "shop"}, canarySubset})
	if err == nil || len(s.interest.Targets()) != 1 {
		t.Fatalf("got %v and %d targets, want an error and 1", err, len(s.interest.Targets()))
	}
}

// Whatever the proxies do - eject, restart, hide the statistic, fail to be
// read - what is counted never exceeds what happened since the watch began,
// never falls, and is exact while every proxy is read and tells its start.
func TestCountersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type proxy struct {
			counter float64
			created time.Time
		}
		l := newLedger()
		targets := []Target{canarySubset}
		proxies := make([]proxy, rapid.IntRange(1, 4).Draw(t, "proxies"))
		for i := range proxies {
			proxies[i] = proxy{counter: float64(rapid.IntRange(0, 5).Draw(t, "history")), created: t0.Add(-time.Hour)}
		}
		exact := true
		happened, last := 0.0, 0.0
		read := func(n int) float64 {
			s, err := l.begin(at(n), targets)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range proxies {
				if n > 0 && rapid.IntRange(0, 5).Draw(t, "unreadable") == 0 {
					exact = false
					continue
				}
				r := proxyStats(string(rune('a'+i)), 0, p.counter, p.counter)
				r.Created, r.At = p.created, at(n)
				s.observe(r)
			}
			res := s.finish()[0]
			sum := 0.0
			for _, v := range res.Ejections {
				sum += v
			}
			return sum
		}
		if got := read(0); got != 0 {
			t.Fatalf("history counted: %v", got)
		}
		for n := 1; n < rapid.IntRange(2, 12).Draw(t, "sweeps"); n++ {
			for i := range proxies {
				if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
					// The counter is lost with what it grew since it was read,
					// which is nothing here.
					proxies[i] = proxy{created: at(n).Add(-time.Second)}
				}
				grow := float64(rapid.IntRange(0, 3).Draw(t, "ejections"))
				proxies[i].counter += grow
				happened += grow
			}
			got := read(n)
			if got < last {
				t.Fatalf("sweep %d: counter fell from %v to %v", n, last, got)
			}
			if got > happened {
				t.Fatalf("sweep %d: counted %v of %v", n, got, happened)
			}
			if exact && math.Abs(got-happened) > 0 {
				t.Fatalf("sweep %d: counted %v, happened %v", n, got, happened)
			}
			last = got
		}
	})
}
