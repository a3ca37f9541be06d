package prometheus

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func allowList(t testing.TB, entries ...string) AllowList {
	t.Helper()
	l, err := ParseAllowList(entries)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParseAllowListRefuses(t *testing.T) {
	for entry, want := range map[string]string{
		"":                          "want a host name",
		"http://prom.example.com":   "neither a host nor a CIDR",
		"prom.example.com:9090":     "want a host name",
		"prom.example.com.":         "want a host name",
		"*.":                        "want a host name",
		"**":                        "want a host name",
		"a.*.com":                   "want a host name",
		"*.*.com":                   "want a host name",
		"-a.com":                    "want a host name",
		"a b":                       "want a host name",
		"ünïcode.example":           "want a host name",
		"10.0.0":                    "want a host name",
		"0x7f.1":                    "want a host name",
		"1.0x7f":                    "want a host name",
		strings.Repeat("a", 64):     "want a host name",
		"10.0.0.0/33":               "neither a host nor a CIDR",
		"10.0.0.1/8":                "write 10.0.0.0/8",
		"::ffff:10.0.0.0/104":       "write it as IPv4",
		"::ffff:10.0.0.1":           "write it as IPv4",
		"fe80::1%eth0":              "zone",
		"169.254.169.254":           "169.254.0.0/16 is never called",
		"169.254.0.0/17":            "169.254.0.0/16 is never called",
		"fe80::/64":                 "fe80::/10 is never called",
		"fd00:ec2::254":             "is never called",
		"100.100.100.200":           "is never called",
		"0.0.0.0":                   "0.0.0.0/8 is never called",
		"::":                        "::/128 is never called",
		"224.0.0.1":                 "224.0.0.0/4 is never called",
		"ff02::1":                   "ff00::/8 is never called",
		strings.Repeat("a.", 130):   "want a host name",
		"user@prom.example.com":     "want a host name",
		"prom.example.com/api/v1/x": "neither a host nor a CIDR",
	} {
		if _, err := ParseAllowList([]string{"ok.example.com", entry}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", entry, err, want)
		} else if entry != "" && !strings.Contains(err.Error(), strings.ToValidUTF8(entry, "")) {
			t.Errorf("%q: error %v does not name the entry", entry, err)
		}
	}
}

func TestPolicyHosts(t *testing.T) {
	p := policy{
		allow:         allowList(t, "Prom.Example.com", "*.metrics.example.com"),
		clusterDomain: "cluster.local",
		own:           map[string]bool{"127.0.0.1:9090": true, "prom.corp:443": true},
	}
	withCIDR := p
	withCIDR.allow = allowList(t, "10.20.0.0/16", "127.0.0.0/8")
	every := p
	every.allow = allowList(t, "*")

	for _, tc := range []struct {
		policy  policy
		address string
		why     admission
		resolve string
		refused string
	}{
		{p, "http://prometheus.monitoring:9090", byCluster, "prometheus.monitoring.svc", ""},
		{p, "http://prometheus.monitoring.svc:9090/p", byCluster, "prometheus.monitoring.svc", ""},
		{p, "http://prometheus.monitoring.svc.cluster.local", byCluster, "prometheus.monitoring.svc.cluster.local", ""},
		{p, "http://PROMETHEUS.Monitoring.SVC.", byCluster, "prometheus.monitoring.svc", ""},
		{p, "http://pod-0.prometheus.monitoring.svc", byCluster, "pod-0.prometheus.monitoring.svc", ""},
		// evil.com is the Service evil in the namespace com, never the host of the internet.
		{p, "http://evil.com", byCluster, "evil.com.svc", ""},
		{p, "http://www.evil.com", 0, "", "not allowed"},
		{p, "http://prometheus.monitoring.svc.other.domain", 0, "", "not allowed"},
		{p, "http://cluster.local.evil.com", 0, "", "not allowed"},
		{p, "http://svc.cluster.local", 0, "", "not allowed"},
		{p, "http://x.svc.cluster.local", 0, "", "not allowed"},
		{p, "http://x.svc", byCluster, "x.svc.svc", ""},
		{p, "http://prometheus", 0, "", "not allowed"},
		{p, "http://localhost:9090", 0, "", "not allowed"},
		{p, "http://metadata.google.internal", 0, "", "not allowed"},
		{p, "http://prom.example.com", byName, "prom.example.com", ""},
		{p, "http://xprom.example.com", 0, "", "not allowed"},
		{p, "http://a.metrics.example.com", byName, "a.metrics.example.com", ""},
		{p, "http://a.b.metrics.example.com", byName, "a.b.metrics.example.com", ""},
		{p, "http://metrics.example.com", 0, "", "not allowed"},
		{p, "http://xmetrics.example.com", 0, "", "not allowed"},
		{p, "http://127.0.0.1:9090", byController, "127.0.0.1", ""},
		{p, "http://127.0.0.1:9091", 0, "", "loopback"},
		{p, "https://prom.corp", byController, "prom.corp", ""},
		{p, "http://prom.corp", byCluster, "prom.corp.svc", ""},
		{p, "http://10.20.3.4", 0, "", "not in the controller's allow list"},
		{p, "http://169.254.169.254", 0, "", "169.254.0.0/16"},
		{p, "http://[fe80::1%25eth0]", 0, "", "fe80::/10"},
		{p, "http://[fd00:ec2::254]", 0, "", "never called"},
		{p, "http://[::ffff:169.254.169.254]", 0, "", "169.254.0.0/16"},
		{p, "http://[64:ff9b::a9fe:a9fe]", 0, "", "169.254.0.0/16"},
		{p, "http://[::1]:9090", 0, "", "loopback"},
		{p, "http://0.0.0.0", 0, "", "0.0.0.0/8"},
		{p, "http://[::]", 0, "", "::/128"},
		// Forms of 127.0.0.1 that some resolvers accept.
		{p, "http://2130706433", 0, "", "not a host name"},
		{p, "http://0x7f.0x0.0x0.0x1", 0, "", "not a host name"},
		{p, "http://127.1", 0, "", "not a host name"},
		{p, "http://0177.0.0.1", 0, "", "not a host name"},
		{p, "http://prom．monitoring", 0, "", "not a host name"},
		{withCIDR, "http://10.20.3.4:9090", byPrefix, "10.20.3.4", ""},
		{withCIDR, "http://10.21.3.4:9090", 0, "", "not in the controller's allow list"},
		{withCIDR, "http://127.0.0.1:9091", byPrefix, "127.0.0.1", ""},
		{withCIDR, "http://prom.office.example", byPrefix, "prom.office.example", ""},
		{every, "http://www.example.com", byName, "www.example.com", ""},
		{every, "http://127.0.0.1:9091", 0, "", "loopback"},
		{every, "http://169.254.169.254", 0, "", "never called"},
	} {
		u, err := url.Parse(tc.address)
		if err != nil {
			t.Fatal(err)
		}
		why, resolve, err := tc.policy.admit(u)
		switch {
		case tc.refused != "":
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v (resolves %q), want an error with %q", tc.address, err, resolve, tc.refused)
			}
		case err != nil || why != tc.why || resolve != tc.resolve:
			t.Errorf("%s: %d, resolves %q, %v; want %d, %q", tc.address, why, resolve, err, tc.why, tc.resolve)
		}
	}
}

