package middleware

import (
	"fmt"
	"strings"
)

// hostList is a set of hosts, exact or by suffix.
type hostList struct {
	exact    map[string]bool
	suffixes []string // with the leading dot
}

// newHostList parses the names of WithForwardTo; nil stands for every host.
func newHostList(names []string) (*hostList, error) {
	if names == nil {
		return nil, nil
	}
	l := &hostList{exact: make(map[string]bool, len(names))}
	for _, name := range names {
		host := strings.ToLower(name)
		suffix, wild := strings.CutPrefix(host, "*.")
		switch {
		case host == "" || wild && suffix == "" || strings.ContainsAny(suffix, "*/ "):
			return nil, fmt.Errorf("%q is neither a host nor \"*.\" and a domain", name)
		case wild:
			l.suffixes = append(l.suffixes, "."+suffix)
		default:
			l.exact[strings.Trim(host, "[]")] = true
		}
	}
	return l, nil
}

// has reports whether a host, as url.URL.Hostname gives it, is in the list. A
// trailing dot, which only makes a name absolute, does not matter.
func (l *hostList) has(host string) bool {
	host = strings.TrimSuffix(lower(host), ".")
	if l.exact[host] {
		return true
	}
	for _, s := range l.suffixes {
		if len(host) > len(s) && strings.HasSuffix(host, s) {
			return true
		}
	}
	return false
}
