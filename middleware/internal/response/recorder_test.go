//lint:file-ignore SA1019 A writer that has http.CloseNotifier must keep it.

package response

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fullWriter implements all nine optional interfaces and notes the calls.
type fullWriter struct {
	h     http.Header
	calls []string
	err   error
}

func (f *fullWriter) note(s string) { f.calls = append(f.calls, s) }

func (f *fullWriter) Header() http.Header                      { f.note("Header"); return f.h }
func (f *fullWriter) Write(p []byte) (int, error)              { f.note("Write " + string(p)); return len(p), f.err }
func (f *fullWriter) WriteHeader(int)                          { f.note("WriteHeader") }
func (f *fullWriter) Flush()                                   { f.note("Flush") }
func (f *fullWriter) FlushError() error                        { f.note("FlushError"); return f.err }
func (f *fullWriter) CloseNotify() <-chan bool                 { f.note("CloseNotify"); return nil }
func (f *fullWriter) SetReadDeadline(time.Time) error          { f.note("SetReadDeadline"); return f.err }
func (f *fullWriter) SetWriteDeadline(time.Time) error         { f.note("SetWriteDeadline"); return f.err }
func (f *fullWriter) EnableFullDuplex() error                  { f.note("EnableFullDuplex"); return f.err }
func (f *fullWriter) Push(t string, _ *http.PushOptions) error { f.note("Push " + t); return f.err }
func (f *fullWriter) WriteString(s string) (int, error) {
	f.note("WriteString " + s)
	return len(s), f.err
}
func (f *fullWriter) ReadFrom(src io.Reader) (int64, error) {
	b, err := io.ReadAll(src)
	f.note("ReadFrom " + string(b))
	return int64(len(b)), errors.Join(err, f.err)
}

func (f *fullWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.note("Hijack")
	return nil, nil, f.err
}

// optional lists, per bit, the interface check and a call of its methods.
var optional = []struct {
	name  string
	is    func(any) bool
	call  func(any)
	calls string
}{
	{"http.Flusher", is[http.Flusher], func(w any) { w.(http.Flusher).Flush() }, "Flush"},
	{"FlushError", is[flushErrorer], func(w any) { _ = w.(flushErrorer).FlushError() }, "FlushError"},
	{"http.CloseNotifier", is[http.CloseNotifier], func(w any) { w.(http.CloseNotifier).CloseNotify() }, "CloseNotify"},
	{"http.Hijacker", is[http.Hijacker], func(w any) { _, _, _ = w.(http.Hijacker).Hijack() }, "Hijack"},
	{"io.ReaderFrom", is[io.ReaderFrom], func(w any) { _, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("src")) }, "ReadFrom src"},
	{"deadlines", is[deadliner], func(w any) {
		_ = w.(deadliner).SetReadDeadline(time.Time{})
		_ = w.(deadliner).SetWriteDeadline(time.Time{})
	}, "SetReadDeadline SetWriteDeadline"},
	{"EnableFullDuplex", is[fullDuplexer], func(w any) { _ = w.(fullDuplexer).EnableFullDuplex() }, "EnableFullDuplex"},
	{"http.Pusher", is[http.Pusher], func(w any) { _ = w.(http.Pusher).Push("/a", nil) }, "Push /a"},
	{"io.StringWriter", is[io.StringWriter], func(w any) { _, _ = w.(io.StringWriter).WriteString("s") }, "WriteString s"},
}

func is[T any](w any) bool { _, ok := w.(T); return ok }

func TestEveryCombination(t *testing.T) {
	f := &fullWriter{h: http.Header{}}
	writers := originals(f)
	if len(writers) != 512 || combinations != 512 || len(optional) != 9 {
		t.Fatalf("%d writers, %d combinations of %d interfaces", len(writers), combinations, len(optional))
	}
	for i, original := range writers {
		var r Recorder
		wrapped := r.Wrap(t.Context(), original)
		for bit, o := range optional {
			want := i&(1<<bit) != 0
			if o.is(original) != want {
				t.Fatalf("combination %d: the original's %s is %v, the generator is wrong", i, o.name, !want)
			}
			if o.is(wrapped) != want {
				t.Errorf("combination %d: implements %s: %v, the original: %v", i, o.name, !want, want)
				continue
			}
			if !want {
				continue
			}
			f.calls = nil
			o.call(wrapped)
			if got := strings.Join(f.calls, " "); got != o.calls {
				t.Errorf("combination %d: %s reached the original as %q, want %q", i, o.name, got, o.calls)
			}
		}
		f.calls = nil
		wrapped.Header()
		wrapped.WriteHeader(http.StatusTeapot)
		_, _ = wrapped.Write([]byte("b"))
		if got := strings.Join(f.calls, " "); got != "Header WriteHeader Write b" {
			t.Errorf("combination %d: calls %q", i, got)
		}
		if u := wrapped.(interface{ Unwrap() http.ResponseWriter }).Unwrap(); u != original {
			t.Errorf("combination %d: Unwrap gives %T", i, u)
		}
	}
}

