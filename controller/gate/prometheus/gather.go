package prometheus

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

// Gatherer asks Prometheus. Its methods are safe for concurrent use.
type Gatherer struct {
	config Config
	policy policy
	turns  *turnstile
	own    []*url.URL
	ca     *caFile

	mu           sync.Mutex
	ownTransport *http.Transport
}

// Close closes connections that are kept for later. The Gatherer may be used afterwards.
func (g *Gatherer) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ownTransport.CloseIdleConnections()
}

// Gather asks every Prometheus of the Canary for everything that its gate judges, at once
// within the bounds of Config. It returns one piece of evidence for each check or alert
// selector and each Prometheus, in the order of their addresses; problems are in the
// evidence. namespace is the Canary's, s.WindowStart and now are times of this process's
// clock, and spec must be valid.
//
// It takes four times the timeout of a query at most: waiting for a turn and an answer, and
// the same for exemplars. Should ctx end before, what is not answered by then is Error: a
// caller that ends must not judge by it.
func (g *Gatherer) Gather(ctx context.Context, spec *v1alpha1.Gate, namespace string, s gate.Situation, now time.Time) gate.Gathered {
	targets, done := g.targets(ctx, spec.Prometheus, namespace)
	defer done()
	e := evaluation{spec: spec, situation: s, window: max(0, now.Sub(s.WindowStart)), now: now}
	e.situation.Namespace = namespace

	out := gate.Gathered{}
	var group sync.WaitGroup
	for i := range spec.Checks {
		evidence := make([]gate.Evidence, len(targets))
		out[spec.Checks[i].Name] = evidence
		for j, t := range targets {
			group.Go(func() { evidence[j] = e.check(ctx, t, &spec.Checks[i]) })
		}
	}
	for i := range spec.Alerts {
		evidence := make([]gate.Evidence, len(targets))
		out[gate.AlertName(spec.Alerts[i])] = evidence
		for j, t := range targets {
			group.Go(func() { evidence[j] = e.alert(ctx, t, spec.Alerts[i]) })
		}
	}
	offsets := make([]time.Duration, len(targets))
	if len(spec.Alerts) > 0 {
		for j, t := range targets {
			group.Go(func() { offsets[j] = t.queryOffset(ctx) })
		}
	}
	group.Wait()
	for _, evidence := range out {
		for j := range evidence {
			for k := range evidence[j].Rules {
				evidence[j].Rules[k].QueryOffset = offsets[j]
			}
		}
	}
	return out
}

// targets are the Prometheus to ask. done must be called when they are not used any more.
func (g *Gatherer) targets(ctx context.Context, source *v1alpha1.PrometheusSource, namespace string) (_ []*target, done func()) {
	timeout := g.config.Timeout
	if source != nil && source.Timeout != nil {
		timeout = source.Timeout.Duration
	}
	var out []*target
	var ends []func()
	if addresses := source.All(); len(addresses) > 0 {
		c, err := g.secret(ctx, namespace, source.Secret, timeout)
		for i, address := range addresses {
			if slices.Contains(addresses[:i], address) {
				continue
			}
			t, end := g.canaryTarget(address, source.ServerName, c, err, timeout)
			out, ends = append(out, t), append(ends, end)
		}
	} else {
		for _, u := range g.own {
			t, end := g.ownTarget(ctx, u, timeout)
			out, ends = append(out, t), append(ends, end)
		}
	}
	if len(out) == 0 {
		out = append(out, refusedTarget("there is no Prometheus to ask: set spec.gate.prometheus.address, or the controller's --prometheus-url"))
	}
	return out, func() {
		for _, end := range ends {
			end()
		}
	}
}

func refusedTarget(format string, args ...any) *target {
	s := failed(format, args...)
	return &target{refused: &s}
}

