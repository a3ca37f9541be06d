package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/canarycontroller/canary-controller/middleware/tracing/jaegerudp"
)

// Provider is a process's tracing. Its methods are safe for concurrent use.
type Provider struct {
	sdk        *sdktrace.TracerProvider // nil when OTEL_SDK_DISABLED
	propagator propagation.TextMapPropagator
	remote     *remoteSampler
	resource   *resource.Resource

	shutdownOnce sync.Once
	shutdownDone chan struct{}
	shutdownErr  error
}

// Setup sets the process up and makes the result OpenTelemetry's process-wide
// provider, propagator and error handler, unless WithoutGlobals is given. Call
// it once, early in main, and Shutdown at the end.
//
// It does not wait for a collector: one that is not there yet gets the spans
// when it is. An error names the option or variable that is wrong.
func Setup(ctx context.Context, opts ...Option) (*Provider, error) {
	c := config{log: slog.Default()}
	for _, opt := range opts {
		if err := opt(&c); err != nil {
			return nil, fmt.Errorf("setting tracing up: %w", err)
		}
	}
	env, err := readEnvironment(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("setting tracing up: %w", err)
	}
	p, err := build(ctx, &c, env)
	if err != nil {
		return nil, fmt.Errorf("setting tracing up: %w", err)
	}
	if !c.local {
		otel.SetTracerProvider(p.TracerProvider())
		otel.SetTextMapPropagator(p.propagator)
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			c.log.Error("tracing", "err", err)
		}))
	}
	return p, nil
}

// build makes the provider; on an error nothing it started is left running.
func build(ctx context.Context, c *config, env environment) (*Provider, error) {
	if c.propagators == nil {
		c.propagators = env.propagators
	}
	propagator, err := newPropagator(c.propagators)
	if err != nil {
		return nil, err
	}
	p := &Provider{propagator: propagator, shutdownDone: make(chan struct{})}
	res, err := newResource(ctx, c)
	if err != nil {
		return nil, err
	}
	p.resource = res
	if env.disabled {
		return p, nil
	}
	processors, err := newProcessors(ctx, c, env)
	if err != nil {
		return nil, err
	}
	sdkOpts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	for _, sp := range processors {
		sdkOpts = append(sdkOpts, sdktrace.WithSpanProcessor(sp))
	}
	sampler := c.sampler
	if sampler == nil {
		spec := env.sampler
		if c.samplerSpec != nil {
			spec = *c.samplerSpec
		}
		sampler, p.remote = newSampler(ctx, spec, serviceName(res), c.log)
	}
	p.sdk = sdktrace.NewTracerProvider(append(sdkOpts, sdktrace.WithSampler(sampler))...)
	return p, nil
}

// newSampler builds what a spec names. always_off is the switch that turns
// tracing off and is not even overruled by debug.
func newSampler(ctx context.Context, spec samplerSpec, service string, log *slog.Logger) (sdktrace.Sampler, *remoteSampler) {
	var root sdktrace.Sampler
	var remote *remoteSampler
	switch spec.root {
	case "always_on":
		root = sdktrace.AlwaysSample()
	case "always_off":
		root = sdktrace.NeverSample()
	case "traceidratio":
		root = sdktrace.TraceIDRatioBased(spec.ratio)
	case "jaeger_remote":
		remote = newRemoteSampler(ctx, service, spec.remote, log)
		root = remote
	}
	switch {
	case spec.parentBased:
		return ParentBased(root), remote
	case spec.root == "always_off":
		return root, nil
	}
	return DebugForced(root), remote
}

// newResource describes the process: the SDK, what the environment says, the
// host and the runtime, then the options.
func newResource(ctx context.Context, c *config) (*resource.Resource, error) {
	// resource.Default logs and drops a broken OTEL_RESOURCE_ATTRIBUTES.
	if _, err := resource.New(ctx, resource.WithFromEnv()); err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	attrs := c.attributes
	if c.service != "" {
		attrs = append(attrs, semconv.ServiceName(c.service))
	}
	if c.version != "" {
		attrs = append(attrs, semconv.ServiceVersion(c.version))
	}
	found, err := resource.New(ctx, resource.WithHost(), resource.WithProcessPID(),
		resource.WithProcessRuntimeName(), resource.WithProcessRuntimeVersion(), resource.WithContainerID())
	if err != nil {
		c.log.WarnContext(ctx, "describing the process for traces is incomplete", "err", err)
	}
	res := resource.Default()
	for _, more := range []*resource.Resource{
		resource.NewSchemaless(found.Attributes()...),
		// Found again so that the environment wins over what was detected.
		resource.NewSchemaless(resource.Environment().Attributes()...),
		resource.NewSchemaless(attrs...),
	} {
		if res, err = resource.Merge(res, more); err != nil {
			return nil, fmt.Errorf("merging the resource: %w", err)
		}
	}
	return res, nil
}

