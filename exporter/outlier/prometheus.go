package outlier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	labelIstio = "cluster_name"
	labelEnvoy = "envoy_cluster_name"
	// clustersPerQuery keeps a query and its answer to a size that
	// Prometheus's defaults allow.
	clustersPerQuery = 50
)

// promSource asks a Prometheus that scrapes the proxies.
type promSource struct {
	o   Options
	api promv1.API
}

func newPrometheusSource(o Options) (*promSource, error) {
	u, err := url.Parse(o.PrometheusURL)
	if err != nil {
		return nil, fmt.Errorf("the Prometheus URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("the Prometheus URL %q is not an http or https URL", o.PrometheusURL)
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 32<<20)
	o.Window = cmp.Or(o.Window, 2*time.Minute)
	if o.Window < time.Second {
		return nil, fmt.Errorf("window %v is less than 1s", o.Window)
	}
	if len(o.ProxyLabels) == 0 {
		o.ProxyLabels = []string{"namespace", "pod", "instance"}
	}
	for _, l := range o.ProxyLabels {
		if !model.LegacyValidation.IsValidLabelName(l) {
			return nil, fmt.Errorf("proxy label %q is not a label name", l)
		}
	}
	for l := range o.Matchers {
		if !model.LegacyValidation.IsValidLabelName(l) {
			return nil, fmt.Errorf("matcher %q is not a label name", l)
		}
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	client, err := api.NewClient(api.Config{
		Address:      o.PrometheusURL,
		RoundTripper: limitedTransport{next: o.Transport, limit: o.MaxBodyBytes},
	})
	if err != nil {
		return nil, fmt.Errorf("making the Prometheus client: %w", err)
	}
	return &promSource{o: o, api: promv1.NewAPI(client)}, nil
}

func (p *promSource) Kind() Kind { return KindPrometheus }

// Read asks for the views of all proxies. It is all or nothing: with one
// answer missing, what the others did not show would pass for zero.
func (p *promSource) Read(ctx context.Context, want *Interest, sink Sink) error {
	at := time.Now()
	readings := map[string]*promReading{}
	booted, err := p.query(ctx, bootedQuery(p.o))
	if err != nil {
		return fmt.Errorf("asking Prometheus for the proxies' start: %w", err)
	}
	for _, s := range booted {
		r := p.reading(readings, s.Metric)
		r.Booted = time.UnixMilli(int64(float64(s.Value) * 1000))
	}
	found := false
	for patterns := range slices.Chunk(clusterPatterns(want.Targets()), clustersPerQuery) {
		clusters := strings.Join(patterns, "|")
		active, err := p.query(ctx, activeQuery(p.o, clusters))
		if err != nil {
			return fmt.Errorf("asking Prometheus for active ejections: %w", err)
		}
		for _, s := range active {
			if c := p.reading(readings, s.Metric).cluster(s.Metric, want); c != nil {
				found = true
				c.HasActive, c.Active = true, max(c.Active, float64(s.Value))
			}
		}
		enforced, err := p.query(ctx, enforcedQuery(p.o, clusters))
		if err != nil {
			return fmt.Errorf("asking Prometheus for ejection counters: %w", err)
		}
		for _, s := range enforced {
			i, ok := counterOf[strings.TrimPrefix(string(s.Metric[model.MetricNameLabel]), nameEnforced)]
			if !ok {
				continue
			}
			if c := p.reading(readings, s.Metric).cluster(s.Metric, want); c != nil {
				found = true
				c.Enforced[i] = max(c.Enforced[i], float64(s.Value))
			}
		}
	}
	if !found {
		return readErrorf(ReasonNoStats, "Prometheus has no outlier detection statistics of any target's clusters")
	}
	for _, r := range readings {
		r.At = at
		for _, c := range r.clusters {
			r.Clusters = append(r.Clusters, *c)
		}
		sink.Observe(r.Reading)
	}
	return nil
}

// promReading gathers one proxy's series.
type promReading struct {
	Reading
	clusters map[string]*ClusterReading
}

func (p *promSource) reading(all map[string]*promReading, m model.Metric) *promReading {
	var id strings.Builder
	for _, l := range p.o.ProxyLabels {
		id.WriteString(strconv.Quote(string(m[model.LabelName(l)])))
	}
	r := all[id.String()]
	if r == nil {
		r = &promReading{clusters: map[string]*ClusterReading{}}
		r.Proxy = id.String()
		all[r.Proxy] = r
	}
	return r
}

func (r *promReading) cluster(m model.Metric, want *Interest) *ClusterReading {
	name := string(cmp.Or(m[labelIstio], m[labelEnvoy]))
	if !want.Wants(name) {
		return nil
	}
	c := r.clusters[name]
	if c == nil {
		c = newClusterReading(name)
		r.clusters[name] = c
	}
	return c
}

// query runs an instant query at the server's own time. Values that are not
// numbers of at least 0 are refused like any malformed answer.
func (p *promSource) query(ctx context.Context, query string) (model.Vector, error) {
	value, _, _, err := p.api.Query(ctx, query, time.Time{})
	if err != nil {
		return nil, promError(err)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, readErrorf(ReasonMalformed, "answer is a %T, not a vector", value)
	}
	for _, s := range vector {
		if v := float64(s.Value); math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return nil, readErrorf(ReasonMalformed, "value %v of %s", v, s.Metric)
		}
	}
	return vector, nil
}

// promError gives an error of the API its reason.
func promError(err error) error {
	var re *ReadError
	var apiErr *promv1.Error
	switch {
	case errors.As(err, &re) || !errors.As(err, &apiErr):
		return err
	case apiErr.Type == promv1.ErrTimeout:
		return &ReadError{Reason: ReasonTimeout, Err: err}
	case apiErr.Type == promv1.ErrBadResponse && !strings.HasPrefix(apiErr.Msg, "bad response code"):
		return &ReadError{Reason: ReasonMalformed, Err: err}
	default:
		return &ReadError{Reason: ReasonStatus, Err: err}
	}
}

// bootedQuery asks when each proxy started, as the scrapes saw it.
func bootedQuery(o Options) string {
	s := selector(o, `__name__="`+nameUptime+`"`)
	return fmt.Sprintf("max by (%s) (timestamp(%s) - %s)", strings.Join(o.ProxyLabels, ","), s, s)
}

// activeQuery asks for the most endpoints that each proxy had ejected within
// the window, of proxies that are scraped now and ever connected.
func activeQuery(o Options, clusters string) string {
	by := grouping(o)
	seen := func(label string) string {
		s := selector(o, `__name__="`+nameActive+`"`, label+`=~`+strconv.Quote(clusters))
		return fmt.Sprintf("(max_over_time(%s[%ds]) and %s)", s, int(o.Window.Seconds()), s)
	}
	idle := func(label string) string {
		return selector(o, `__name__="`+nameConnection+`"`, label+`=~`+strconv.Quote(clusters))
	}
	return fmt.Sprintf("max by (%s) (%s or %s) unless max by (%s) (%s or %s) == 0",
		by, seen(labelIstio), seen(labelEnvoy), by, idle(labelIstio), idle(labelEnvoy))
}

// enforcedQuery asks for the counters of enforced ejections.
func enforcedQuery(o Options, clusters string) string {
	counters := func(label string) string {
		return selector(o, `__name__=~"`+nameEnforced+`.+"`, label+`=~`+strconv.Quote(clusters))
	}
	return fmt.Sprintf("max by (__name__,%s) (%s or %s)", grouping(o), counters(labelIstio), counters(labelEnvoy))
}

func grouping(o Options) string {
	return strings.Join(append([]string{labelIstio, labelEnvoy}, o.ProxyLabels...), ",")
}

// selector writes a selector with the configured matchers added.
func selector(o Options, matchers ...string) string {
	for _, l := range slices.Sorted(maps.Keys(o.Matchers)) {
		matchers = append(matchers, l+"="+strconv.Quote(o.Matchers[l]))
	}
	return "{" + strings.Join(matchers, ",") + "}"
}

// clusterPatterns are regular expressions for the clusters of the targets,
// without repetition. They may match more than the targets' clusters.
func clusterPatterns(targets []Target) []string {
	const sep = `(\||_\.)`
	var out []string
	for _, t := range targets {
		for _, c := range t.Clusters {
			out = append(out, regexp.QuoteMeta(c))
		}
		if t.Service != "" {
			subset := "[^|]*"
			if t.Subset != "" {
				subset = regexp.QuoteMeta(t.Subset)
			}
			host := regexp.QuoteMeta(t.Service + "." + t.serviceNamespace() + ".svc")
			out = append(out, "outbound"+sep+"[0-9]+"+sep+subset+sep+host+`(\..*)?`)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// limitedTransport bounds the size of answers.
type limitedTransport struct {
	next  http.RoundTripper
	limit int64
}

func (t limitedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{newLimitedReader(resp.Body, t.limit), resp.Body}
	return resp, nil
}