// secret reads the credentials for a Canary's own addresses.
func (g *Gatherer) secret(ctx context.Context, namespace, name string, timeout time.Duration) (credentials, error) {
	switch {
	case name == "":
		return credentials{}, nil
	case g.config.Secret == nil:
		return credentials{}, fmt.Errorf("secret %s: the controller reads no Secrets", name)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	data, err := g.config.Secret(ctx, namespace, name)
	if err != nil {
		return credentials{}, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	c, err := secretCredentials(data)
	if err != nil {
		return credentials{}, fmt.Errorf("secret %s: %w", name, err)
	}
	return c, nil
}

// canaryTarget is an address that a Canary names. Its connections last for one evaluation:
// its credentials and certificates may be others in the next, and nothing is kept of
// Canaries that are gone.
func (g *Gatherer) canaryTarget(address, serverName string, c credentials, secretErr error, timeout time.Duration) (*target, func()) {
	none := func() {}
	u, err := parseAddress(address)
	if err != nil || u.User != nil {
		return refusedTarget("the address must be an http or https URL without user, query and fragment"), none
	}
	why, resolve, err := g.policy.admit(u)
	if err != nil {
		return refusedTarget("the address is refused: %s", err), none
	}
	if secretErr != nil {
		return refusedTarget("%s", clip(secretErr.Error())), none
	}
	if why == byController && c.roots == nil {
		// Certificates are no secret, unlike the controller's token.
		c.roots, _ = g.ca.read()
	}
	transport := withRoots(g.policy.guardedTransport(u, why, resolve, g.config.MaxConcurrent), c, serverName)
	return g.finishTarget(u, transport, c, timeout, transport.CloseIdleConnections)
}

// ownTarget is the controller's Prometheus.
func (g *Gatherer) ownTarget(ctx context.Context, u *url.URL, timeout time.Duration) (*target, func()) {
	c := credentials{tokenFile: g.config.BearerTokenFile, username: u.User.Username()}
	c.password, _ = u.User.Password()
	return g.finishTarget(u, g.currentTransport(ctx), c, timeout, func() {})
}

func (g *Gatherer) finishTarget(u *url.URL, transport http.RoundTripper, c credentials, timeout time.Duration, end func()) (*target, func()) {
	host, port := hostPort(u)
	turns := g.turns.enter(host+":"+port, time.Now())
	leave := func() {
		g.turns.leave(turns, time.Now())
		end()
	}
	t, err := newTarget(u, transport, c, turns, timeout, &g.config)
	if err != nil {
		t = refusedTarget("the address %s cannot be used: it is not a base URL", display(u))
	}
	return t, leave
}

// currentTransport is that of the controller's Prometheus, with the certificates that the
// CA file has now.
func (g *Gatherer) currentTransport(ctx context.Context) *http.Transport {
	g.mu.Lock()
	defer g.mu.Unlock()
	roots, err := g.ca.read()
	if err != nil {
		g.config.Logger.WarnContext(ctx, "The CA file of Prometheus cannot be used, what it had before stays in use", "err", err)
	}
	if tls := g.ownTransport.TLSClientConfig; tls == nil || tls.RootCAs != roots {
		old := g.ownTransport
		g.ownTransport = withRoots(newTransport(g.config.MaxConcurrent), credentials{roots: roots}, "")
		g.ownTransport.Proxy = old.Proxy
		old.CloseIdleConnections()
	}
	return g.ownTransport
}

// evaluation is what one Gather asks about.
type evaluation struct {
	spec      *v1alpha1.Gate
	situation gate.Situation
	window    time.Duration
	now       time.Time
}

// tooSoon is why nothing is asked yet.
var tooSoon = noData("the batch became available less than 1s ago")

func (e *evaluation) check(ctx context.Context, t *target, c *v1alpha1.GateCheck) gate.Evidence {
	early := e.window < time.Second
	switch {
	case c.Proportion != nil && early:
		return gate.Evidence{NewBad: tooSoon, NewTotal: tooSoon}
	case c.Proportion != nil:
		return e.proportion(ctx, t, c.Proportion)
	case early:
		return gate.Evidence{Value: tooSoon}
	case c.Outlier != nil:
		return e.outlier(ctx, t)
	case c.Threshold != nil:
		return e.threshold(ctx, t, c.Threshold)
	}
	return gate.Evidence{Value: failed("the check has no kind")}
}

func (e *evaluation) proportion(ctx context.Context, t *target, p *v1alpha1.ProportionCheck) gate.Evidence {
	q, err := proportionQueries(p, e.situation, e.window)
	if err != nil {
		s := failed("%s", err)
		return gate.Evidence{NewBad: s, NewTotal: s}
	}
	ask := []string{q.newBad, q.newTotal}
	if q.oldTotal != "" {
		ask = append(ask, q.oldBad, q.oldTotal)
	}
	counts := t.queries(ctx, ask)
	for i := range counts {
		counts[i] = count(counts[i])
	}
	out := gate.Evidence{NewBad: counts[0], NewTotal: counts[1], Queries: ask}
	if len(counts) > 2 {
		out.OldBad, out.OldTotal = &counts[2], &counts[3]
	}
	if q.exemplars != "" && out.NewBad.Verdict == "" && out.NewBad.Value > 0 {
		out.TraceIDs = e.traces(ctx, t, q.exemplars)
	}
	return out
}

func (e *evaluation) threshold(ctx context.Context, t *target, c *v1alpha1.ThresholdCheck) gate.Evidence {
	values := templateValues(e.situation, e.window)
	ask := []string{v1alpha1.RenderQuery(c.Query, values)}
	if c.Samples != "" {
		ask = append(ask, v1alpha1.RenderQuery(c.Samples, values))
	}
	answers := t.queries(ctx, ask)
	out := gate.Evidence{Value: answers[0], Queries: ask}
	if len(answers) > 1 {
		samples := count(answers[1])
		out.Samples = &samples
	}
	return out
}

func (e *evaluation) outlier(ctx context.Context, t *target) gate.Evidence {
	q := newOutlierQueries(e.situation.Namespace, e.situation.Canary)
	ask := []string{q.ejected, q.observed, q.age}
	a := t.queries(ctx, ask)
	return gate.Evidence{Value: outlierValue(a[0], a[1], a[2], outlierAge(e.spec)), Queries: ask}
}

// traces asks for exemplars, which are welcome but prove nothing: a failure is not evidence.
func (e *evaluation) traces(ctx context.Context, t *target, selector string) []string {
	release, err := t.turn(ctx)
	if err != nil {
		return nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	// The exemplars' times are of the clocks of Prometheus and its targets.
	series, err := t.api.QueryExemplars(ctx, selector, e.situation.WindowStart, e.now.Add(time.Minute))
	if err != nil {
		_, text := explain(err, t.timeout)
		t.config.Logger.DebugContext(ctx, "No exemplars of bad requests",
			"namespace", e.situation.Namespace, "canary", e.situation.Canary, "prometheus", t.name, "err", t.credentials.redact(text))
		return nil
	}
	return traceIDs(series)
}

func (e *evaluation) alert(ctx context.Context, t *target, a v1alpha1.GateAlert) gate.Evidence {
	params := rulesParams(a.MatchLabels)
	out := gate.Evidence{Queries: []string{"GET /api/v1/rules?" + readable(params)}}
	problem := t.ask(ctx, func(ctx context.Context) (gate.Sample, error) {
		var groups ruleGroups
		now, err := t.get(ctx, "/api/v1/rules", params, &groups)
		if err == nil && now.IsZero() {
			now, err = t.clock(ctx)
		}
		if err != nil {
			return gate.Sample{}, err
		}
		out.Rules = selectRules(groups, a.MatchLabels, e.situation.Namespace, e.situation.Canary, now)
		for i := range out.Rules {
			rule := &out.Rules[i]
			for _, words := range []*string{&rule.Group, &rule.Name, &rule.LastError} {
				*words = t.credentials.redact(*words)
			}
		}
		return gate.Sample{}, nil
	})
	if problem.Verdict != "" {
		out.Rules, out.RulesProblem = nil, &problem
	}
	return out
}

// queries asks all at once, in the bounds of the target's turns.
func (t *target) queries(ctx context.Context, promQL []string) []gate.Sample {
	out := make([]gate.Sample, len(promQL))
	var group sync.WaitGroup
	for i, q := range promQL {
		group.Go(func() { out[i] = t.query(ctx, q) })
	}
	group.Wait()
	return out
}

// readable are parameters as a person would write them.
func readable(params url.Values) string {
	text, err := url.QueryUnescape(params.Encode())
	if err != nil {
		return params.Encode()
	}
	return strings.ReplaceAll(text, "\n", " ")
}
