package grpcmw

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// Option changes a Server or a Client.
type Option func(*config) error

type config struct {
	propagation *propagation.Config
	tracers     trace.TracerProvider // nil: the process-wide one
	registerer  prometheus.Registerer
	spans       bool
	spanFilter  func(fullMethod string) bool
	forward     bool
}

func newConfig(opts []Option) (*config, error) {
	c := &config{propagation: propagation.Default(), spans: true, forward: true}
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, err
		}
	}
	// Forward-only mode has no spans: a span of ours would change the ids that
	// are to be passed on as they came.
	if c.propagation.Passthrough() {
		c.spans = false
	}
	return c, nil
}

// WithPropagation sets formats, trust policy and header allowlist. The default
// is propagation.Default().
func WithPropagation(p *propagation.Config) Option {
	return func(c *config) error {
		if p == nil {
			return errors.New("grpc: WithPropagation: the configuration is nil")
		}
		c.propagation = p
		return nil
	}
}

// WithTracerProvider sets who makes the spans; the default is OpenTelemetry's
// process-wide provider at the time of each call.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *config) error {
		if tp == nil {
			return errors.New("grpc: WithTracerProvider: the provider is nil")
		}
		c.tracers = tp
		return nil
	}
}

// WithRegisterer takes the request metrics; nil, the default, registers none.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(c *config) error { c.registerer = r; return nil }
}

// WithoutSpans carries headers from in to out and makes no span.
func WithoutSpans() Option {
	return func(c *config) error { c.spans = false; return nil }
}

// WithSpanFilter makes spans only for methods ("/package.Service/Method") that
// keep accepts, for example all but health checks. Propagation is not
// filtered.
func WithSpanFilter(keep func(fullMethod string) bool) Option {
	return func(c *config) error {
		if keep == nil {
			return errors.New("grpc: WithSpanFilter: the function is nil")
		}
		c.spanFilter = keep
		return nil
	}
}

// WithoutForwarding keeps request id, baggage and forwarded headers from a
// client's target, and sends only the trace context: for servers outside the
// application. It has no effect on a Server.
func WithoutForwarding() Option {
	return func(c *config) error { c.forward = false; return nil }
}