func TestPolicyIPs(t *testing.T) {
	none := policy{clusterDomain: "cluster.local"}
	some := policy{clusterDomain: "cluster.local", allow: allowList(t, "203.0.113.0/24", "2001:db8::/32", "0.0.0.0/0", "127.0.0.2")}
	for _, tc := range []struct {
		policy policy
		why    admission
		ip     string
		want   string // part of the error, empty for none
	}{
		{none, byCluster, "10.1.2.3", ""},
		{none, byCluster, "172.16.0.1", ""},
		{none, byCluster, "100.64.0.1", ""},
		{none, byCluster, "fd12::1", ""},
		{none, byCluster, "::ffff:10.1.2.3", ""},
		// A Service of type ExternalName leads anywhere.
		{none, byCluster, "93.184.216.34", "must be private"},
		{none, byCluster, "169.254.169.254", "never called"},
		{none, byCluster, "127.0.0.1", "loopback"},
		{none, byCluster, "::1", "loopback"},
		{none, byCluster, "::ffff:127.0.0.1", "loopback"},
		{none, byCluster, "100.100.100.200", "never called"},
		{none, byCluster, "168.63.129.16", "never called"},
		{none, byCluster, "2002:a9fe:a9fe::1", "never called"},
		{none, byCluster, "64:ff9b::7f00:1", "loopback"},
		{none, byName, "93.184.216.34", ""},
		{none, byName, "10.1.2.3", ""},
		{none, byName, "169.254.1.1", "never called"},
		{none, byName, "127.0.0.1", "loopback"},
		{none, byName, "fe80::1%eth0", "never called"},
		{none, byController, "127.0.0.1", ""},
		{none, byController, "93.184.216.34", ""},
		{none, byController, "169.254.169.254", "never called"},
		{none, byPrefix, "10.1.2.3", "not in the controller's allow list"},
		{some, byPrefix, "203.0.113.7", ""},
		{some, byPrefix, "2001:db8::7", ""},
		{some, byPrefix, "2001:db9::7", "not in the controller's allow list"},
		{some, byPrefix, "127.0.0.2", ""},
		// All of IPv4 does not mean this machine.
		{some, byPrefix, "127.0.0.1", "loopback"},
		{some, byPrefix, "169.254.169.254", "never called"},
		{some, byCluster, "93.184.216.34", ""},
	} {
		err := tc.policy.checkIP(tc.why, netip.MustParseAddr(tc.ip))
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d %s: error %v, want %q", tc.why, tc.ip, err, tc.want)
		}
	}
}

