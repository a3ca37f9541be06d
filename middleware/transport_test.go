package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// stub answers without a network and keeps what it was sent.
type stub struct {
	sent   []*http.Request
	status int
	body   io.ReadCloser
	err    error
	closed bool
}

func (s *stub) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, r)
	if s.err != nil {
		return nil, s.err
	}
	body := s.body
	if body == nil {
		body = http.NoBody
	}
	return &http.Response{StatusCode: max(s.status, 200), Header: http.Header{}, Body: body, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

func (s *stub) CloseIdleConnections() { s.closed = true }

func outbound(t *testing.T, ctx context.Context, target string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func roundTrip(t *testing.T, rt http.RoundTripper, r *http.Request) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestClientSpan(t *testing.T) {
	l := newLab(t)
	base := &stub{status: 404}
	ctx, parent := l.tp.Tracer("x").Start(t.Context(), "parent")
	r := outbound(t, ctx, "https://user:pass@Reviews.example:8443/r/1?X-Amz-Signature=abc&q=1")
	roundTrip(t, l.transport(base), r)
	s := l.span()
	if s.Name() != "GET" || s.SpanKind() != trace.SpanKindClient || s.Status().Code != codes.Error || s.Parent().SpanID() != parent.SpanContext().SpanID() {
		t.Errorf("%q %v %v", s.Name(), s.SpanKind(), s.Status())
	}
	wantAttrs(t, s, map[string]string{
		"http.request.method": "GET", "server.address": "Reviews.example", "server.port": "8443",
		"url.full":                  "https://REDACTED:REDACTED@Reviews.example:8443/r/1?X-Amz-Signature=REDACTED&q=1",
		"http.response.status_code": "404", "error.type": "404",
	})
	l.wantClientCounts(map[string]uint64{"GET reviews.example 404": 1})
	h := base.sent[0].Header
	sc := s.SpanContext()
	for name, want := range map[string]string{
		"X-B3-Traceid": sc.TraceID().String(), "X-B3-Spanid": sc.SpanID().String(),
		"X-B3-Parentspanid": parent.SpanContext().SpanID().String(), "X-B3-Sampled": "1",
		"Traceparent": "00-" + sc.TraceID().String() + "-" + sc.SpanID().String(),
	} {
		if !strings.HasPrefix(h.Get(name), want) || h.Get(name) == "" {
			t.Errorf("%s: %q, want %q", name, h.Get(name), want)
		}
	}
	if id := exemplar(l.metrics("http_client_request_duration_seconds")["GET reviews.example 404"]); id != sc.TraceID().String() {
		t.Errorf("exemplar of trace %q", id)
	}
}

func TestTheCallersRequestIsLeftAlone(t *testing.T) {
	l := newLab(t)
	base := &stub{}
	r := outbound(t, t.Context(), "http://a/")
	r.Header.Set("Accept", "x")
	r.Header["X-Nil"] = nil
	before := r.Header.Clone()
	resp := roundTrip(t, l.transport(base), r)
	if len(r.Header) != len(before) || r.Header.Get("Accept") != "x" {
		t.Errorf("header %v", r.Header)
	}
	if resp.Request != r {
		t.Error("the response's request is not the caller's")
	}
	sent := base.sent[0].Header
	sent.Add("Accept", "y")
	if v := r.Header["Accept"]; len(v) != 1 || v[0] != "x" {
		t.Errorf("adding to what was sent changed the caller's: %q", v)
	}
	if v, ok := sent["X-Nil"]; !ok || v != nil {
		t.Errorf("a nil value became %v", v)
	}
}

func TestStateIsCarriedOver(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server []HandlerOption
		client []TransportOption
		in     []string
		want   map[string]string // "!" is absent
	}{
		{name: "forwarded headers", in: []string{"B3", b3, "X-Request-Id", requestID, "X-Ot-Span-Context", "ot", "X-Cloud-Trace-Context", "ct/1;o=1", "User-Agent", "ua", "Cookie", "c=1", "Authorization", "secret"},
			want: map[string]string{"X-Request-Id": requestID, "X-Ot-Span-Context": "ot", "X-Cloud-Trace-Context": "ct/1;o=1", "User-Agent": "ua", "Cookie": "!", "Authorization": "!", "X-B3-Traceid": traceID}},
		{name: "forward only", server: []HandlerOption{WithForwardOnly()}, client: []TransportOption{WithForwardOnly()},
			in:   []string{"X-B3-Traceid", "48485a3953bb6124", "X-B3-Spanid", spanID, "X-B3-Parentspanid", "05e3ac9a4f6e3b90", "X-B3-Sampled", "0"},
			want: map[string]string{"X-B3-Traceid": "48485a3953bb6124", "X-B3-Spanid": spanID, "X-B3-Parentspanid": "05e3ac9a4f6e3b90", "X-B3-Sampled": "0"}},
		{name: "deny alone", in: []string{"X-B3-Sampled", "0"}, want: map[string]string{"X-B3-Sampled": "0", "X-B3-Traceid": "!", "Traceparent": "!"}},
		{name: "debug", in: []string{"B3", traceID + "-" + spanID + "-d"}, want: map[string]string{"X-B3-Flags": "1", "X-B3-Sampled": "!", "X-B3-Traceid": traceID}},
		{name: "64 bits", in: []string{"B3", "48485a3953bb6124-" + spanID + "-1"}, want: map[string]string{"X-B3-Traceid": "48485a3953bb6124"}},
		{name: "filtered at the server", server: []HandlerOption{WithFilter(func(*http.Request) bool { return false })}, in: []string{"B3", b3}, want: map[string]string{"X-B3-Traceid": traceID, "X-B3-Parentspanid": spanID}},
		{name: "host not in the list", client: []TransportOption{WithForwardTo("reviews", "*.svc.local")},
			in:   []string{"B3", b3, "X-Request-Id", requestID, "X-Ot-Span-Context", "ot"},
			want: map[string]string{"X-Request-Id": "!", "X-Ot-Span-Context": "!", "X-B3-Traceid": traceID}},
		{name: "host in the list", client: []TransportOption{WithForwardTo("ratings")},
			in: []string{"X-Request-Id", requestID, "X-Ot-Span-Context", "ot"}, want: map[string]string{"X-Request-Id": requestID, "X-Ot-Span-Context": "ot"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			base := &stub{}
			rt := l.transport(base, tc.client...)
			l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				roundTrip(t, rt, outbound(t, r.Context(), "http://ratings:9080/"))
			}), tc.server...).ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/", tc.in...))
			for name, want := range tc.want {
				if got, there := base.sent[0].Header[name]; want == "!" && there || want != "!" && (len(got) != 1 || got[0] != want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestHostileHeadersNeverFailARequest(t *testing.T) {
	var seen http.Header
	s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	for name, bad := range map[string]string{
		"CR/LF":            "a\r\nX-Injected: 1",
		"NUL":              "a\x00b",
		"not UTF-8":        "a\xff\xfeb",
		"16 KiB":           strings.Repeat("a", 16<<10),
		"bare line feed":   "a\nb",
		"delete character": "a\x7f",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			rt := l.transport(base)
			send := func(ctx context.Context) {
				resp := roundTrip(t, rt, outbound(t, ctx, s.URL))
				_, _ = io.Copy(io.Discard, resp.Body)
				if resp.StatusCode != 200 {
					t.Errorf("status %d", resp.StatusCode)
				}
				for _, h := range []string{"X-Ot-Span-Context", "X-Injected"} {
					if v := seen.Get(h); v != "" {
						t.Errorf("%s arrived as %q", h, v[:min(len(v), 20)])
					}
				}
				if seen.Get("X-B3-Traceid") == "" {
					t.Error("the trace was dropped with it")
				}
			}
			// In from a request, and put into the state by a program.
			l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { send(r.Context()) })).
				ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/", "X-Ot-Span-Context", bad))
			send(propagation.ContextWithState(t.Context(), propagation.State{
				Forwarded: []propagation.Field{{Name: "X-Ot-Span-Context", Value: bad}},
			}))
			var dropped float64
			for _, m := range l.metrics("http_forwarded_headers_dropped_total") {
				dropped += m.GetCounter().GetValue()
			}
			if dropped != 2 {
				t.Errorf("%v dropped headers counted, want 2", dropped)
			}
		})
	}
}

