package outlier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Kind names a kind of source, as the flag --outlier-source does.
type Kind string

// The kinds.
const (
	KindNone       Kind = "none"
	KindEnvoyStats Kind = "envoy-stats"
	KindEnvoyAdmin Kind = "envoy-admin"
	KindPrometheus Kind = "prometheus"
)

// ParseKind reads the value of a flag. The empty string is KindNone.
func ParseKind(value string) (Kind, error) {
	switch k := Kind(value); k {
	case "":
		return KindNone, nil
	case KindNone, KindEnvoyStats, KindEnvoyAdmin, KindPrometheus:
		return k, nil
	}
	return "", fmt.Errorf("outlier source %q: want one of %s, %s, %s or %s", value, KindNone, KindEnvoyStats, KindEnvoyAdmin, KindPrometheus)
}

// Source reads what proxies think of their upstreams.
type Source interface {
	// Kind is the label "source".
	Kind() Kind
	// Read makes one sweep: for each proxy it gives the sink a reading of the
	// clusters in want, or a failure. It returns when everything it started
	// has ended, at the latest shortly after ctx is done. The error says that
	// the sweep as a whole was impossible. Read is not called concurrently.
	Read(ctx context.Context, want *Interest, sink Sink) error
}

// Proxy is an Envoy to read.
type Proxy struct {
	// ID identifies the proxy across sweeps, for instance its pod's UID.
	ID string
	// Name is for error messages, for instance namespace/name of the pod.
	Name string
	// Address is an IP or host name without port.
	Address string
	// Created is when the proxy's container started; zero if unknown.
	Created time.Time
}

// ProxyLister lists the proxies of the callers. It is called once per sweep.
type ProxyLister interface {
	Proxies(ctx context.Context) ([]Proxy, error)
}

// ProxyListerFunc is a function as a ProxyLister.
type ProxyListerFunc func(ctx context.Context) ([]Proxy, error)

// Proxies calls f.
func (f ProxyListerFunc) Proxies(ctx context.Context) ([]Proxy, error) { return f(ctx) }

// Options configure a source. Zero values mean the defaults given.
type Options struct {
	// Proxies lists the proxies; required by the envoy sources.
	Proxies ProxyLister
	// Port is the proxies' port: 15090 for envoy-stats (15020 serves the same
	// through Istio's agent), 15000 for envoy-admin.
	Port int
	// Path overrides the path, and with a "?" the query:
	// /stats/prometheus?filter=... or /clusters?format=json.
	Path string
	// Concurrency is the number of proxies read at once, 256.
	Concurrency int
	// ProxyTimeout is how long a proxy may keep silent while it is asked, 3 s.
	// Time spent on parsing what arrived does not count, so that a busy
	// machine does not look like dead proxies; the sweep's end bounds it all.
	ProxyTimeout time.Duration
	// MaxBodyBytes bounds one answer. Envoy's are parsed as they arrive and
	// not kept, 256 MiB; Prometheus's are held in memory, 32 MiB.
	MaxBodyBytes int64
	// Transport carries the requests: to Prometheus with its TLS and
	// credentials, or to proxies' admin ports through some tunnel.
	Transport http.RoundTripper

	// PrometheusURL is the base address of Prometheus's API.
	PrometheusURL string
	// ProxyLabels tell proxies apart in Prometheus: namespace, pod, instance.
	ProxyLabels []string
	// Matchers are equality matchers added to every selector, for a
	// Prometheus that holds more than one cluster's series.
	Matchers map[string]string
	// Window is how far back an ejection is still reported by prometheus,
	// 2 min: ejections can be shorter than two of its scrapes.
	Window time.Duration
}

// NewSource makes the source of the given kind. KindNone gives a nil source.
func NewSource(kind Kind, o Options) (Source, error) {
	var source Source
	var err error
	switch kind {
	case KindNone:
		return nil, nil
	case KindEnvoyStats:
		source, err = newEnvoySource(kind, o, 15090, "/stats/prometheus?filter="+url.QueryEscape(statsFilter), readStats)
	case KindEnvoyAdmin:
		source, err = newEnvoySource(kind, o, 15000, "/clusters?format=json", readClusters)
	case KindPrometheus:
		source, err = newPrometheusSource(o)
	default:
		_, err = ParseKind(string(kind))
	}
	if err != nil {
		return nil, fmt.Errorf("outlier source %s: %w", kind, err)
	}
	return source, nil
}

// validate checks what the envoy sources need.
func (o Options) validate() error {
	switch {
	case o.Proxies == nil:
		return errors.New("no proxy lister")
	case o.Port < 1 || o.Port > 65535:
		return fmt.Errorf("port %d is not between 1 and 65535", o.Port)
	case !strings.HasPrefix(o.Path, "/"):
		return fmt.Errorf("path %q does not begin with /", o.Path)
	case o.Concurrency < 1:
		return fmt.Errorf("concurrency %d is less than 1", o.Concurrency)
	case o.ProxyTimeout <= 0:
		return fmt.Errorf("proxy timeout %v is not positive", o.ProxyTimeout)
	case o.MaxBodyBytes <= 0:
		return fmt.Errorf("body limit %d is not positive", o.MaxBodyBytes)
	}
	return nil
}
