package grpcmw

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// Server is the middleware of a gRPC server. It is safe for concurrent use and
// may serve several servers.
type Server struct {
	config  *config
	metrics *metrics
}

// NewServer makes the middleware. An error names the option that is wrong.
func NewServer(opts ...Option) (*Server, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(c.registerer, serverSide)
	if err != nil {
		return nil, err
	}
	return &Server{config: c, metrics: m}, nil
}

// Options returns what to give to grpc.NewServer: a stats handler, which sees
// every call before anything else, and one interceptor for each kind of call,
// first in the chain.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.StatsHandler(s.StatsHandler()),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
	}
}

// StatsHandler returns the propagation and spans alone, without the echoed
// request id and the metrics, for servers that chain their own interceptors.
func (s *Server) StatsHandler() stats.Handler {
	return &serverHandler{Handler: newSpans(s.config, serverSide), config: s.config}
}

// Init creates the metrics of every method registered so far, so that rates
// start from zero rather than from the first call.
func (s *Server) Init(server *grpc.Server) {
	for service, info := range server.GetServiceInfo() {
		for _, m := range info.Methods {
			s.metrics.init("/" + service + "/" + m.Name)
		}
	}
}

// serverHandler puts the caller's state into the context before the span
// starts, so that the sampler and the span see it.
type serverHandler struct {
	stats.Handler
	config *config
}

// TagRPC implements stats.Handler.
func (h *serverHandler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	trust := h.config.propagation.Trust(peerOf(ctx, md, info.FullMethodName))
	state := propagation.ExtractMetadataWith(md, h.config.propagation, trust)
	ctx = propagation.ContextWithState(ctx, state)
	if state.HasIDs() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, state.SpanContext())
	}
	ctx = h.Handler.TagRPC(ctx, info)

	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if state.RequestID != "" {
			span.SetAttributes(requestIDAttribute(state.RequestID))
		}
		if !trust.Has(propagation.TrustIDs) {
			// A public endpoint starts its own trace and says who called.
			if link := propagation.ExtractMetadataLink(md, h.config.propagation); link.IsValid() {
				span.AddLink(trace.Link{SpanContext: link})
			}
		}
	}
	return ctx
}

// peerOf describes the caller to the trust policy.
func peerOf(ctx context.Context, md metadata.MD, method string) propagation.Peer {
	out := propagation.Peer{Context: ctx, Metadata: md, Method: method}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return out
	}
	if p.Addr != nil {
		out.RemoteAddr = p.Addr.String()
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		out.TLS = &info.State
	}
	return out
}

// requestIDKey is the metadata key of the request id, in requests and echoed
// in response headers.
const requestIDKey = "x-request-id"

// echo tells the caller the request id. The only error is that the headers
// were already sent, which cannot be at the start of a call.
func echo(set func(metadata.MD) error, ctx context.Context) error {
	id := propagation.RequestIDFromContext(ctx)
	if id == "" {
		return nil
	}
	return set(metadata.Pairs(requestIDKey, id))
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	done := s.metrics.start(ctx, info.FullMethod)
	defer recordPanic(ctx, done)
	if err := echo(func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }, ctx); err != nil {
		return nil, err
	}
	resp, err = handler(ctx, req)
	done(err)
	return resp, err
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := ss.Context()
	done := s.metrics.start(ctx, info.FullMethod)
	defer recordPanic(ctx, done)
	if err := echo(ss.SetHeader, ctx); err != nil {
		return err
	}
	err := handler(srv, ss)
	done(err)
	return err
}
