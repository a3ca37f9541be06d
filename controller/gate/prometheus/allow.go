package prometheus

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// AllowList holds addresses that a Canary may name besides Services of the cluster and the
// controller's own Prometheus. The zero value allows nothing.
type AllowList struct {
	hosts    []string // lower case; one that begins with *. stands for its subdomains
	prefixes []netip.Prefix
}

var (
	hostLabel = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
	letter    = regexp.MustCompile(`[a-z]`)
)

// ParseAllowList reads entries of these forms:
//
//	prometheus.example.com  that host, wherever its name leads
//	*.example.com           every host below that domain
//	*                       every host
//	10.20.0.0/16, 10.20.3.4 every host with such an address
//
// Link-local, metadata, unspecified and multicast addresses are refused whatever is
// allowed, and loopback addresses unless an entry names a part of the loopback range.
// Entries have no scheme and no port.
func ParseAllowList(entries []string) (AllowList, error) {
	var l AllowList
	for _, entry := range entries {
		prefix, isPrefix, err := parsePrefix(entry)
		if err != nil {
			return AllowList{}, fmt.Errorf("allowed address %q: %w", entry, err)
		}
		if isPrefix {
			l.prefixes = append(l.prefixes, prefix)
			continue
		}
		host := strings.ToLower(entry)
		if host != "*" && !validHost(strings.TrimPrefix(host, "*.")) {
			return AllowList{}, fmt.Errorf("allowed address %q: want a host name, *.domain, an IP address or a CIDR, without scheme and port", entry)
		}
		l.hosts = append(l.hosts, host)
	}
	return l, nil
}

// parsePrefix reads an IP address or a CIDR.
func parsePrefix(entry string) (_ netip.Prefix, isPrefix bool, _ error) {
	prefix, err := netip.ParsePrefix(entry)
	if err != nil {
		ip, ipErr := netip.ParseAddr(entry)
		if ipErr != nil {
			if strings.Contains(entry, "/") {
				return netip.Prefix{}, false, errors.New("is neither a host nor a CIDR")
			}
			return netip.Prefix{}, false, nil
		}
		if ip.Zone() != "" {
			return netip.Prefix{}, false, errors.New("must not have a zone")
		}
		prefix = netip.PrefixFrom(ip, ip.BitLen())
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, false, errors.New("is an IPv4 address written as IPv6; write it as IPv4")
	}
	if masked := prefix.Masked(); masked != prefix {
		return netip.Prefix{}, false, fmt.Errorf("has bits beyond its length; write %s", masked)
	}
	for _, never := range neverDialled {
		if within(prefix, never) {
			return netip.Prefix{}, false, fmt.Errorf("%s is never called", never)
		}
	}
	return prefix, true, nil
}

// validHost reports whether a lower-case host is a DNS name that no resolver takes for an
// IP address.
func validHost(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !hostLabel.MatchString(label) {
			return false
		}
	}
	last := labels[len(labels)-1]
	return letter.MatchString(last) && !strings.HasPrefix(last, "0x")
}

func within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}

func (l AllowList) allowsHost(host string) bool {
	return slices.ContainsFunc(l.hosts, func(pattern string) bool {
		if domain, ok := strings.CutPrefix(pattern, "*"); ok {
			return domain == "" || strings.HasSuffix(host, domain) && len(host) > len(domain)
		}
		return host == pattern
	})
}

func (l AllowList) allowsIP(ip netip.Addr) bool {
	return slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// allowsLoopback is for loopback addresses: 0.0.0.0/0 does not mean them.
func (l AllowList) allowsLoopback(ip netip.Addr) bool {
	return slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(ip) && p.Addr().IsLoopback() })
}

// neverDialled are ranges where no Prometheus is, and much that trusts whoever can reach
// it: link-local with the metadata services of most clouds, metadata services elsewhere
// (AWS and Google on IPv6, Alibaba, Azure, Oracle), "this" network, multicast, broadcast.
var neverDialled = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fd00:ec2::254/128"),
	netip.MustParsePrefix("fd20:ce::254/128"),
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("255.255.255.255/32"),
}

var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixTo4  = netip.MustParsePrefix("2002::/16")    // RFC 3056
	carrier = netip.MustParsePrefix("100.64.0.0/10")
)

// embedded is the IPv4 address that a translated IPv6 address leads to, or the address.
func embedded(ip netip.Addr) netip.Addr {
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixTo4.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}

// admission is why a host may be called, which decides what IP addresses it may have.
type admission int

const (
	// byPrefix hosts may have the addresses that the allow list has.
	byPrefix admission = iota
	// byCluster hosts are Services; one can be made to lead anywhere (ExternalName), so
	// they may have private addresses and those of the allow list.
	byCluster
	// byName hosts are in the allow list and may have any address but loopback.
	byName
	// byController is the controller's own Prometheus, which may be on loopback.
	byController
)

// policy decides what a Canary's addresses may be.
type policy struct {
	allow         AllowList
	clusterDomain string
	// own holds host:port of the controller's Prometheus.
	own map[string]bool
}

// hostPort is the host of an http or https URL, lower case and without the dot at the end,
// and its port.
func hostPort(u *url.URL) (host, port string) {
	port = u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port
}

// admit says why a Canary's address may be called and what host is to be resolved for it,
// or why not.
func (p policy) admit(u *url.URL) (why admission, resolve string, err error) {
	host, port := hostPort(u)
	if p.own[host+":"+port] {
		return byController, host, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return byPrefix, host, p.checkIP(byPrefix, ip)
	}
	if !validHost(host) {
		return 0, "", fmt.Errorf("%q is not a host name", host)
	}
	service, inCluster := strings.CutSuffix(strings.TrimSuffix(host, "."+p.clusterDomain), ".svc")
	switch {
	case p.allow.allowsHost(host):
		return byName, host, nil
	case inCluster && strings.Contains(service, "."):
		return byCluster, host, nil
	case strings.Count(host, ".") == 1:
		// NAME.NAMESPACE might be a name of the internet as well: only the Service is meant.
		return byCluster, host + ".svc", nil
	case len(p.allow.prefixes) > 0:
		return byPrefix, host, nil
	}
	return 0, "", fmt.Errorf("%q is not allowed: it is neither a Service of the cluster (NAME.NAMESPACE.svc) nor the controller's own Prometheus nor in the controller's allow list", host)
}

// checkIP says why an address that an admitted host has may not be dialled, or nil.
func (p policy) checkIP(why admission, ip netip.Addr) error {
	ip = ip.WithZone("").Unmap()
	for _, at := range []netip.Addr{ip, embedded(ip)} {
		for _, never := range neverDialled {
			if never.Contains(at) {
				return fmt.Errorf("%s is never called: it is in %s", ip, never)
			}
		}
		if at.IsLoopback() && why != byController && !p.allow.allowsLoopback(at) {
			return fmt.Errorf("%s is not allowed: it is a loopback address that the controller's allow list does not name", ip)
		}
	}
	switch why {
	case byController, byName:
		return nil
	case byCluster:
		if ip.IsPrivate() || carrier.Contains(ip) || p.allow.allowsIP(ip) {
			return nil
		}
		return fmt.Errorf("%s is not allowed: a Service's address must be private or in the controller's allow list", ip)
	}
	if p.allow.allowsIP(ip) {
		return nil
	}
	return fmt.Errorf("%s is not allowed: it is not in the controller's allow list", ip)
}
