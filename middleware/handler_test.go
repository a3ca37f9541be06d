package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

const (
	traceID   = "463ac35c9f6413ad48485a3953bb6124"
	spanID    = "a2fb4a1d1a96d312"
	requestID = "5b1f2c0e-7c57-4d8e-9a53-2f3f3a1e8a11"
	b3        = traceID + "-" + spanID + "-1"
)

// copyKey is the key of a value that makes a handler copy the request.
type copyKey struct{}

func TestServerSpan(t *testing.T) {
	l := newLab(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /products/{id}", ok)
	r := request(t, "GET", "http://shop:8080/products/7?q=a&sig=secret", "B3", b3, "User-Agent", "curl/8", "X-Request-Id", requestID)
	w := httptest.NewRecorder()
	l.handler(mux).ServeHTTP(w, r)

	s := l.span()
	if s.Name() != "GET /products/{id}" || s.SpanKind() != trace.SpanKindServer || s.Status().Code != codes.Unset {
		t.Errorf("name %q kind %v status %v", s.Name(), s.SpanKind(), s.Status())
	}
	if s.SpanContext().TraceID().String() != traceID || s.Parent().SpanID().String() != spanID || !s.Parent().IsRemote() {
		t.Errorf("trace %s parent %+v", s.SpanContext().TraceID(), s.Parent())
	}
	wantAttrs(t, s, map[string]string{
		"http.request.method": "GET", "url.scheme": "http", "url.path": "/products/7", "url.query": "q=a&sig=REDACTED",
		"user_agent.original": "curl/8", "guid:x-request-id": requestID,
		"http.route": "/products/{id}", "http.response.status_code": "200",
	})
	l.wantServerCounts(map[string]uint64{"GET /products/{id} 200": 1})
	if got := w.Header()["X-Request-Id"]; len(got) != 1 || got[0] != requestID {
		t.Errorf("request id on the response: %q", got)
	}
	if id := exemplar(l.metrics("http_server_request_duration_seconds")["GET /products/{id} 200"]); id != traceID {
		t.Errorf("exemplar of trace %q", id)
	}
}

func TestRecommendedAttributes(t *testing.T) {
	l := newLab(t)
	r := request(t, "POST", "http://shop:8080/")
	r.ContentLength, r.Body = 3, io.NopCloser(strings.NewReader("abc"))
	l.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "four") }),
		WithRecommendedAttributes()).ServeHTTP(httptest.NewRecorder(), r)
	id := attrs(l.span())["guid:x-request-id"]
	wantAttrs(t, l.span(), map[string]string{
		"http.request.method": "POST", "url.scheme": "http", "url.path": "/", "http.response.status_code": "200",
		"server.address": "shop", "server.port": "8080", "client.address": "192.0.2.1",
		"network.peer.address": "192.0.2.1", "network.peer.port": "1234", "network.protocol.version": "1.1",
		"http.request.body.size": "3", "http.response.body.size": "4", "guid:x-request-id": id,
	})
}

// seeing is a sampler that notes what it is asked.
type seeing struct{ params []sdktrace.SamplingParameters }

func (s *seeing) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.params = append(s.params, p)
	return sdktrace.AlwaysSample().ShouldSample(p)
}
func (*seeing) Description() string { return "seeing" }

