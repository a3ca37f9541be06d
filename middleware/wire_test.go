package middleware

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/codes"
)

// Everything here runs over real connections.

func get(t *testing.T, c *http.Client, target string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// shout upgrades and answers lines in upper case, as a websocket would after
// its handshake.
func shout(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString(strings.ToUpper(line))
		rw.Flush()
	}
}

func TestWebSocketUpgrade(t *testing.T) {
	l := newLab(t)
	backend := serve(t, l.handler(http.HandlerFunc(shout)))
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	// Through a reverse proxy as well, which upgrades by the response's body
	// being an io.ReadWriteCloser and its own writer an http.Hijacker.
	front := serve(t, l.handler(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: l.transport(base),
	}))

	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nB3: %s\r\n\r\n", b3)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(conn, word)
		if line, err := r.ReadString('\n'); err != nil || line != strings.ToUpper(word)+"\n" {
			t.Fatalf("%q %v", line, err)
		}
	}
	conn.Close()

	for _, s := range l.ended(3) {
		if attrs(s)["http.response.status_code"] != "101" || s.SpanContext().TraceID().String() != traceID || s.Status().Code != codes.Unset {
			t.Errorf("%s %s: %v %v", s.SpanKind(), s.SpanContext().TraceID(), attrs(s), s.Status())
		}
	}
	l.wantServerCounts(map[string]uint64{"GET  101": 2})
}

func TestServerSentEvents(t *testing.T) {
	l := newLab(t)
	next := make(chan string, 1)
	s := serve(t, l.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			fmt.Fprintf(w, "data: %s\n\n", event)
			w.(http.Flusher).Flush()
		}
	})))
	next <- "first" // the header comes with the first flush
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	for i, want := range []string{"first", "second", "third"} {
		if i > 0 {
			next <- want
		}
		// Each has to arrive before the next is written.
		if line, err := events.ReadString('\n'); err != nil || line != "data: "+want+"\n" {
			t.Fatalf("%q %v", line, err)
		}
		if _, err := events.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.spans.Ended()) != 0 {
		t.Error("the span ended while events were flowing")
	}
	if n := l.metrics("http_server_active_requests")["GET  "].GetGauge().GetValue(); n != 1 {
		t.Errorf("%v active requests", n)
	}
	close(next)
	if got := attrs(l.span())["http.response.status_code"]; got != "200" {
		t.Errorf("recorded %s", got)
	}
}

func TestEarlyHints(t *testing.T) {
	l := newLab(t)
	s := serve(t, l.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
	})))
	var hints atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && h.Get("Link") != "" {
				hints.Add(1)
			}
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 404 || hints.Load() != 1 {
		t.Errorf("status %d after %d hints", resp.StatusCode, hints.Load())
	}
	if got := attrs(l.span())["http.response.status_code"]; got != "404" {
		t.Errorf("recorded %s", got)
	}
	l.wantServerCounts(map[string]uint64{"GET  404": 1})
}

// listener notes what its connections are asked to copy from.
type listener struct {
	net.Listener
	files atomic.Int32
}

type conn struct {
	*net.TCPConn
	l *listener
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c.(*net.TCPConn), l}, nil
}

// ReadFrom is where TCPConn calls sendfile when src is a file or a part of one.
func (c *conn) ReadFrom(src io.Reader) (int64, error) {
	inner := src
	for {
		lr, ok := inner.(*io.LimitedReader)
		if !ok {
			break
		}
		inner = lr.R
	}
	if _, ok := inner.(*os.File); ok {
		c.l.files.Add(1)
	}
	return c.TCPConn.ReadFrom(src)
}

func TestSendfile(t *testing.T) {
	const size = 1 << 20
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	s := httptest.NewUnstartedServer(l.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, name)
	}), WithRecommendedAttributes()))
	ln := &listener{Listener: s.Listener}
	s.Listener = ln
	s.Start()
	defer s.Close()
	if resp, body := get(t, s.Client(), s.URL); len(body) != size || resp.StatusCode != 200 {
		t.Errorf("status %d, %d bytes", resp.StatusCode, len(body))
	}
	if ln.files.Load() == 0 {
		t.Error("the file went through user space")
	}
	if a := attrs(l.span()); a["http.response.body.size"] != fmt.Sprint(size) || a["http.response.status_code"] != "200" {
		t.Errorf("recorded %v", a)
	}
}

