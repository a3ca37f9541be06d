package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
	"github.com/prometheus/common/model"
)

// Config says what to push, where to and as which group.
type Config struct {
	// URL is the Pushgateway's base address; required. Credentials in it are
	// used as basic authentication and never shown in errors.
	URL string
	// Job is the label "job" of the group; required.
	Job string
	// Grouping are further labels of the group. Two runs at the same time
	// need different groups, or they overwrite and delete each other's.
	Grouping map[string]string
	// Gatherer is what to push; required.
	Gatherer prometheus.Gatherer
	// Transport carries the requests, with TLS or a token if need be; one
	// with Go's defaults if nil.
	Transport http.RoundTripper
	// Timeout bounds one push or deletion with its retries, 10 s.
	Timeout time.Duration

	// Interval is how often Run pushes while the job runs, 15 s. Negative is
	// never: once before and once after the job.
	Interval time.Duration
	// Linger is how long Run leaves the group in place after the job, so that
	// Prometheus scrapes the outcome: 30 s, or two of its scrape intervals.
	// Negative is not at all.
	Linger time.Duration
}

// Error is a failure to push or delete. It says nothing about the job.
type Error struct {
	// Op is "push" or "delete".
	Op  string
	Err error
}

func (e *Error) Error() string { return e.Op + " metrics: " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Pusher pushes one group. It is safe for concurrent use.
type Pusher struct {
	c       Config
	base    string
	group   string
	user    *url.Userinfo
	client  *http.Client
	backoff time.Duration
}

// New checks the configuration. Nothing is sent.
func New(c Config) (*Pusher, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		// The error of url.Parse repeats the URL, and with it a password.
		return nil, errors.New("push: url is not a URL")
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return nil, fmt.Errorf("push: url %q is not an http or https URL", u.Redacted())
	case c.Job == "":
		return nil, errors.New("push: job is empty")
	case c.Gatherer == nil:
		return nil, errors.New("push: gatherer is not set")
	case c.Timeout < 0:
		return nil, fmt.Errorf("push: timeout %v is negative", c.Timeout)
	}
	group := fmt.Sprintf("job=%q", c.Job)
	for _, name := range slices.Sorted(maps.Keys(c.Grouping)) {
		if !model.LegacyValidation.IsValidLabelName(name) || name == model.JobLabel {
			return nil, fmt.Errorf("push: grouping label %q is not a label name, or is \"job\"", name)
		}
		group += fmt.Sprintf(",%s=%q", name, c.Grouping[name])
	}
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Interval = cmp.Or(c.Interval, 15*time.Second)
	c.Linger = cmp.Or(c.Linger, 30*time.Second)
	if c.Transport == nil {
		c.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	p := &Pusher{c: c, group: "{" + group + "}", user: u.User, client: &http.Client{Transport: c.Transport}, backoff: 200 * time.Millisecond}
	u.User = nil
	p.base = u.String()
	return p, nil
}

// Push replaces the group by what the gatherer holds. The error is an *Error.
func (p *Pusher) Push(ctx context.Context) error { return p.push(ctx, p.c.Gatherer) }

func (p *Pusher) push(ctx context.Context, g prometheus.Gatherer) error {
	return p.do(ctx, "push", func(ctx context.Context, d *doer) error {
		return p.pusher(d).Gatherer(g).PushContext(ctx)
	})
}

// Delete deletes the group. A group that does not exist is no error. The error
// is an *Error.
func (p *Pusher) Delete(ctx context.Context) error {
	return p.do(ctx, "delete", func(_ context.Context, d *doer) error {
		return p.pusher(d).Delete()
	})
}

func (p *Pusher) pusher(d *doer) *push.Pusher {
	out := push.New(p.base, p.c.Job).Client(d)
	for name, value := range p.c.Grouping {
		out = out.Grouping(name, value)
	}
	if p.user != nil {
		password, _ := p.user.Password()
		out = out.BasicAuth(p.user.Username(), password)
	}
	return out
}

// do tries until it succeeds, is refused, or the time is up. What is worth
// another try is a connection that failed, 429 and 5xx.
func (p *Pusher) do(ctx context.Context, op string, try func(context.Context, *doer) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.c.Timeout)
	defer cancel()
	wait := p.backoff
	for {
		d := &doer{ctx: ctx, client: p.client}
		err := try(ctx, d)
		if err == nil {
			return nil
		}
		err = &Error{Op: op, Err: fmt.Errorf("group %s at %s: %w", p.group, p.base, err)}
		if !d.temporary {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// doer ties a request to the context, which client_golang's Delete does not
// take, and notes whether a failure may pass.
type doer struct {
	ctx       context.Context
	client    *http.Client
	temporary bool
}

func (d *doer) Do(req *http.Request) (*http.Response, error) {
	if err := spellSpaces(req.URL); err != nil {
		return nil, err
	}
	resp, err := d.client.Do(req.WithContext(d.ctx))
	if err != nil {
		d.temporary = true
		return nil, err
	}
	d.temporary = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500
	// The body of a refusal becomes part of the error: enough to understand it.
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, 4<<10), resp.Body}
	return resp, nil
}

// spellSpaces corrects the group in a path: client_golang v1.25 escapes it as
// if it were a query, where a space is "+", but in a path, as a Pushgateway
// reads it, "+" is a plus sign.
func spellSpaces(u *url.URL) error {
	raw := u.EscapedPath()
	at := strings.LastIndex(raw, "/metrics/job")
	if at < 0 {
		return nil
	}
	raw = raw[:at] + strings.ReplaceAll(raw[at:], "+", "%20")
	path, err := url.PathUnescape(raw)
	if err != nil {
		return err
	}
	u.Path, u.RawPath = path, raw
	return nil
}