func TestRoute(t *testing.T) {
	mux := func() *http.ServeMux {
		m := http.NewServeMux()
		m.HandleFunc("GET /a/{x}", ok)
		m.HandleFunc("/tree/", ok)
		m.HandleFunc("/w/{wild}/deep/", ok)
		m.HandleFunc("example.com/b", ok)
		return m
	}
	copying := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), copyKey{}, 1)))
		})
	}
	for _, tc := range []struct {
		name, method, target string
		build                func(l *lab) http.Handler
		span, route          string
	}{
		{"mux", "GET", "/a/1", func(l *lab) http.Handler { return l.handler(mux()) }, "GET /a/{x}", "/a/{x}"},
		{"any method", "PUT", "/tree/1", func(l *lab) http.Handler { return l.handler(mux()) }, "PUT /tree/", "/tree/"},
		{"host pattern", "GET", "http://example.com/b", func(l *lab) http.Handler { return l.handler(mux()) }, "GET /b", "/b"},
		{"not found", "GET", "/nothing", func(l *lab) http.Handler { return l.handler(mux()) }, "GET", ""},
		{"unknown method", "BREW", "/tree/", func(l *lab) http.Handler { return l.handler(mux()) }, "HTTP /tree/", "/tree/"},
		{"redirect of CONNECT", "CONNECT", "/w/evil/deep", func(l *lab) http.Handler { return l.handler(mux()) }, "CONNECT", ""},
		{"redirect", "GET", "/tree", func(l *lab) http.Handler { return l.handler(mux()) }, "GET /tree/", "/tree/"},
		{"within the mux", "GET", "/in/1", func(l *lab) http.Handler {
			m := http.NewServeMux()
			m.Handle("GET /in/{x}", l.handler(http.HandlerFunc(ok)))
			return m
		}, "GET /in/{x}", "/in/{x}"},
		{"copied request", "GET", "/a/1", func(l *lab) http.Handler { return l.handler(copying(mux())) }, "GET", ""},
		{"copied request, mux named", "GET", "/a/1", func(l *lab) http.Handler {
			m := mux()
			return l.handler(copying(m), WithMux(m))
		}, "GET /a/{x}", "/a/{x}"},
		{"copied request, handler within", "GET", "/in/1", func(l *lab) http.Handler {
			m := http.NewServeMux()
			m.Handle("GET /in/{x}", l.handler(http.HandlerFunc(ok)))
			return l.handler(http.TimeoutHandler(copying(m), time.Minute, ""))
		}, "GET /in/{x}", "/in/{x}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sampler := &seeing{}
			l := newLab(t, sdktrace.WithSampler(sampler))
			r := httptest.NewRequest(tc.method, "/", nil)
			target := request(t, "GET", tc.target)
			r.URL, r.Host = target.URL, target.Host
			tc.build(l).ServeHTTP(httptest.NewRecorder(), r)
			s := l.span()
			if s.Name() != tc.span || attrs(s)["http.route"] != tc.route {
				t.Errorf("span %q route %q, want %q %q", s.Name(), attrs(s)["http.route"], tc.span, tc.route)
			}
			n := 0
			for key := range l.counts("http_server_request_duration_seconds") {
				n++
				if _, route, _ := strings.Cut(key, " "); !strings.HasPrefix(route, tc.route+" ") {
					t.Errorf("counted as %q", key)
				}
			}
			if n != 1 {
				t.Errorf("%d series", n)
			}
			if strings.Contains(tc.name, "named") && sampler.params[0].Name != tc.span {
				t.Errorf("the sampler saw %q", sampler.params[0].Name)
			}
		})
	}
}

func TestPatternReachesTheOuterRequest(t *testing.T) {
	l := newLab(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a/{x}", ok)
	r := request(t, "GET", "/a/1")
	l.handler(mux).ServeHTTP(httptest.NewRecorder(), r)
	if r.Pattern != "GET /a/{x}" {
		t.Errorf("pattern %q", r.Pattern)
	}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		status int
		typ    string
		code   codes.Code
	}{{204, "", codes.Unset}, {404, "", codes.Unset}, {500, "500", codes.Error}, {503, "503", codes.Error}} {
		l := newLab(t)
		l.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) })).
			ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/"))
		s := l.span()
		if attrs(s)["error.type"] != tc.typ || s.Status().Code != tc.code {
			t.Errorf("%d: error.type %q status %v", tc.status, attrs(s)["error.type"], s.Status())
		}
		l.wantServerCounts(map[string]uint64{fmt.Sprintf("GET  %d", tc.status): 1})
	}
}

func TestPanic(t *testing.T) {
	for _, tc := range []struct {
		name            string
		do              func(http.ResponseWriter)
		typ, status     string
		events          int
		wantDescription string
	}{
		{"error", func(http.ResponseWriter) { panic(fmt.Errorf("query: %w", io.ErrClosedPipe)) }, "*errors.errorString", "500", 1, "query: io: read/write on closed pipe"},
		{"string", func(http.ResponseWriter) { panic("boom") }, "panic", "500", 1, "boom"},
		{"after the header", func(w http.ResponseWriter) { w.WriteHeader(202); panic("late") }, "panic", "202", 1, "late"},
		{"abort", func(w http.ResponseWriter) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, "response_aborted", "200", 0, ""},
		{"abort before the header", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "response_aborted", "", 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			mux := http.NewServeMux()
			mux.HandleFunc("GET /p/{x}", func(w http.ResponseWriter, _ *http.Request) { tc.do(w) })
			h := l.handler(mux)
			var got any
			func() {
				defer func() { got = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/p/1"))
			}()
			if got == nil {
				t.Fatal("the panic did not go on")
			}
			s := l.span()
			a := attrs(s)
			if a["error.type"] != tc.typ || a["http.response.status_code"] != tc.status || a["http.route"] != "/p/{x}" {
				t.Errorf("attributes %v", a)
			}
			if s.Status().Code != codes.Error || s.Status().Description != tc.wantDescription || len(s.Events()) != tc.events {
				t.Errorf("status %+v, %d events", s.Status(), len(s.Events()))
			}
			if tc.events == 1 {
				e := s.Events()[0]
				got := map[string]string{}
				for _, kv := range e.Attributes {
					got[string(kv.Key)] = kv.Value.String()
				}
				if e.Name != "exception" || got["exception.message"] != tc.wantDescription ||
					!strings.Contains(got["exception.stacktrace"], "TestPanic") {
					t.Errorf("event %s %v", e.Name, got)
				}
			}
			l.wantServerCounts(map[string]uint64{"GET /p/{x} " + tc.status: 1})
			if n := l.metrics("http_server_active_requests")["GET  "].GetGauge().GetValue(); n != 0 {
				t.Errorf("%v requests still active", n)
			}
		})
	}
}