func TestRedirectsAndRetries(t *testing.T) {
	l := newLab(t)
	mux := http.NewServeMux()
	mux.Handle("/a", http.RedirectHandler("/b", http.StatusFound))
	mux.Handle("/b", http.RedirectHandler("/c", http.StatusFound))
	var ids []string
	mux.HandleFunc("/c", func(_ http.ResponseWriter, r *http.Request) { ids = append(ids, r.Header["X-B3-Spanid"]...) })
	s := serve(t, mux)
	c := s.Client()
	c.Transport = l.transport(c.Transport)
	ctx, parent := l.tp.Tracer("x").Start(t.Context(), "parent")
	resp, err := c.Do(outbound(t, ctx, s.URL+"/a"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var got []string
	for _, s := range l.ended(3) {
		a := attrs(s)
		got = append(got, a["http.request.resend_count"]+" "+a["http.response.status_code"])
		if s.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("parent of %v", a)
		}
	}
	if strings.Join(got, ",") != " 302,1 302,2 200" {
		t.Errorf("resend counts and statuses %q", got)
	}
	if len(ids) != 1 || ids[0] != l.spans.Ended()[2].SpanContext().SpanID().String() {
		t.Errorf("the last hop got the span ids %q", ids)
	}

	l.spans.Reset()
	for attempt := range 2 {
		roundTrip(t, l.transport(&stub{status: 503}), outbound(t, ContextWithResendCount(t.Context(), attempt), "http://a/"))
	}
	if a, b := attrs(l.ended(2)[0]), attrs(l.ended(2)[1]); a["http.request.resend_count"] != "" || b["http.request.resend_count"] != "1" {
		t.Errorf("%v %v", a, b)
	}
}

func TestRedirectToAnotherHostLosesForwardedHeaders(t *testing.T) {
	l := newLab(t)
	var there http.Header
	elsewhere := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { there = r.Header }))
	var here http.Header
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here = r.Header
		http.Redirect(w, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	}))
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &http.Client{Transport: l.transport(base, WithForwardTo("127.0.0.1"))}
	ctx := propagation.ContextWithState(t.Context(), propagation.State{
		RequestID: requestID, Forwarded: []propagation.Field{{Name: "X-Ot-Span-Context", Value: "ot"}},
	})
	resp, err := c.Do(outbound(t, ctx, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if here.Get("X-Ot-Span-Context") != "ot" || here.Get("X-Request-Id") != requestID {
		t.Errorf("first hop %v", here)
	}
	if there.Get("X-Ot-Span-Context") != "" || there.Get("X-Request-Id") != "" || there.Get("X-B3-Traceid") == "" {
		t.Errorf("second hop %v", there)
	}
}

// trickle is a body read in two steps.
type trickle struct {
	parts  []string
	fail   error
	closed int
}

func (b *trickle) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		if b.fail != nil {
			return 0, b.fail
		}
		return 0, io.EOF
	}
	n := copy(p, b.parts[0])
	b.parts = b.parts[1:]
	return n, nil
}