func TestWrapAllocatesNothing(t *testing.T) {
	f := &fullWriter{}
	ctx := t.Context()
	r := new(Recorder)
	var sink http.ResponseWriter
	if n := testing.AllocsPerRun(100, func() {
		*r = Recorder{}
		sink = r.Wrap(ctx, f)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = sink
}

func TestRecorded(t *testing.T) {
	failed := errors.New("failed")
	for _, tc := range []struct {
		name     string
		do       func(w http.ResponseWriter, f *fullWriter)
		status   int
		started  bool
		hijacked bool
		body     int64
	}{
		{name: "nothing written", do: func(http.ResponseWriter, *fullWriter) {}},
		{name: "header only", do: func(w http.ResponseWriter, _ *fullWriter) { w.WriteHeader(404) }, status: 404, started: true},
		{name: "the first header counts", do: func(w http.ResponseWriter, _ *fullWriter) {
			w.WriteHeader(201)
			w.WriteHeader(500)
		}, status: 201, started: true},
		{name: "informational is not final", do: func(w http.ResponseWriter, _ *fullWriter) {
			w.WriteHeader(100)
			w.WriteHeader(103)
			w.WriteHeader(204)
		}, status: 204, started: true},
		{name: "informational alone", do: func(w http.ResponseWriter, _ *fullWriter) { w.WriteHeader(103) }},
		{name: "101 is final", do: func(w http.ResponseWriter, _ *fullWriter) { w.WriteHeader(101) }, status: 101, started: true},
		{name: "body implies 200", do: func(w http.ResponseWriter, _ *fullWriter) {
			_, _ = w.Write([]byte("abc"))
			w.WriteHeader(500)
		}, status: 200, started: true, body: 3},
		{name: "WriteString", do: func(w http.ResponseWriter, _ *fullWriter) { _, _ = io.WriteString(w, "abcd") }, status: 200, started: true, body: 4},
		{name: "ReadFrom then header", do: func(w http.ResponseWriter, _ *fullWriter) {
			_, _ = io.Copy(w, strings.NewReader("hello"))
			w.WriteHeader(500)
		}, status: 200, started: true, body: 5},
		{name: "Flush then header", do: func(w http.ResponseWriter, _ *fullWriter) {
			w.(http.Flusher).Flush()
			w.WriteHeader(500)
		}, status: 200, started: true},
		{name: "controller's flush", do: func(w http.ResponseWriter, _ *fullWriter) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, status: 200, started: true},
		{name: "hijack", do: func(w http.ResponseWriter, _ *fullWriter) {
			_, _, _ = w.(http.Hijacker).Hijack()
		}, status: 101, started: true, hijacked: true},
		{name: "hijack failed", do: func(w http.ResponseWriter, f *fullWriter) {
			f.err = failed
			_, _, _ = w.(http.Hijacker).Hijack()
			w.WriteHeader(500)
		}, status: 500, started: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fullWriter{h: http.Header{}}
			var r Recorder
			tc.do(r.Wrap(t.Context(), f), f)
			if r.Status() != tc.status || r.Started() != tc.started || r.Hijacked() != tc.hijacked || r.BodySize() != tc.body {
				t.Errorf("status %d started %v hijacked %v body %d, want %d %v %v %d",
					r.Status(), r.Started(), r.Hijacked(), r.BodySize(), tc.status, tc.started, tc.hijacked, tc.body)
			}
		})
	}
}

func TestStatusAfterTheClientLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var r Recorder
	w := r.Wrap(ctx, httptest.NewRecorder())
	cancel()
	w.WriteHeader(500)
	if r.Status() != 0 || !r.Started() {
		t.Errorf("status %d, started %v; nobody was there to be sent a 500", r.Status(), r.Started())
	}

	ctx, cancel = context.WithCancel(t.Context())
	r = Recorder{}
	w = r.Wrap(ctx, httptest.NewRecorder())
	w.WriteHeader(200)
	cancel()
	_, _ = w.Write([]byte("late"))
	if r.Status() != 200 {
		t.Errorf("status %d, the 200 was sent before the client left", r.Status())
	}
}

func TestInvalidStatusIsNotRecorded(t *testing.T) {
	var r Recorder
	w := r.Wrap(t.Context(), httptest.NewRecorder())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("httptest's recorder accepted status 7")
			}
		}()
		w.WriteHeader(7)
	}()
	if r.Started() || r.Status() != 0 {
		t.Errorf("started %v status %d", r.Started(), r.Status())
	}
}

func TestSingleRequestID(t *testing.T) {
	for name, write := range map[string]func(http.ResponseWriter){
		"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(200) },
		"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("b")) },
		"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		rec := httptest.NewRecorder()
		var r Recorder
		r.SingleRequestID()
		w := r.Wrap(t.Context(), rec)
		w.Header().Add("X-Request-Id", "ours")
		w.Header().Add("X-Request-Id", "upstream's")
		w.Header().Add("Vary", "a")
		w.Header().Add("Vary", "b")
		write(w)
		if got := rec.Result().Header; len(got["X-Request-Id"]) != 1 || got["X-Request-Id"][0] != "ours" || len(got["Vary"]) != 2 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
