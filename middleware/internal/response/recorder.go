//lint:file-ignore SA1019 A writer that has http.CloseNotifier must keep it.

package response

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// flushErrorer is what http.ResponseController looks for before http.Flusher.
type flushErrorer interface {
	FlushError() error
}

// deadliner is the pair of deadlines http.ResponseController sets. They are
// one interface here because nothing implements half of it; a writer that did
// stays reachable through Unwrap.
type deadliner interface {
	SetReadDeadline(deadline time.Time) error
	SetWriteDeadline(deadline time.Time) error
}

// fullDuplexer is what http.ResponseController.EnableFullDuplex looks for.
type fullDuplexer interface {
	EnableFullDuplex() error
}

// The bits of the index into wrappers. The generator emits methods in the same
// order; TestEveryCombination would notice a difference.
const (
	bitFlusher = 1 << iota
	bitFlushError
	bitCloseNotifier
	bitHijacker
	bitReaderFrom
	bitDeadliner
	bitFullDuplex
	bitPusher
	bitStringWriter

	combinations = 1 << iota
)

// Recorder observes one response. The zero value is ready for Wrap. It is
// meant to be embedded in a larger per-request struct, so that it costs no
// allocation of its own.
//
// Like an http.ResponseWriter, a Recorder is not safe for concurrent use.
type Recorder struct {
	w    http.ResponseWriter
	ctx  context.Context
	body int64

	status   int32
	started  bool
	unsent   bool
	hijacked bool
	single   bool
}

// requestID is the header SingleRequestID is about.
const requestID = "X-Request-Id"

// SingleRequestID has only the first X-Request-Id sent, the one set before the
// handler, to which a reverse proxy adds its upstream's.
func (r *Recorder) SingleRequestID() { r.single = true }

// Wrap starts recording what is written to w and returns the writer to hand to
// the handler. ctx is the request's context as the server made it: when it is
// already cancelled before the first header is written, the client is gone and
// the status never left (see Status). A deadline is no such sign: the client
// may well be waiting.
func (r *Recorder) Wrap(ctx context.Context, w http.ResponseWriter) http.ResponseWriter {
	r.w, r.ctx = w, ctx
	var i int
	if _, ok := w.(http.Flusher); ok {
		i |= bitFlusher
	}
	if _, ok := w.(flushErrorer); ok {
		i |= bitFlushError
	}
	if _, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // deprecated, yet what callers still look for
		i |= bitCloseNotifier
	}
	if _, ok := w.(http.Hijacker); ok {
		i |= bitHijacker
	}
	if _, ok := w.(io.ReaderFrom); ok {
		i |= bitReaderFrom
	}
	if _, ok := w.(deadliner); ok {
		i |= bitDeadliner
	}
	if _, ok := w.(fullDuplexer); ok {
		i |= bitFullDuplex
	}
	if _, ok := w.(http.Pusher); ok {
		i |= bitPusher
	}
	if _, ok := w.(io.StringWriter); ok {
		i |= bitStringWriter
	}
	return wrappers[i](r)
}

// Started reports whether a final status was written, explicitly, by writing
// the body, by flushing or by hijacking.
func (r *Recorder) Started() bool { return r.started }

// Status is the final status the client was sent: 101 for a hijacked
// connection, 200 when the handler wrote a body without naming one, 0 when
// nothing was sent, be it that nothing was written or that the client had gone
// before it was.
func (r *Recorder) Status() int {
	if r.unsent {
		return 0
	}
	return int(r.status)
}

// Hijacked reports whether the handler took the connection over.
func (r *Recorder) Hijacked() bool { return r.hijacked }

// BodySize is the number of body bytes accepted by the writer, before any
// transfer or content coding further down.
func (r *Recorder) BodySize() int64 { return r.body }

func (r *Recorder) start(status int) {
	if !r.started {
		r.once()
		r.begin(status, r.gone())
	}
}

func (r *Recorder) once() {
	if !r.single || r.started {
		return
	}
	h := r.w.Header()
	if v := h[requestID]; len(v) > 1 {
		h[requestID] = v[:1]
	}
}

func (r *Recorder) begin(status int, gone bool) {
	if r.started {
		return
	}
	r.started, r.status, r.unsent = true, int32(status), gone
}

// gone compares without errors.Is because a context returns Canceled bare.
func (r *Recorder) gone() bool { return r.ctx.Err() == context.Canceled }

// The methods every wrapper has.

func (r *Recorder) header() http.Header { return r.w.Header() }

func (r *Recorder) write(p []byte) (int, error) {
	r.start(http.StatusOK)
	n, err := r.w.Write(p)
	r.body += int64(n)
	return n, err
}

func (r *Recorder) writeHeader(status int) {
	// An informational status is not the answer yet; 101 is, as no other
	// follows it.
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		r.w.WriteHeader(status)
		return
	}
	// Passed on even when superfluous: net/http's complaint about it is the
	// user's to see. An invalid status panics there and must not be recorded.
	gone := r.gone()
	r.once()
	r.w.WriteHeader(status)
	r.begin(status, gone)
}

// The optional ones. A wrapper has them only where w implements them.

func (r *Recorder) flush() {
	r.start(http.StatusOK)
	r.w.(http.Flusher).Flush()
}

func (r *Recorder) flushError() error {
	r.start(http.StatusOK)
	return r.w.(flushErrorer).FlushError()
}

func (r *Recorder) closeNotify() <-chan bool {
	return r.w.(http.CloseNotifier).CloseNotify() //nolint:staticcheck // see Wrap
}

func (r *Recorder) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := r.w.(http.Hijacker).Hijack()
	if err == nil {
		r.hijacked = true
		r.start(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (r *Recorder) readFrom(src io.Reader) (int64, error) {
	// The 200 goes out with the first byte, so a WriteHeader after this one
	// is superfluous whatever it says.
	r.start(http.StatusOK)
	n, err := r.w.(io.ReaderFrom).ReadFrom(src)
	r.body += n
	return n, err
}

func (r *Recorder) setReadDeadline(t time.Time) error {
	return r.w.(deadliner).SetReadDeadline(t)
}

func (r *Recorder) setWriteDeadline(t time.Time) error {
	return r.w.(deadliner).SetWriteDeadline(t)
}

func (r *Recorder) enableFullDuplex() error {
	return r.w.(fullDuplexer).EnableFullDuplex()
}

func (r *Recorder) push(target string, opts *http.PushOptions) error {
	return r.w.(http.Pusher).Push(target, opts)
}

func (r *Recorder) writeString(s string) (int, error) {
	r.start(http.StatusOK)
	n, err := r.w.(io.StringWriter).WriteString(s)
	r.body += int64(n)
	return n, err
}
