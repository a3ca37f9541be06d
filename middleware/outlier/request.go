package outlier

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"
)

// validate finds what net/http would refuse before any endpoint could be blamed
// for it.
func validate(req *http.Request) error {
	switch {
	case req.URL == nil:
		return errors.New("outlier: request without URL")
	case req.Header == nil:
		return errors.New("outlier: request without Header")
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fmt.Errorf("outlier: unsupported protocol scheme %q", req.URL.Scheme)
	case req.URL.Host == "":
		return errors.New("outlier: no Host in request URL")
	case req.Method != "" && !httpguts.ValidHeaderFieldName(req.Method):
		// A method is a token, as a field name is.
		return fmt.Errorf("outlier: invalid method %q", req.Method)
	}
	for _, h := range []struct {
		kind   string
		fields http.Header
	}{{"header", req.Header}, {"trailer", req.Trailer}} {
		for name, values := range h.fields {
			if !httpguts.ValidHeaderFieldName(name) {
				return fmt.Errorf("outlier: invalid %s field name %q", h.kind, name)
			}
			for _, v := range values {
				// The value may be a secret.
				if !httpguts.ValidHeaderFieldValue(v) {
					return fmt.Errorf("outlier: invalid %s field value for %q", h.kind, name)
				}
			}
		}
	}
	return nil
}

// replayable: the request can be sent a second time although the first may have
// been acted on. The rule is net/http's.
func replayable(req *http.Request) bool {
	if hasBody(req) && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	if _, ok := req.Header["Idempotency-Key"]; ok {
		return true
	}
	_, ok := req.Header["X-Idempotency-Key"]
	return ok
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// requestBody notices when it is the caller's body that made a request fail, so
// that no endpoint is blamed for it.
type requestBody struct {
	io.ReadCloser
	length int64
	read   atomic.Int64
	closed atomic.Bool
	fault  atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	total := b.read.Add(int64(n))
	switch {
	case err == nil || b.closed.Load():
	case !errors.Is(err, io.EOF):
		b.fault.Store(true)
	case b.length > 0 && total < b.length:
		b.fault.Store(true)
	}
	if b.length > 0 && total > b.length {
		b.fault.Store(true)
	}
	return n, err
}

func (b *requestBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// faulty: the request failed because of its own body.
func (b *requestBody) faulty() bool { return b != nil && b.fault.Load() }

// untouched: the body can still be sent from its start.
func (b *requestBody) untouched() bool {
	return b == nil || b.read.Load() == 0 && !b.closed.Load()
}

// responseBody ends the request's hold on its connection at EOF, error or Close.
type responseBody struct {
	io.ReadCloser
	done   func(error)
	closed atomic.Bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// What Read fails with after Close is the caller's doing.
	if err != nil && !b.closed.Load() {
		b.done(err)
	}
	return n, err
}

func (b *responseBody) Close() error {
	b.closed.Store(true)
	err := b.ReadCloser.Close()
	b.done(nil)
	return err
}

// upgradedBody is the body of a 101 response, which can be written to as well.
type upgradedBody struct {
	*responseBody
	io.Writer
}
