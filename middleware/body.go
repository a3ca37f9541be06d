package middleware

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
)

// call is one attempt of a client: the request as it is sent and, when a span
// is recorded, the response's body, whose end ends the span.
type call struct {
	sent http.Request

	io.ReadCloser
	span  trace.Span
	out   outcome
	ended atomic.Bool
	stop  func() bool // nil when the context is never done
}

// upgraded is the body of a 101 response, which is a connection.
type upgraded struct {
	*call
	io.Writer
}

// watch returns the body to give to the caller. What it implements matters to
// net/http/httputil: the body of a switched protocol is written to.
func (c *call) watch(body io.ReadCloser, span trace.Span, out outcome) io.ReadCloser {
	c.ReadCloser, c.span, c.out = body, span, out
	if ctx := c.sent.Context(); ctx.Done() != nil {
		// For a body that is abandoned when the context is done.
		c.stop = context.AfterFunc(ctx, c.abandoned)
	}
	if w, ok := body.(io.Writer); ok {
		return &upgraded{call: c, Writer: w}
	}
	return c
}

// Read implements io.Reader.
func (c *call) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		c.end(nil)
	default:
		c.end(err)
	}
	return n, err
}

// Close implements io.Closer.
func (c *call) Close() error {
	// Before, so that what a Read at the same time fails with because of it is
	// not taken for the reason.
	c.end(nil)
	return c.ReadCloser.Close()
}

// end ends the span, once. err is what reading failed with, nil at the end of
// the body or when the caller has had enough.
func (c *call) end(err error) {
	if c.stop != nil {
		c.stop()
	}
	c.finish(err)
}

func (c *call) abandoned() { c.finish(c.sent.Context().Err()) }

func (c *call) finish(err error) {
	if c.ended.Swap(true) {
		return
	}
	out := c.out
	if err != nil {
		out = clientOutcome(out.status, err, contextErr(c.sent.Context()))
	}
	endClientSpan(c.span, out)
}
