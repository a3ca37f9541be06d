package tracing

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/canarycontroller/canary-controller/middleware/tracing/jaegerudp"
)

// Option changes what Setup does. An option wins over the environment.
type Option func(*config) error

// config is what the options say; what they leave out comes from the
// environment.
type config struct {
	service     string
	version     string
	attributes  []attribute.KeyValue
	sampler     sdktrace.Sampler
	samplerSpec *samplerSpec
	exporters   []exporterSpec
	none        bool
	batch       []sdktrace.BatchSpanProcessorOption
	registerer  prometheus.Registerer
	log         *slog.Logger
	local       bool
	propagators []string
	jaegerAgent string // of the environment
}

// exporterSpec makes one exporter; name is the label of its metrics.
type exporterSpec struct {
	name string
	open func(context.Context, *config) (sdktrace.SpanExporter, error)
}

// WithServiceName sets service.name. Without it OTEL_SERVICE_NAME or
// OTEL_RESOURCE_ATTRIBUTES say it, else it is unknown_service:<program>.
func WithServiceName(name string) Option {
	return func(c *config) error { c.service = name; return nil }
}

// WithServiceVersion sets service.version.
func WithServiceVersion(version string) Option {
	return func(c *config) error { c.version = version; return nil }
}

// WithResource adds attributes to the resource; they win over detected ones.
func WithResource(attrs ...attribute.KeyValue) Option {
	return func(c *config) error { c.attributes = append(c.attributes, attrs...); return nil }
}

// WithOTLPGRPC exports over OTLP/gRPC to endpoint, a URL such as
// http://collector:4317; http means without TLS. Empty takes the endpoint from
// OTEL_EXPORTER_OTLP_ENDPOINT, else localhost:4317. Further options set
// headers, TLS and the like.
func WithOTLPGRPC(endpoint string, opts ...otlptracegrpc.Option) Option {
	return withOTLP(endpoint, func(ctx context.Context, _ *config) (sdktrace.SpanExporter, error) {
		all := opts
		if endpoint != "" {
			all = append([]otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}, opts...)
		}
		return otlptracegrpc.New(ctx, all...)
	})
}

// WithOTLPHTTP exports over OTLP/HTTP in protobuf to endpoint, the base URL of
// the collector such as http://collector:4318; /v1/traces is added when it has
// no path. Empty takes it from OTEL_EXPORTER_OTLP_ENDPOINT, else
// localhost:4318.
func WithOTLPHTTP(endpoint string, opts ...otlptracehttp.Option) Option {
	return withOTLP(endpoint, func(ctx context.Context, _ *config) (sdktrace.SpanExporter, error) {
		all := opts
		if endpoint != "" {
			all = append([]otlptracehttp.Option{otlptracehttp.WithEndpointURL(tracesURL(endpoint))}, opts...)
		}
		return otlptracehttp.New(ctx, all...)
	})
}

// tracesURL adds the path OTLP/HTTP collectors serve to a URL that has none.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return endpoint
	}
	return u.JoinPath("v1", "traces").String()
}

func withOTLP(endpoint string, open func(context.Context, *config) (sdktrace.SpanExporter, error)) Option {
	return func(c *config) error {
		if endpoint != "" {
			if err := checkEndpoint(endpoint); err != nil {
				return fmt.Errorf("OTLP: %w", err)
			}
		}
		c.exporters = append(c.exporters, exporterSpec{name: exporterOTLP, open: open})
		return nil
	}
}

// WithJaegerAgent exports to a Jaeger agent over UDP. An empty Address takes
// it from OTEL_EXPORTER_JAEGER_AGENT_HOST and _PORT, else localhost:6831. The
// registerer and logger default to those of Setup.
func WithJaegerAgent(opts jaegerudp.Options) Option {
	return func(c *config) error {
		c.exporters = append(c.exporters, exporterSpec{
			name: exporterJaeger,
			open: func(ctx context.Context, c *config) (sdktrace.SpanExporter, error) {
				if opts.Registerer == nil {
					opts.Registerer = c.registerer
				}
				if opts.Logger == nil {
					opts.Logger = c.log
				}
				if opts.Address == "" {
					opts.Address = c.jaegerAgent
				}
				return jaegerudp.New(ctx, opts)
			},
		})
		return nil
	}
}

// WithConsole writes spans as JSON to w.
func WithConsole(w io.Writer) Option {
	return func(c *config) error {
		c.exporters = append(c.exporters, exporterSpec{
			name: exporterConsole,
			open: func(context.Context, *config) (sdktrace.SpanExporter, error) {
				return stdouttrace.New(stdouttrace.WithWriter(w))
			},
		})
		return nil
	}
}

// WithExporter exports with an exporter of the caller's making; Shutdown shuts
// it down. Options that name exporters add up and replace
// OTEL_TRACES_EXPORTER.
func WithExporter(e sdktrace.SpanExporter) Option {
	return func(c *config) error {
		if e == nil {
			return fmt.Errorf("WithExporter: the exporter is nil")
		}
		c.exporters = append(c.exporters, exporterSpec{
			name: "custom",
			open: func(context.Context, *config) (sdktrace.SpanExporter, error) { return e, nil },
		})
		return nil
	}
}

// WithoutExporter makes spans, so that ids are propagated and logged, and
// exports none.
func WithoutExporter() Option {
	return func(c *config) error { c.none = true; return nil }
}

// WithSampler sets the sampler as it is. Wrap it in ParentBased to follow
// callers.
func WithSampler(s sdktrace.Sampler) Option {
	return func(c *config) error {
		if s == nil {
			return fmt.Errorf("WithSampler: the sampler is nil")
		}
		c.sampler, c.samplerSpec = s, nil
		return nil
	}
}

// WithNamedSampler sets the sampler by the name and argument that
// OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG would have, for example
// "parentbased_traceidratio", "0.1" or "parentbased_jaeger_remote",
// "endpoint=http://jaeger:5778/sampling,pollingIntervalMs=5000".
func WithNamedSampler(name, arg string) Option {
	return func(c *config) error {
		spec, err := parseSampler(name, arg)
		if err != nil {
			return err
		}
		c.sampler, c.samplerSpec = nil, &spec
		return nil
	}
}

// WithBatchOptions tunes the queue in front of each exporter; OTEL_BSP_* does
// the same.
func WithBatchOptions(opts ...sdktrace.BatchSpanProcessorOption) Option {
	return func(c *config) error { c.batch = append(c.batch, opts...); return nil }
}

// WithRegisterer takes the metrics of Setup and its exporters; nil, the
// default, registers none.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(c *config) error { c.registerer = r; return nil }
}

// WithLogger gets the errors of exporters and samplers; slog.Default() is the
// default.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return fmt.Errorf("WithLogger: the logger is nil")
		}
		c.log = l
		return nil
	}
}

// WithPropagators sets the process-wide propagator by the names of
// OTEL_PROPAGATORS: tracecontext, baggage, b3, b3multi, jaeger or none. When
// several find a context in a request the last one named wins.
func WithPropagators(names ...string) Option {
	return func(c *config) error { c.propagators = names; return nil }
}

// WithoutGlobals leaves OpenTelemetry's process-wide provider, propagator and
// error handler alone; the caller uses those of the Provider.
func WithoutGlobals() Option {
	return func(c *config) error { c.local = true; return nil }
}