// Whatever is allowed, what is never dialled is not, and what was accepted once is accepted
// the same way again.
func FuzzParseAllowList(f *testing.F) {
	for _, seed := range []string{"prom.example.com", "*.example.com", "*", "10.0.0.0/8", "10.0.0.1", "::1", "2001:db8::/32", "169.254.0.0/16", "0.0.0.0/0", "::/0", "::ffff:0:0/96", "a/b", "*.", "xn--a.b", "_x.y", "0x7f.1"} {
		f.Add(seed)
	}
	never := []string{"169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"}
	f.Fuzz(func(t *testing.T, entry string) {
		l, err := ParseAllowList([]string{entry})
		if err != nil {
			return
		}
		if len(l.hosts)+len(l.prefixes) != 1 {
			t.Fatalf("%q: %+v, want one rule", entry, l)
		}
		p := policy{allow: l, clusterDomain: "cluster.local"}
		for _, ip := range never {
			for _, why := range []admission{byPrefix, byCluster, byName, byController} {
				if p.checkIP(why, netip.MustParseAddr(ip)) == nil {
					t.Fatalf("%q allows %s", entry, ip)
				}
			}
		}
		for _, host := range l.hosts {
			if strings.ContainsAny(host, "/:@?#% \t\n") || host != strings.ToLower(host) {
				t.Fatalf("%q: host %q", entry, host)
			}
			again := allowList(t, host)
			if again.hosts[0] != host {
				t.Fatalf("%q: %q, then %q", entry, host, again.hosts[0])
			}
			sub := strings.Replace(host, "*", "x", 1)
			if !l.allowsHost(sub) {
				t.Fatalf("%q does not allow %q", entry, sub)
			}
		}
		for _, prefix := range l.prefixes {
			if again := allowList(t, prefix.String()); again.prefixes[0] != prefix {
				t.Fatalf("%q: %s, then %s", entry, prefix, again.prefixes[0])
			}
			if !l.allowsIP(prefix.Addr()) {
				t.Fatalf("%q does not allow its own address", entry)
			}
		}
	})
}