func (b *trickle) Close() error { b.closed++; return nil }

func TestSpanEndsWithTheBody(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail error
		do   func(resp *http.Response, cancel context.CancelFunc)
		typ  string
		code codes.Code
	}{
		{"end of file", nil, func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadAll(r.Body) }, "", codes.Unset},
		{"closed early", nil, func(r *http.Response, _ context.CancelFunc) { _ = r.Body.Close() }, "", codes.Unset},
		{"context done", nil, func(_ *http.Response, cancel context.CancelFunc) { cancel() }, "context_canceled", codes.Unset},
		{"broken off", io.ErrUnexpectedEOF, func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadAll(r.Body) }, "connection_closed", codes.Error},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			body := &trickle{parts: []string{"a", "b"}, fail: tc.fail}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp, err := l.transport(&stub{body: body}).RoundTrip(outbound(t, ctx, "http://a/"))
			if err != nil {
				t.Fatal(err)
			}
			if len(l.spans.Ended()) != 0 {
				t.Fatal("ended before the body")
			}
			tc.do(resp, cancel)
			s := l.span()
			if attrs(s)["error.type"] != tc.typ || s.Status().Code != tc.code || attrs(s)["http.response.status_code"] != "200" {
				t.Errorf("%v %v", attrs(s), s.Status())
			}
			_ = resp.Body.Close()
			_ = resp.Body.Close()
			l.span()
			if body.closed == 0 {
				t.Error("the body was not closed")
			}
		})
	}
}

func TestClientErrors(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("x")}
	for _, tc := range []struct {
		err  error
		typ  string
		code codes.Code
	}{
		{context.Canceled, "context_canceled", codes.Unset},
		{fmt.Errorf("sending: %w", context.DeadlineExceeded), "context_deadline_exceeded", codes.Error},
		{refused, "*errors.errorString", codes.Error},
	} {
		l := newLab(t)
		if _, err := l.transport(&stub{err: tc.err}).RoundTrip(outbound(t, t.Context(), "http://a/")); !errors.Is(err, tc.err) {
			t.Errorf("got %v", err)
		}
		if s := l.span(); attrs(s)["error.type"] != tc.typ || s.Status().Code != tc.code || hasAttr(s, "http.response.status_code") {
			t.Errorf("%v: %v %v", tc.err, attrs(s), s.Status())
		}
		l.wantClientCounts(map[string]uint64{"GET a ": 1})
	}
}

func TestClientTimeout(t *testing.T) {
	l := newLab(t)
	release := make(chan struct{})
	s := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer close(release)
	c := &http.Client{Transport: l.transport(s.Client().Transport), Timeout: 20 * time.Millisecond}
	if _, err := c.Do(outbound(t, t.Context(), s.URL)); err == nil {
		t.Fatal("no timeout")
	}
	if s := l.span(); attrs(s)["error.type"] != "context_deadline_exceeded" || s.Status().Code != codes.Error {
		t.Errorf("%v %v", attrs(s), s.Status())
	}
}

func TestServerAddressLabel(t *testing.T) {
	l := newLab(t)
	rt := l.transport(&stub{}, WithServerAddresses("Reviews"))
	for _, host := range []string{"reviews:9080", "evil1", "evil2"} {
		roundTrip(t, rt, outbound(t, t.Context(), "http://"+host+"/"))
	}
	l.wantClientCounts(map[string]uint64{"GET reviews 200": 1, "GET _OTHER 200": 2})
}

func TestCloseIdleConnections(t *testing.T) {
	base := &stub{}
	(&http.Client{Transport: Transport(base)}).CloseIdleConnections()
	if !base.closed {
		t.Error("did not reach the base")
	}
}

func TestInvalidRequestsAreTheBasesBusiness(t *testing.T) {
	if _, err := Transport(nil).RoundTrip(&http.Request{}); err == nil {
		t.Error("no error")
	}
}
