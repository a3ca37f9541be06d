package outlier

import (
	"strings"
	"testing"
	"time"
)

func TestParseClusterName(t *testing.T) {
	for _, tc := range []struct {
		name string
		want clusterName
		ok   bool
	}{
		{"outbound|80|v2|web.shop.svc.cluster.local", clusterName{"v2", "web", "shop"}, true},
		{"outbound|80||web.shop.svc.cluster.local", clusterName{"", "web", "shop"}, true},
		{"outbound_.80_.v2_.web.shop.svc.cluster.local", clusterName{"v2", "web", "shop"}, true},
		{"outbound_.80_._.web.shop.svc.cluster.local", clusterName{"", "web", "shop"}, true},
		{"outbound|80||web.shop.svc", clusterName{"", "web", "shop"}, true},
		{"outbound|80||web.shop.svc.acme.internal", clusterName{"", "web", "shop"}, true},
		{"inbound|80||", clusterName{}, false},
		{"inbound|80||web.shop.svc.cluster.local", clusterName{}, false},
		{"outbound|80||api.example.com", clusterName{}, false},
		{"outbound|80||web.shop.svcx", clusterName{}, false},
		{"outbound|http||web.shop.svc.cluster.local", clusterName{}, false},
		{"outbound|80", clusterName{}, false},
		{"", clusterName{}, false},
	} {
		got, ok := parseClusterName(tc.name)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%q: got %+v, %v; want %+v, %v", tc.name, got, ok, tc.want, tc.ok)
		}
	}
}

func FuzzParseClusterName(f *testing.F) {
	f.Add("outbound|80|v2|web.shop.svc.cluster.local")
	f.Add("outbound_.80_.v2_.web.shop.svc")
	f.Fuzz(func(t *testing.T, name string) {
		c, ok := parseClusterName(name)
		if !ok {
			return
		}
		if c.service == "" || c.namespace == "" || strings.ContainsAny(c.service+c.namespace, ".") || !strings.Contains(name, c.service+"."+c.namespace+".svc") {
			t.Fatalf("%q parsed as %+v", name, c)
		}
	})
}

var (
	t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	stableSubset = Target{Namespace: "shop", Canary: "web", Role: RoleStable, Service: "web", Subset: "v1"}
	canarySubset = Target{Namespace: "shop", Canary: "web", Role: RoleCanary, Service: "web", Subset: "v2"}
)

func sharedTargets() []Target {
	return []Target{
		{Namespace: "shop", Canary: "web", Role: RoleStable, Service: "web", Endpoints: []Endpoint{{"10.0.0.1", t0}, {"10.0.0.2", t0}}},
		{Namespace: "shop", Canary: "web", Role: RoleCanary, Service: "web", Endpoints: []Endpoint{{"10.0.0.3", t0}, {"10.0.0.2", t0.Add(time.Minute)}}},
	}
}

func interestOf(t *testing.T, targets ...Target) *Interest {
	t.Helper()
	in, err := newInterest(targets, func(Target) time.Time { return t0 })
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestResolve(t *testing.T) {
	perVersion := []Target{
		{Namespace: "shop", Canary: "web", Role: RoleStable, Service: "web-stable"},
		{Namespace: "shop", Canary: "web", Role: RoleCanary, Service: "web-canary"},
	}
	for _, tc := range []struct {
		name      string
		targets   []Target
		cluster   string
		wants     bool
		exclusive Role // of the series the cluster belongs to alone
	}{
		{"subset", []Target{stableSubset, canarySubset}, v2, true, RoleCanary},
		{"other subset", []Target{stableSubset, canarySubset}, strings.Replace(v2, "v2", "v1", 1), true, RoleStable},
		{"gateway's spelling", []Target{stableSubset, canarySubset}, "outbound_.80_.v2_.web.shop.svc.cluster.local", true, RoleCanary},
		{"another namespace", []Target{stableSubset, canarySubset}, strings.Replace(v2, "shop", "office", 1), false, ""},
		{"whole service of subsets", []Target{stableSubset, canarySubset}, strings.Replace(v2, "v2", "", 1), false, ""},
		{"whole service, one subset known", []Target{canarySubset}, strings.Replace(v2, "v2", "", 1), false, ""},
		{"a service per version", perVersion, "outbound|80||web-canary.shop.svc.cluster.local", true, RoleCanary},
		{"a subset of a version's service", perVersion, "outbound|80|eu|web-canary.shop.svc.cluster.local", true, RoleCanary},
		{"one service for both", sharedTargets(), "outbound|80||web.shop.svc.cluster.local", true, ""},
		{"two services of one version", []Target{perVersion[1], {Namespace: "shop", Canary: "web", Role: RoleCanary, Service: "web-canary"}}, "outbound|80||web-canary.shop.svc.cluster.local", true, RoleCanary},
		{"explicit name", []Target{{Namespace: "shop", Canary: "web", Role: RoleCanary, Clusters: []string{"web_v2"}}}, "web_v2", true, RoleCanary},
		{"unknown name", []Target{canarySubset}, "web_v2", false, ""},
		{"service elsewhere", []Target{{Namespace: "shop", Canary: "web", Role: RoleCanary, Service: "web", ServiceNamespace: "edge"}}, "outbound|80||web.edge.svc.cluster.local", true, RoleCanary},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := interestOf(t, tc.targets...)
			if got := in.Wants(tc.cluster); got != tc.wants {
				t.Errorf("wants %v, want %v", got, tc.wants)
			}
			m := in.resolve(tc.cluster)
			if m.exclusive != (tc.exclusive != "") {
				t.Fatalf("exclusive %v, want %q", m.exclusive, tc.exclusive)
			}
			if m.exclusive && in.targets[m.targets[0]].Role != tc.exclusive {
				t.Errorf("role %s, want %s", in.targets[m.targets[0]].Role, tc.exclusive)
			}
		})
	}
}

func TestAttributeByAddress(t *testing.T) {
	in := interestOf(t, sharedTargets()...)
	m := in.resolve("outbound|80||web.shop.svc.cluster.local")
	for _, tc := range []struct {
		name, address string
		at            time.Time
		want          int
	}{
		{"stable", "10.0.0.1", t0.Add(time.Second), 0},
		{"canary", "10.0.0.3", t0.Add(time.Second), 1},
		{"mapped into IPv6", "::ffff:10.0.0.3", t0.Add(time.Second), 1},
		{"nobody", "10.0.0.9", t0.Add(time.Second), -1},
		{"observed before the pod was", "10.0.0.3", t0.Add(-time.Second), -1},
		{"reused, before", "10.0.0.2", t0.Add(30 * time.Second), 0},
		{"reused, after", "10.0.0.2", t0.Add(90 * time.Second), 1},
	} {
		if got := in.attribute(m, tc.address, tc.at); got != tc.want {
			t.Errorf("%s: target %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestTargetValidate(t *testing.T) {
	for _, tc := range []struct {
		target Target
		want   string
	}{
		{canarySubset, ""},
		{Target{}, "namespace is empty"},
		{Target{Namespace: "shop"}, "canary is empty"},
		{Target{Namespace: "shop", Canary: "web", Role: "new"}, `role is "new"`},
		{Target{Namespace: "shop", Canary: "web", Role: RoleCanary}, "neither service nor clusters"},
		{Target{Namespace: "shop", Canary: "web", Role: RoleCanary, Subset: "v2", Clusters: []string{"x"}}, "without service"},
	} {
		err := tc.target.Validate()
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: got %v, want %q", tc.target, err, tc.want)
		}
	}
}
