package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/internal/httpmetrics"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// scopeName is the instrumentation scope of the spans.
const scopeName = "github.com/canarycontroller/canary-controller/middleware"

const (
	defaultSeriesLimit  = 4000
	defaultAddressLimit = 100
)

// HandlerOption changes what Handler does.
type HandlerOption interface{ applyHandler(*handlerConfig) }

// TransportOption changes what Transport does.
type TransportOption interface{ applyTransport(*transportConfig) }

// Option is for both Handler and Transport.
type Option interface {
	HandlerOption
	TransportOption
}

// settings are what Handler and Transport have in common.
type settings struct {
	provider    trace.TracerProvider
	registerer  prometheus.Registerer
	propagation []propagation.Option
	forwardOnly bool
	methods     []string
	buckets     []float64
	seriesLimit int
	redact      []string
	recommended bool
}

type handlerConfig struct {
	settings
	mux    *http.ServeMux
	public bool
	filter func(*http.Request) bool
}

type transportConfig struct {
	settings
	forwardTo    []string
	addresses    []string
	addressLimit int
}

type optionFunc func(*settings)

func (f optionFunc) applyHandler(c *handlerConfig)     { f(&c.settings) }
func (f optionFunc) applyTransport(c *transportConfig) { f(&c.settings) }

type handlerOptionFunc func(*handlerConfig)

func (f handlerOptionFunc) applyHandler(c *handlerConfig) { f(c) }

type transportOptionFunc func(*transportConfig)

func (f transportOptionFunc) applyTransport(c *transportConfig) { f(c) }

// WithTracerProvider sets where spans come from. The default is OpenTelemetry's
// global provider, looked up when the first span starts, so that it may be
// installed after the handler is made.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return optionFunc(func(s *settings) { s.provider = tp })
}

// WithRegisterer counts requests in metrics registered with reg; without it
// there are none. Handlers and transports given the same reg share their
// series and must agree on WithDurationBuckets and the limits.
func WithRegisterer(reg prometheus.Registerer) Option {
	return optionFunc(func(s *settings) { s.registerer = reg })
}

// WithPropagation sets what is read from and written to headers, and whom to
// trust; see propagation.NewConfig for the options and their defaults. With
// WithRegisterer a propagation.WithOnDrop given here is replaced by the metric
// of dropped headers.
func WithPropagation(opts ...propagation.Option) Option {
	return optionFunc(func(s *settings) { s.propagation = append(s.propagation, opts...) })
}

// WithForwardOnly carries headers from in to out and makes no spans, whatever
// provider is installed: the ids go out as they came in, B3's parent id
// included. Metrics are kept.
func WithForwardOnly() Option {
	return optionFunc(func(s *settings) { s.forwardOnly = true })
}

// WithKnownMethods replaces the methods that appear as such in spans and
// metrics; others are "_OTHER". The default is OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS,
// or else those of RFC 9110 with PATCH and QUERY.
func WithKnownMethods(methods ...string) Option {
	return optionFunc(func(s *settings) { s.methods = slices.Clone(methods) })
}

// WithDurationBuckets replaces the upper bounds, in seconds, of the classic
// buckets of the durations. The default are the semantic conventions'.
func WithDurationBuckets(seconds ...float64) Option {
	return optionFunc(func(s *settings) { s.buckets = slices.Clone(seconds) })
}

// WithSeriesLimit sets how many label sets a duration may have, 4000 by
// default. Past it requests are counted with the route (or address) "_OTHER"
// and the class of their status ("5xx").
func WithSeriesLimit(n int) Option {
	return optionFunc(func(s *settings) { s.seriesLimit = n })
}

// WithRedactedQuery adds query parameters whose values are left out of spans to
// those that sign requests at AWS, Azure and Google, which always are.
func WithRedactedQuery(keys ...string) Option {
	return optionFunc(func(s *settings) { s.redact = append(s.redact, keys...) })
}

// WithRecommendedAttributes adds to spans what the semantic conventions only
// recommend: server.address and server.port (of a server, from the Host
// header), client.address, network.peer.address and .port,
// network.protocol.version and the body sizes. They are off by default because
// OpenTelemetry's SDK pays for the ninth attribute of a span about as much as
// for three allocations more, and in a mesh the peer is always the sidecar.
// What is required is always there.
func WithRecommendedAttributes() Option {
	return optionFunc(func(s *settings) { s.recommended = true })
}

