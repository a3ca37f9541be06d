package grpcmw

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// Client is the middleware of gRPC client connections. It is safe for
// concurrent use and may serve several connections.
type Client struct {
	config  *config
	metrics *metrics
}

// NewClient makes the middleware. An error names the option that is wrong.
func NewClient(opts ...Option) (*Client, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(c.registerer, clientSide)
	if err != nil {
		return nil, err
	}
	return &Client{config: c, metrics: m}, nil
}

// DialOptions returns what to give to grpc.NewClient.
func (c *Client) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithStatsHandler(c.StatsHandler()),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
	}
}

// StatsHandler returns the propagation and spans alone, without the metrics.
// Each attempt of a retried call has a span of its own.
func (c *Client) StatsHandler() stats.Handler {
	return &clientHandler{Handler: newSpans(c.config, clientSide), config: c.config}
}

type clientHandler struct {
	stats.Handler
	config *config
}

// TagRPC implements stats.Handler: it starts the span and writes the state,
// now with that span, into the outgoing metadata.
func (h *clientHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	ctx = h.Handler.TagRPC(ctx, info)
	state := propagation.Current(ctx)
	if !h.config.forward {
		state = state.WithoutForwarded()
	}
	if state.IsEmpty() && state.RequestID == "" {
		return ctx
	}
	// FromOutgoingContext returns a copy, so the caller's metadata stays as
	// it is.
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	}
	propagation.InjectMetadata(state, md, h.config.propagation)
	return metadata.NewOutgoingContext(ctx, md)
}

func (c *Client) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	done := c.metrics.start(ctx, method)
	err := invoke(ctx, method, req, reply, cc, opts...)
	done(err)
	return err
}

func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	done := c.metrics.start(ctx, method)
	cs, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		done(err)
		return nil, err
	}
	m := &measuredStream{ClientStream: cs, single: !desc.ServerStreams}
	m.done = func(err error) { m.once.Do(func() { done(err) }) }
	// A caller that cancels and never receives again leaves no other sign.
	m.stop = context.AfterFunc(cs.Context(), func() { m.done(context.Cause(cs.Context())) })
	return m, nil
}

// measuredStream finds the end of a stream: io.EOF or an error of RecvMsg, the
// one message of a call that answers once, or the end of its context.
type measuredStream struct {
	grpc.ClientStream
	single bool
	once   sync.Once
	done   func(error)
	stop   func() bool
}

func (m *measuredStream) RecvMsg(msg any) error {
	err := m.ClientStream.RecvMsg(msg)
	switch {
	case errors.Is(err, io.EOF):
		m.end(nil)
	case err != nil:
		m.end(err)
	case m.single:
		m.end(nil)
	}
	return err
}

func (m *measuredStream) end(err error) {
	m.done(err)
	m.stop()
}
