package grpcmw

import (
	"context"
	"fmt"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// side tells servers from clients.
type side uint8

const (
	serverSide side = iota
	clientSide
)

// newSpans returns otelgrpc's handler without propagation and metrics, or one
// that does nothing.
func newSpans(c *config, s side) stats.Handler {
	if !c.spans {
		return noSpans{}
	}
	tracers := c.tracers
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	opts := []otelgrpc.Option{
		otelgrpc.WithTracerProvider(tracers),
		otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelgrpc.WithPropagators(otelpropagation.NewCompositeTextMapPropagator()),
	}
	if c.spanFilter != nil {
		opts = append(opts, otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return c.spanFilter(info.FullMethodName) }))
	}
	if s == serverSide {
		return otelgrpc.NewServerHandler(opts...)
	}
	return otelgrpc.NewClientHandler(opts...)
}

// noSpans is a stats.Handler that leaves everything as it is.
type noSpans struct{}

func (noSpans) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (noSpans) HandleRPC(context.Context, stats.RPCStats)                         {}
func (noSpans) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (noSpans) HandleConn(context.Context, stats.ConnStats)                       {}

// requestIDAttribute is the tag Envoy and Istio put on their spans, and
// package middleware on those of HTTP, so that one search finds them all.
func requestIDAttribute(id string) attribute.KeyValue {
	return attribute.String("guid:x-request-id", id)
}

// recordPanic is deferred around a handler: it puts a panic on the span and in
// the metrics and lets it go on, to a recovery interceptor or the crash the
// program chose.
func recordPanic(ctx context.Context, done func(error)) {
	r := recover()
	if r == nil {
		return
	}
	err := fmt.Errorf("panic: %v", r)
	span := trace.SpanFromContext(ctx)
	span.RecordError(err, trace.WithStackTrace(true))
	span.SetStatus(otelcodes.Error, err.Error())
	done(status.Error(codes.Internal, err.Error()))
	panic(r)
}
