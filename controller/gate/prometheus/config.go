package prometheus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// Config configures a Gatherer. Zero values mean the defaults given.
type Config struct {
	// Addresses are the base URLs of the controller's own Prometheus, several for servers
	// that scrape the same targets. They may hold a user and password. Without any, only
	// Canaries that name an address have evidence.
	Addresses []string
	// CAFile has certificates (PEM) to verify the controller's Prometheus with, instead of
	// the system's. It is read again when it changes.
	CAFile string
	// BearerTokenFile has the token for the controller's Prometheus. It is read for each
	// request.
	BearerTokenFile string
	// Secret reads the data of a Secret. It is called with the Canary's namespace only, once
	// per evaluation, and must be safe for concurrent use. Without it, Canaries with a Secret
	// have no evidence.
	Secret func(ctx context.Context, namespace, name string) (map[string][]byte, error)
	// Allow is what a Canary's own address may be besides the cluster's Services and
	// Addresses; see ParseAllowList.
	Allow []string
	// ClusterDomain is the domain of the cluster's Services, cluster.local.
	ClusterDomain string
	// Timeout of one query, unless the Canary says otherwise, 10 s. A query may wait for its
	// turn as long again.
	Timeout time.Duration
	// MaxConcurrent bounds the requests that one Prometheus (host and port) works on at
	// once, for all Canaries together, 8.
	MaxConcurrent int
	// QueriesPerSecond bounds the requests to one Prometheus, for all Canaries together, 50.
	// Up to MaxConcurrent may be sent at once after a pause.
	QueriesPerSecond float64
	// Observe is told how each query ended: success, no_data, timeout or error. It must be
	// safe for concurrent use; nil for nobody. Queries for exemplars and for a server's
	// configuration, which many do not answer, are not observed.
	Observe func(result string, took time.Duration)
	// Logger takes what does not get into evidence. Nothing is logged if nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.ClusterDomain = cmp.Or(c.ClusterDomain, "cluster.local")
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 8)
	c.QueriesPerSecond = cmp.Or(c.QueriesPerSecond, 50)
	if c.Observe == nil {
		c.Observe = func(string, time.Duration) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Timeout < 0:
		return fmt.Errorf("timeout %s is negative", c.Timeout)
	case c.MaxConcurrent < 0:
		return fmt.Errorf("%d concurrent queries: must be positive", c.MaxConcurrent)
	case !(c.QueriesPerSecond > 0):
		return fmt.Errorf("%g queries per second: must be positive", c.QueriesPerSecond)
	case !validHost(c.ClusterDomain):
		return fmt.Errorf("cluster domain %q is not a lower-case domain name", c.ClusterDomain)
	case len(c.Addresses) == 0 && (c.CAFile != "" || c.BearerTokenFile != ""):
		return errors.New("a CA file or bearer token file goes with an address")
	}
	return nil
}

// parseAddress reads a base URL. It may hold a password, so errors do not repeat it.
func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must be an http or https URL without query and fragment")
	}
	return u, nil
}

// display names an address in messages: host, port and path, without user and password.
func display(u *url.URL) string { return u.Host + u.EscapedPath() }

// New checks the configuration. Nothing is asked before Gather.
func New(c Config) (*Gatherer, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("gathering from Prometheus: %w", err)
	}
	allow, err := ParseAllowList(c.Allow)
	if err != nil {
		return nil, fmt.Errorf("gathering from Prometheus: %w", err)
	}
	g := &Gatherer{
		config: c,
		policy: policy{allow: allow, clusterDomain: c.ClusterDomain, own: map[string]bool{}},
		turns:  newTurnstile(c.MaxConcurrent, c.QueriesPerSecond),
	}
	if g.ca, err = newCAFile(c.CAFile); err != nil {
		return nil, fmt.Errorf("gathering from Prometheus: %w", err)
	}
	if c.BearerTokenFile != "" {
		if _, err := readToken(c.BearerTokenFile); err != nil {
			return nil, fmt.Errorf("gathering from Prometheus: %w", err)
		}
	}
	for i, address := range c.Addresses {
		u, err := parseAddress(address)
		if err != nil {
			return nil, fmt.Errorf("gathering from Prometheus: address %d: %w", i+1, err)
		}
		if c.BearerTokenFile != "" && u.User != nil {
			return nil, fmt.Errorf("gathering from Prometheus: address %d has a user, which does not go with a bearer token file", i+1)
		}
		host, port := hostPort(u)
		g.policy.own[host+":"+port] = true
		g.own = append(g.own, u)
	}
	g.ownTransport = newTransport(c.MaxConcurrent)
	g.ownTransport.Proxy = http.ProxyFromEnvironment
	return g, nil
}
