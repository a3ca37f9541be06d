package middleware

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
)

// body ends a client span with the response's body.
type body struct {
	io.ReadCloser
	ctx   context.Context
	span  trace.Span
	out   outcome
	ended atomic.Bool
	stop  func() bool // nil when the context is never done
}

// upgraded is the body of a 101 response, which is a connection.
type upgraded struct {
	*body
	io.Writer
}

// watchBody returns the body to give to the caller. What it implements matters
// to net/http/httputil: the body of a switched protocol is written to.
func watchBody(rc io.ReadCloser, ctx context.Context, span trace.Span, out outcome) io.ReadCloser {
	b := &body{ReadCloser: rc, ctx: ctx, span: span, out: out}
	if ctx.Done() != nil {
		// For a body that is abandoned when the context is done.
		b.stop = context.AfterFunc(ctx, b.abandoned)
	}
	if w, ok := rc.(io.Writer); ok {
		return &upgraded{body: b, Writer: w}
	}
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.end(nil)
	default:
		b.end(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}

// end ends the span, once. err is what reading failed with, nil at the end of
// the body or when the caller has had enough.
func (b *body) end(err error) {
	if b.stop != nil {
		b.stop()
	}
	b.finish(err)
}

func (b *body) abandoned() { b.finish(b.ctx.Err()) }

func (b *body) finish(err error) {
	if b.ended.Swap(true) {
		return
	}
	out := b.out
	if err != nil {
		out = clientOutcome(out.status, err, b.ctx.Err())
	}
	endClientSpan(b.span, out)
}