// WithMux names the mux that routes the requests, when Handler cannot see
// which pattern served them because something in between makes a copy of the
// request (http.TimeoutHandler, http.StripPrefix, any use of
// Request.WithContext), and when samplers shall know http.route. The mux is
// asked for the pattern before the request is handled.
func WithMux(mux *http.ServeMux) HandlerOption {
	return handlerOptionFunc(func(c *handlerConfig) { c.mux = mux })
}

// WithPublicEndpoint trusts nothing a caller sends, whatever the trust policy
// says: every request starts a new trace, which links to the caller's, and
// gets a new request id.
func WithPublicEndpoint() HandlerOption {
	return handlerOptionFunc(func(c *handlerConfig) { c.public = true })
}

// WithFilter makes spans only of requests for which f is true. Headers are
// forwarded and requests counted all the same. f must be safe for concurrent
// use.
func WithFilter(f func(*http.Request) bool) HandlerOption {
	return handlerOptionFunc(func(c *handlerConfig) { c.filter = f })
}

// WithForwardTo limits forwarded headers, the request id and baggage to the
// hosts named: exact names ("reviews", "10.0.0.7") or suffixes
// ("*.example.com", which is not example.com itself). Trace headers go
// everywhere. Every hop of a redirect is judged by its own host. Without this
// option every host gets them.
func WithForwardTo(hosts ...string) TransportOption {
	return transportOptionFunc(func(c *transportConfig) {
		if c.forwardTo == nil {
			c.forwardTo = []string{}
		}
		c.forwardTo = append(c.forwardTo, hosts...)
	})
}

// WithServerAddresses fixes the values of the label server_address; other
// hosts are "_OTHER". Without it the first WithServerAddressLimit hosts called
// have one.
func WithServerAddresses(hosts ...string) TransportOption {
	return transportOptionFunc(func(c *transportConfig) { c.addresses = append(c.addresses, hosts...) })
}

// WithServerAddressLimit sets how many values the label server_address may
// take beside "_OTHER", 100 by default.
func WithServerAddressLimit(n int) TransportOption {
	return transportOptionFunc(func(c *transportConfig) { c.addressLimit = n })
}

// core is what Handler and Transport make of their common settings.
type core struct {
	cfg         *propagation.Config
	tracer      trace.Tracer // nil when no spans are made
	methods     *methods
	redact      redactor
	recommended bool
}

func (s *settings) check() error {
	switch {
	case s.seriesLimit < 1:
		return fmt.Errorf("WithSeriesLimit: %d is not positive", s.seriesLimit)
	case len(s.buckets) == 0:
		return fmt.Errorf("WithDurationBuckets: no bucket")
	}
	for i, b := range s.buckets {
		if b <= 0 || i > 0 && b <= s.buckets[i-1] {
			return fmt.Errorf("WithDurationBuckets: %v: bounds must be positive and increase", s.buckets)
		}
	}
	for _, m := range s.methods {
		if m == "" || strings.ContainsAny(m, " \t\r\n\"(),/:;<=>?@[\\]{}") {
			return fmt.Errorf("WithKnownMethods: %q is not a method", m)
		}
	}
	return nil
}

func (s *settings) core() (core, error) {
	if err := s.check(); err != nil {
		return core{}, err
	}
	opts := slices.Clone(s.propagation)
	if s.registerer != nil {
		var reasons []string
		for _, r := range propagation.DropReasons() {
			reasons = append(reasons, r.String())
		}
		dropped, err := httpmetrics.NewDropped(s.registerer, reasons)
		if err != nil {
			return core{}, err
		}
		opts = append(opts, propagation.WithOnDrop(func(_ string, reason propagation.DropReason) {
			dropped.Inc(reason.String())
		}))
	}
	if s.forwardOnly {
		opts = append(opts, propagation.WithPassthrough())
	}
	cfg, err := propagation.NewConfig(opts...)
	if err != nil {
		return core{}, fmt.Errorf("WithPropagation: %w", err)
	}
	c := core{cfg: cfg, methods: newMethods(s.methods), redact: newRedactor(s.redact), recommended: s.recommended}
	if !cfg.Passthrough() {
		tp := s.provider
		if tp == nil {
			tp = otel.GetTracerProvider()
		}
		c.tracer = tp.Tracer(scopeName, trace.WithSchemaURL(semconv.SchemaURL))
	}
	return c, nil
}

func defaults() settings {
	return settings{buckets: httpmetrics.DefaultBuckets, seriesLimit: defaultSeriesLimit}
}