func TestRequestID(t *testing.T) {
	long := strings.Repeat("a", 129)
	for _, tc := range []struct {
		name, inbound string
		opts          []HandlerOption
		kept          bool
	}{
		{"kept", "abc-123", nil, true},
		{"none", "", nil, false},
		{"malformed", "a b", nil, false},
		{"too long", long, nil, false},
		{"public", "abc-123", []HandlerOption{WithPublicEndpoint()}, false},
		{"untrusted", "abc-123", []HandlerOption{WithPropagation(propagation.WithTrust(propagation.TrustNone()))}, false},
		{"trusted with ids only", "abc-123", []HandlerOption{WithPropagation(propagation.WithTrust(
			propagation.TrustFunc(func(propagation.Peer) propagation.Trust { return propagation.TrustIDs })))}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			var inCtx, inHeader string
			h := l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				inCtx, inHeader = propagation.RequestIDFromContext(r.Context()), r.Header.Get("X-Request-Id")
			}), tc.opts...)
			r := request(t, "GET", "/")
			if tc.inbound != "" {
				r.Header.Set("X-Request-Id", tc.inbound)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			echoed := w.Header()["X-Request-Id"]
			if len(echoed) != 1 || echoed[0] != inCtx || inHeader != inCtx || attrs(l.span())["guid:x-request-id"] != inCtx {
				t.Errorf("echoed %q, context %q, header %q, span %q", echoed, inCtx, inHeader, attrs(l.span())["guid:x-request-id"])
			}
			if !propagation.ValidRequestID(inCtx) || (inCtx == tc.inbound) != tc.kept {
				t.Errorf("id %q from %q", inCtx, tc.inbound)
			}
		})
	}
}

func TestPublicEndpoint(t *testing.T) {
	l := newLab(t)
	var st propagation.State
	l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { st = propagation.Current(r.Context()) }),
		WithPublicEndpoint(), WithPropagation(propagation.WithBaggage("*"))).
		ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/", "B3", traceID+"-"+spanID+"-d", "Baggage", "user=1", "X-Ot-Span-Context", "x"))
	s := l.span()
	if s.SpanContext().TraceID().String() == traceID || s.Parent().IsValid() {
		t.Errorf("trace %s parent %v", s.SpanContext().TraceID(), s.Parent())
	}
	if len(s.Links()) != 1 || s.Links()[0].SpanContext.TraceID().String() != traceID || s.Links()[0].SpanContext.SpanID().String() != spanID {
		t.Errorf("links %+v", s.Links())
	}
	if st.Sampling == propagation.Debug || st.Baggage != "" || len(st.Forwarded) != 0 {
		t.Errorf("state %+v", st)
	}
}

func TestTrustFunctionSeesTheRequest(t *testing.T) {
	l := newLab(t)
	h := l.handler(http.HandlerFunc(ok), WithPropagation(propagation.WithTrust(propagation.TrustFunc(func(p propagation.Peer) propagation.Trust {
		if p.RemoteAddr == "10.0.0.1:1" && p.Method == "GET" && p.Header.Get("B3") != "" && p.Context != nil {
			return propagation.TrustEverything
		}
		return propagation.TrustNothing
	}))))
	for addr, want := range map[string]bool{"10.0.0.1:1": true, "10.0.0.2:1": false} {
		l.spans.Reset()
		r := request(t, "GET", "/", "B3", b3)
		r.RemoteAddr = addr
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := l.span().SpanContext().TraceID().String() == traceID; got != want {
			t.Errorf("%s: continued %v, want %v", addr, got, want)
		}
	}
}

