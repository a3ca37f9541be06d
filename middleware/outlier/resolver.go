package outlier

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
)

// Resolver lists the endpoints of a cluster, each as host:port. It is called
// from one goroutine at a time, at start and once per resolve interval. An error
// keeps the endpoints known before; an empty list without an error removes all.
type Resolver interface {
	Resolve(ctx context.Context) ([]string, error)
}

// ResolverFunc is a function as a Resolver.
type ResolverFunc func(ctx context.Context) ([]string, error)

// Resolve calls f.
func (f ResolverFunc) Resolve(ctx context.Context) ([]string, error) { return f(ctx) }

// Static is a fixed list of endpoints, each host:port. New reports a malformed
// one.
func Static(addresses ...string) Resolver { return static(slices.Clone(addresses)) }

type static []string

func (s static) Resolve(context.Context) ([]string, error) { return s, nil }

func (s static) validate() error {
	for _, a := range s {
		if err := checkAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// HostLookup finds the addresses of a name; *net.Resolver is one.
type HostLookup interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// DNS resolves the host of host:port, such as a headless Service, to one
// endpoint per address. A nil lookup is net.DefaultResolver.
func DNS(hostport string, lookup HostLookup) Resolver {
	if lookup == nil {
		lookup = net.DefaultResolver
	}
	return dns{hostport: hostport, lookup: lookup}
}

type dns struct {
	hostport string
	lookup   HostLookup
}

func (d dns) validate() error { return checkAddress(d.hostport) }

func (d dns) Resolve(ctx context.Context) ([]string, error) {
	host, port, err := net.SplitHostPort(d.hostport)
	if err != nil {
		return nil, err
	}
	found, err := d.lookup.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	addresses := make([]string, 0, len(found))
	for _, ip := range found {
		addresses = append(addresses, net.JoinHostPort(ip, port))
	}
	// Servers rotate their answers; an order of our own keeps round robin even.
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("endpoint %q: must be host:port: %w", address, err)
	}
	if host == "" {
		return fmt.Errorf("endpoint %q: the host is empty", address)
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return fmt.Errorf("endpoint %q: the port must be a number from 1 to 65535", address)
	}
	return nil
}