func serviceName(res *resource.Resource) string {
	name, _ := res.Set().Value(semconv.ServiceNameKey)
	return name.AsString()
}

// newProcessors opens the exporters of the options, else those of the
// environment, each behind a queue of its own.
func newProcessors(ctx context.Context, c *config, env environment) (_ []sdktrace.SpanProcessor, err error) {
	specs := c.exporters
	if len(specs) > 0 && c.none {
		return nil, errors.New("WithoutExporter: other options name exporters")
	}
	if len(specs) == 0 && !c.none {
		if specs, err = envExporters(env); err != nil {
			return nil, err
		}
	}
	m, err := newMetrics(c.registerer)
	if err != nil {
		return nil, err
	}
	var out []sdktrace.SpanProcessor
	c.jaegerAgent = env.jaegerAgent
	for _, spec := range specs {
		e, err := spec.open(ctx, c)
		if err != nil {
			err = fmt.Errorf("opening the %s exporter: %w", spec.name, err)
			for _, sp := range out {
				err = errors.Join(err, sp.Shutdown(ctx))
			}
			return nil, err
		}
		counted := m.exporter(spec.name)
		out = append(out, counted.processor(sdktrace.NewBatchSpanProcessor(counted.wrap(e), c.batch...)))
	}
	return out, nil
}

func envExporters(env environment) ([]exporterSpec, error) {
	var c config
	for _, name := range env.exporters {
		var opt Option
		switch name {
		case exporterOTLP:
			opt = WithOTLPHTTP("")
			if env.otlpProtocol == protocolGRPC {
				opt = WithOTLPGRPC("")
			}
		case exporterJaeger:
			opt = WithJaegerAgent(jaegerudp.Options{})
		case exporterConsole:
			opt = WithConsole(os.Stdout)
		default:
			continue
		}
		if err := opt(&c); err != nil {
			return nil, err
		}
	}
	return c.exporters, nil
}

// TracerProvider returns the provider; with OTEL_SDK_DISABLED one that makes
// no spans and still propagates.
func (p *Provider) TracerProvider() trace.TracerProvider {
	if p.sdk == nil {
		return noop.NewTracerProvider()
	}
	return p.sdk
}

// Propagator returns what Setup installed process-wide.
func (p *Provider) Propagator() propagation.TextMapPropagator { return p.propagator }

// Resource returns the attributes every span of the process carries.
func (p *Provider) Resource() []attribute.KeyValue { return p.resource.Attributes() }

// ForceFlush exports every span ended so far, or returns when ctx ends.
func (p *Provider) ForceFlush(ctx context.Context) error {
	if p.sdk == nil {
		return nil
	}
	if err := p.sdk.ForceFlush(ctx); err != nil {
		return fmt.Errorf("flushing spans: %w", err)
	}
	return nil
}

// Shutdown flushes, then stops the exporters and the sampler's polling. Give
// it a context with a deadline: a collector that does not answer is waited for
// until then. Later calls wait for the first and return its error.
func (p *Provider) Shutdown(ctx context.Context) error {
	p.shutdownOnce.Do(func() {
		defer close(p.shutdownDone)
		if p.sdk != nil {
			if err := p.sdk.Shutdown(ctx); err != nil {
				p.shutdownErr = fmt.Errorf("shutting tracing down: %w", err)
			}
		}
		if p.remote != nil {
			p.remote.close()
		}
	})
	select {
	case <-p.shutdownDone:
		return p.shutdownErr
	case <-ctx.Done():
		return fmt.Errorf("waiting for tracing to shut down: %w", context.Cause(ctx))
	}
}