func TestHTTP2(t *testing.T) {
	l := newLab(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /h2/{x}", func(w http.ResponseWriter, r *http.Request) {
		_, hijacker := w.(http.Hijacker)
		_, flusher := w.(http.Flusher)
		rc := http.NewResponseController(w)
		fmt.Fprintf(w, "%s hijacker %v flusher %v flush %v duplex %v", r.Proto, hijacker, flusher, rc.Flush(), rc.EnableFullDuplex())
	})
	s := httptest.NewUnstartedServer(l.handler(mux, WithRecommendedAttributes()))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := s.Client()
	c.Transport = l.transport(c.Transport)
	resp, body := get(t, c, s.URL+"/h2/1")
	c.CloseIdleConnections()
	if body != "HTTP/2.0 hijacker false flusher true flush <nil> duplex <nil>" || resp.ProtoMajor != 2 {
		t.Errorf("%s", body)
	}
	spans := l.ended(2)
	for _, s := range spans {
		if s.Parent().IsValid() && s.Parent().IsRemote() {
			if a := attrs(s); a["network.protocol.version"] != "2" || a["url.scheme"] != "https" || a["http.route"] != "/h2/{x}" {
				t.Errorf("%v", a)
			}
		}
	}
	if spans[0].SpanContext().TraceID() != spans[1].SpanContext().TraceID() {
		t.Error("two traces")
	}
}

func TestAbortOverTheWire(t *testing.T) {
	l := newLab(t)
	s := serve(t, l.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "part")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})))
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading an aborted body: %v", err)
	}
	if a := attrs(l.span()); a["error.type"] != "response_aborted" || len(l.span().Events()) != 0 {
		t.Errorf("%v", a)
	}
}

func TestMultipartFilesAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	l := newLab(t)
	var during int
	s := serve(t, l.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		files, _ := filepath.Glob(filepath.Join(tmp, "multipart-*"))
		during = len(files)
	})))
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile("f", "big")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(part, rand.Reader, 11<<20); err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Post(s.URL, form.FormDataContentType(), &b)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || during != 1 {
		t.Fatalf("status %d, %d temporary files while handling", resp.StatusCode, during)
	}
	eventually(t, func() bool {
		files, _ := filepath.Glob(filepath.Join(tmp, "multipart-*"))
		return len(files) == 0
	})
}

func TestClientDisconnect(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(http.ResponseWriter)
		after  func(http.ResponseWriter)
		status string
	}{
		{"nothing sent", func(http.ResponseWriter) {}, func(http.ResponseWriter) {}, ""},
		{"500 to nobody", func(http.ResponseWriter) {}, func(w http.ResponseWriter) { w.WriteHeader(500) }, ""},
		{"after the header", func(w http.ResponseWriter) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
		}, func(http.ResponseWriter) {}, "200"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			arrived := make(chan struct{})
			s := serve(t, l.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tc.before(w)
				close(arrived)
				<-r.Context().Done()
				tc.after(w)
			})))
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() { <-arrived; cancel() }()
			if resp, err := s.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			span := l.span()
			a := attrs(span)
			if a["error.type"] != "context_canceled" || a["http.response.status_code"] != tc.status || span.Status().Code != codes.Unset {
				t.Errorf("%v %v", a, span.Status())
			}
			l.wantServerCounts(map[string]uint64{"GET  " + tc.status: 1})
		})
	}
}

func TestReverseProxyAnswersOneRequestID(t *testing.T) {
	l := newLab(t)
	backend := serve(t, l.handler(http.HandlerFunc(ok)))
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	front := serve(t, l.handler(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: l.transport(base),
	}))
	resp, _ := get(t, front.Client(), front.URL)
	if ids := resp.Header["X-Request-Id"]; len(ids) != 1 {
		t.Errorf("request ids %q", ids)
	}
	spans := l.ended(3)
	for _, s := range spans {
		if s.SpanContext().TraceID() != spans[0].SpanContext().TraceID() {
			t.Error("more than one trace")
		}
	}
}

func TestNoContentLengthGuessing(t *testing.T) {
	// A handler that writes nothing is answered with 200 and an empty body, as
	// without the middleware.
	l := newLab(t)
	s := serve(t, l.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	if resp, body := get(t, s.Client(), s.URL); resp.StatusCode != 200 || resp.ContentLength != 0 || body != "" {
		t.Errorf("%d %d %q", resp.StatusCode, resp.ContentLength, body)
	}
	l.wantServerCounts(map[string]uint64{"GET  200": 1})
}