func TestDecisionsWithoutASpan(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    []string
		opts []HandlerOption
		want propagation.State
	}{
		{"deny alone", []string{"B3", "0"}, nil, propagation.State{Sampling: propagation.Deny}},
		{"filtered", []string{"B3", b3}, []HandlerOption{WithFilter(func(*http.Request) bool { return false })},
			propagation.State{Sampling: propagation.Accept}},
		{"forward only", []string{"B3", b3 + "-05e3ac9a4f6e3b90"}, []HandlerOption{WithForwardOnly()},
			propagation.State{Sampling: propagation.Accept}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			var st propagation.State
			l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { st = propagation.Current(r.Context()) }), tc.opts...).
				ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/", tc.h...))
			if len(l.spans.Started()) != 0 {
				t.Errorf("%d spans", len(l.spans.Started()))
			}
			if st.Sampling != tc.want.Sampling {
				t.Errorf("sampling %v", st.Sampling)
			}
			if tc.h[1] != "0" && (st.TraceIDString() != traceID || st.SpanID.String() != spanID) {
				t.Errorf("state %+v", st)
			}
			if tc.name == "forward only" && st.ParentID.String() != "05e3ac9a4f6e3b90" {
				t.Errorf("parent %s", st.ParentID)
			}
			l.wantServerCounts(map[string]uint64{"GET  200": 1})
		})
	}
}

func TestNestedHandlersAreOneRequest(t *testing.T) {
	l := newLab(t)
	l.handler(l.handler(http.HandlerFunc(ok))).ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/"))
	l.span()
	l.wantServerCounts(map[string]uint64{"GET  200": 1})
}

func TestSpanOfAnotherInstrumentationIsTheParent(t *testing.T) {
	l := newLab(t)
	ctx, outer := l.tp.Tracer("x").Start(t.Context(), "outer")
	r := request(t, "GET", "/").WithContext(ctx)
	l.handler(http.HandlerFunc(ok)).ServeHTTP(httptest.NewRecorder(), r)
	if s := l.span(); s.Parent().SpanID() != outer.SpanContext().SpanID() {
		t.Errorf("parent %v", s.Parent().SpanID())
	}
}

func TestLogHandler(t *testing.T) {
	l := newLab(t)
	var b bytes.Buffer
	log := slog.New(NewLogHandler(slog.NewJSONHandler(&b, nil)))
	var sc trace.SpanContext
	l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sc = trace.SpanContextFromContext(r.Context())
		log.InfoContext(r.Context(), "plain")
		log.With("a", 1).WithGroup("g").With("b", 2).InfoContext(r.Context(), "grouped", "c", 3)
		log.Info("no context")
	})).ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/", "X-Request-Id", requestID))

	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, line := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if got["trace_id"] != nil || got["request_id"] != nil {
				t.Errorf("ids from nowhere: %s", line)
			}
			continue
		}
		if got["trace_id"] != sc.TraceID().String() || got["span_id"] != sc.SpanID().String() || got["request_id"] != requestID {
			t.Errorf("line %s", line)
		}
		if i == 1 {
			g, _ := got["g"].(map[string]any)
			if got["a"] != 1.0 || g["b"] != 2.0 || g["c"] != 3.0 || len(g) != 2 {
				t.Errorf("groups: %s", line)
			}
		}
	}

	// Without a span the caller's ids are logged.
	b.Reset()
	Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { log.InfoContext(r.Context(), "x") }), WithForwardOnly()).
		ServeHTTP(httptest.NewRecorder(), request(t, "GET", "/", "B3", b3))
	if !strings.Contains(b.String(), `"trace_id":"`+traceID+`"`) {
		t.Errorf("forward-only: %s", b.String())
	}
}

func TestBadOptions(t *testing.T) {
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "http_server_request_duration_seconds", Help: "x"}))
	for want, o := range map[string]HandlerOption{
		"WithSeriesLimit":     WithSeriesLimit(0),
		"WithDurationBuckets": WithDurationBuckets(1, 1),
		"WithKnownMethods":    WithKnownMethods("GET", "A B"),
		"WithPropagation":     WithPropagation(propagation.WithForward("cookie")),
		"registering":         WithRegisterer(taken),
	} {
		if _, err := NewHandler(http.NotFoundHandler(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Handler did not panic", want)
				}
			}()
			Handler(http.NotFoundHandler(), o)
		}()
	}
	if _, err := NewTransport(nil, WithForwardTo("a/b")); err == nil || !strings.Contains(err.Error(), "WithForwardTo") {
		t.Errorf("%v", err)
	}
	if _, err := NewTransport(nil, WithServerAddressLimit(0)); err == nil || !strings.Contains(err.Error(), "WithServerAddressLimit") {
		t.Errorf("%v", err)
	}
}
