package outlier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxDrain is how much of a response that is tried again is read, so that its
// connection can be used again.
const maxDrain = 64 << 10

// RoundTrip sends the request to one of the endpoints. Besides the errors of
// net/http it returns *OverflowError, *ConnectError, ErrNoHealthyEndpoint and
// ErrClosed, to be told apart with errors.As and errors.Is. It does not modify
// the request; its body is closed in every case.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{req: req, body: req.Body}
	if err := validate(req); err != nil {
		c.closeBody()
		return nil, err
	}
	if t.hosts != nil && !t.hosts[strings.ToLower(req.URL.Host)] {
		return t.fallback.RoundTrip(req)
	}
	if err := t.awaitEndpoints(req.Context()); err != nil {
		c.closeBody()
		return nil, err
	}
	resp, err := t.try(c)
	if err != nil {
		c.closeBody()
	}
	return resp, err
}

// call is a request on its way through its attempts.
type call struct {
	req *http.Request
	// body is that of the next attempt: the request's, until it has to be sent
	// a second time.
	body  io.ReadCloser
	tried []string
}

// closeBody closes what an attempt that failed may have left open. The caller
// learns of the request's own error.
func (c *call) closeBody() {
	if c.body != nil {
		_ = c.body.Close()
	}
}

// rewind gets the body from the start.
func (c *call) rewind() error {
	if !hasBody(c.req) {
		return nil
	}
	fresh, err := c.req.GetBody()
	if err != nil {
		return err
	}
	c.closeBody()
	c.body = fresh
	return nil
}

// try makes the attempts that the retry policy and maxRetries allow.
func (t *Transport) try(c *call) (*http.Response, error) {
	address, err := t.pick(nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.send(c, address)
	for attempt := 1; attempt <= t.retry.Attempts && t.retriable(c.req, resp, err); attempt++ {
		c.tried = append(c.tried, address)
		next, pickErr := t.pick(c.tried)
		if pickErr != nil {
			// What went wrong before says more than that nothing is left.
			break
		}
		if overflow := t.pool.beginRetry(); overflow != nil {
			if err != nil {
				overflow.Err = err
				return nil, overflow
			}
			break
		}
		if resp != nil {
			if rewindErr := c.rewind(); rewindErr != nil {
				t.pool.endRetry()
				break
			}
			drain(resp)
		}
		t.metrics.retries.Inc()
		address = next
		resp, err = t.send(c, address)
		t.pool.endRetry()
	}
	return resp, err
}

// retriable: after a failure to connect nothing was sent; a response may be
// tried again only if the request may be.
func (t *Transport) retriable(req *http.Request, resp *http.Response, err error) bool {
	if req.Context().Err() != nil {
		return false
	}
	if resp != nil {
		return slices.Contains(t.retry.Statuses, resp.StatusCode) && replayable(req)
	}
	var connect *ConnectError
	return errors.As(err, &connect)
}

// send makes one attempt on one endpoint and reports its outcome. A connection
// that the server closed while it was idle is replaced without counting.
func (t *Transport) send(c *call, address string) (*http.Response, error) {
	ctx := c.req.Context()
	for {
		l, err := t.pool.acquire(ctx, t.key(c.req.URL, address))
		if err != nil {
			if errors.Is(err, ErrClosed) {
				err = fmt.Errorf("outlier: cluster %s: %w", t.cluster, err)
			}
			return nil, err
		}
		sent, watched := c.req, (*requestBody)(nil)
		if hasBody(c.req) {
			watched = &requestBody{ReadCloser: c.body, length: c.req.ContentLength}
			clone := *c.req
			clone.Body = watched
			sent = &clone
		}
		before := l.conn.socket.written.Load()
		resp, err := l.conn.cc.RoundTrip(sent)
		if err == nil {
			t.report(address, resp.StatusCode)
			resp.Request = c.req
			t.attach(ctx, resp, l, address)
			return resp, nil
		}
		unsent := l.conn.socket.written.Load() == before && watched.untouched()
		t.pool.finish(l)
		if t.pool.ctx.Err() != nil {
			return nil, fmt.Errorf("outlier: cluster %s: %w: %w", t.cluster, ErrClosed, err)
		}
		if watched.faulty() {
			return nil, err
		}
		stale := l.reused && ctx.Err() == nil && l.conn.cc.Err() != nil
		if stale && (unsent || replayable(c.req) && c.rewind() == nil) {
			continue
		}
		t.reportFailure(ctx, address, err)
		return nil, fmt.Errorf("outlier: cluster %s: endpoint %s: %w", t.cluster, address, err)
	}
}

// reportFailure blames the endpoint, unless the caller went away.
func (t *Transport) reportFailure(ctx context.Context, address string, err error) {
	switch cause := ctx.Err(); {
	case errors.Is(cause, context.Canceled):
		return
	case cause != nil:
		err = cause
	}
	t.report(address, localOriginCode(err))
}

// attach makes the end of the response's body the end of the request's hold on
// its connection. A body that breaks off counts against the endpoint.
func (t *Transport) attach(ctx context.Context, resp *http.Response, l *lease, address string) {
	if resp.Body == nil || resp.Body == http.NoBody {
		t.pool.finish(l)
		return
	}
	var once sync.Once
	wrapped := &responseBody{ReadCloser: resp.Body, done: func(err error) {
		once.Do(func() {
			if err != nil && !errors.Is(err, io.EOF) && t.pool.ctx.Err() == nil {
				t.reportFailure(ctx, address, err)
			}
			t.pool.finish(l)
		})
	}}
	if w, ok := resp.Body.(io.Writer); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &upgradedBody{responseBody: wrapped, Writer: w}
		return
	}
	resp.Body = wrapped
}

// drain reads the rest of a response that is not used, within bounds.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	_ = resp.Body.Close()
}
