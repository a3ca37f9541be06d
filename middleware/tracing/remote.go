package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/samplers/jaegerremote"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// remoteTimeout bounds one request for a strategy.
	remoteTimeout = 10 * time.Second
	// remoteMaxBody is far above any strategy a server sends.
	remoteMaxBody = 4 << 20
)

// remoteSampler polls a Jaeger sampling server for the service's strategy.
type remoteSampler struct {
	*jaegerremote.Sampler
	cancel context.CancelFunc
}

func newRemoteSampler(ctx context.Context, service string, spec remoteSpec, log *slog.Logger) *remoteSampler {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opts := []jaegerremote.Option{
		jaegerremote.WithInitialSampler(sdktrace.TraceIDRatioBased(spec.initial)),
		jaegerremote.WithSamplingStrategyFetcher(&strategyFetcher{ctx: ctx, endpoint: spec.endpoint, client: &http.Client{
			Timeout: remoteTimeout,
			// A transport of its own, so that nothing stays open after close
			// and an instrumented http.DefaultTransport does not trace this.
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		}}),
		jaegerremote.WithLogger(logr.FromSlogHandler(log.Handler())),
	}
	if spec.interval > 0 {
		opts = append(opts, jaegerremote.WithSamplingRefreshInterval(spec.interval))
	}
	return &remoteSampler{Sampler: jaegerremote.New(service, opts...), cancel: cancel}
}

// close ends the request under way and the polling goroutine.
func (s *remoteSampler) close() {
	s.cancel()
	s.Close()
}

// strategyFetcher is the library's HTTP fetcher with a context, so that
// closing does not wait for a server that does not answer, and a bounded body.
type strategyFetcher struct {
	ctx      context.Context // ends when the sampler closes; the interface has no parameter for it
	endpoint string
	client   *http.Client
}

// Fetch returns the strategy of a service as JSON.
func (f *strategyFetcher) Fetch(service string) (body []byte, err error) {
	uri, err := url.Parse(f.endpoint)
	if err != nil {
		return nil, fmt.Errorf("parsing the sampling endpoint: %w", err)
	}
	query := uri.Query()
	query.Set("service", service)
	uri.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, uri.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking %s for a sampling strategy: %w", f.endpoint, err)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for a sampling strategy: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking %s for a sampling strategy: status %s", f.endpoint, resp.Status)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, remoteMaxBody))
	if err != nil {
		return nil, fmt.Errorf("reading the sampling strategy of %s: %w", f.endpoint, err)
	}
	return body, nil
}
