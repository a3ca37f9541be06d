package outlier

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// envoySource reads each proxy over HTTP, many at a time.
type envoySource struct {
	kind   Kind
	o      Options
	client *http.Client
	read   readFunc
	// failed are the proxies that could not be read in the last sweep. They
	// are read last, so that those that hang never delay those that answer.
	failed map[string]bool
}

// readFunc parses one proxy's answer into the reading.
type readFunc func(body io.Reader, want func(string) bool, r *Reading) error

func readStats(body io.Reader, want func(string) bool, r *Reading) error {
	s, err := parseStats(body, want)
	if err != nil {
		return err
	}
	r.Clusters = s.clusters
	if s.uptime > 0 {
		r.Booted = r.At.Add(-s.uptime)
	}
	return nil
}

func readClusters(body io.Reader, want func(string) bool, r *Reading) error {
	var err error
	r.Clusters, err = parseClusters(body, want)
	return err
}

func newEnvoySource(kind Kind, o Options, port int, path string, read readFunc) (*envoySource, error) {
	o.Port = cmp.Or(o.Port, port)
	o.Path = cmp.Or(o.Path, path)
	o.Concurrency = cmp.Or(o.Concurrency, 256)
	o.ProxyTimeout = cmp.Or(o.ProxyTimeout, 3*time.Second)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 256<<20)
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			DialContext: (&net.Dialer{Timeout: o.ProxyTimeout, KeepAlive: -1}).DialContext,
			// Thousands of idle connections would cost more than the
			// handshakes they save every few seconds.
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &envoySource{
		kind: kind, o: o, read: read,
		client: &http.Client{
			Transport: o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}, nil
}

func (e *envoySource) Kind() Kind { return e.kind }

// Read reads all proxies in parallel. When ctx ends, those not read yet fail.
func (e *envoySource) Read(ctx context.Context, want *Interest, sink Sink) error {
	proxies, err := e.o.Proxies.Proxies(ctx)
	if err != nil {
		return readErrorf(ReasonList, "listing proxies: %w", err)
	}
	if len(proxies) == 0 {
		return readErrorf(ReasonList, "no proxies to read: does the selector match the callers' pods?")
	}
	queue := make(chan Proxy)
	failures := make(chan string, len(proxies))
	var workers sync.WaitGroup
	for range min(e.o.Concurrency, len(proxies)) {
		workers.Go(func() {
			for p := range queue {
				reading, err := e.readProxy(ctx, p, want)
				if err != nil {
					failures <- p.ID
					sink.Fail(p.Name, err)
					continue
				}
				sink.Observe(reading)
			}
		})
	}
	for _, p := range lastFailedLast(proxies, e.failed) {
		queue <- p
	}
	close(queue)
	workers.Wait()
	close(failures)
	e.failed = make(map[string]bool, len(failures))
	for id := range failures {
		e.failed[id] = true
	}
	return nil
}

// lastFailedLast orders the proxies that failed after those that did not, and
// leaves the order as it is otherwise.
func lastFailedLast(proxies []Proxy, failed map[string]bool) []Proxy {
	out := make([]Proxy, 0, len(proxies))
	var late []Proxy
	for _, p := range proxies {
		if failed[p.ID] {
			late = append(late, p)
		} else {
			out = append(out, p)
		}
	}
	return append(out, late...)
}

// readProxy reads one proxy.
func (e *envoySource) readProxy(ctx context.Context, p Proxy, want *Interest) (Reading, error) {
	r := Reading{Proxy: p.ID, Created: p.Created, At: time.Now()}
	url := "http://" + net.JoinHostPort(p.Address, strconv.Itoa(e.o.Port)) + e.o.Path
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(e.o.ProxyTimeout, func() {
		cancel(readErrorf(ReasonTimeout, "no answer for %v", e.o.ProxyTimeout))
	})
	defer silence.Stop()
	err := e.get(ctx, url, silence, want, &r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return r, fmt.Errorf("reading %s: %w", url, err)
	}
	return r, nil
}

func (e *envoySource) get(ctx context.Context, url string, silence *time.Timer, want *Interest, r *Reading) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	silence.Stop()
	if resp.StatusCode != http.StatusOK {
		return readErrorf(ReasonStatus, "status %s", resp.Status)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		return readErrorf(ReasonMalformed, "answer is a web page")
	}
	body := newLimitedReader(&patientReader{r: resp.Body, silence: silence, patience: e.o.ProxyTimeout}, e.o.MaxBodyBytes)
	return e.read(body, want.Wants, r)
}

// patientReader lets the timer run only while it waits for the proxy.
type patientReader struct {
	r        io.Reader
	silence  *time.Timer
	patience time.Duration
}

func (p *patientReader) Read(b []byte) (int, error) {
	p.silence.Reset(p.patience)
	n, err := p.r.Read(b)
	p.silence.Stop()
	return n, err
}
