package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/canarycontroller/canary-controller/middleware"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// step is one request to the service under test and what its calls must carry.
type step struct {
	// send are header lines, "name: value", written to the wire as they are.
	send []string
	// calls is how often the service is asked to call back; 0 means once.
	calls int
	// trace is the trace id the calls must have; empty when it must be new.
	trace string
	// not are trace ids the calls must not have.
	not []string
	// state are members the tracestate must have, in this order.
	state []string
	// gone are keys the tracestate must not have.
	gone []string
	// members is the number of members the tracestate must have, when not 0.
	members int
	// random says the random flag must be set.
	random bool
}

// call is one request the service made.
type call struct{ header http.Header }

// collector is the server that the service calls back.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]call
}

func newCollector(t *testing.T) *collector {
	c := &collector{calls: map[string]call{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[r.URL.Path] = call{r.Header.Clone()}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(path string) (call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, ok := c.calls[path]
	delete(c.calls, path)
	return got, ok
}

// order is what the W3C's suite posts to a service: URLs to call, and what to
// post to them in turn.
type order struct {
	URL       string  `json:"url"`
	Arguments []order `json:"arguments"`
}

// service obeys orders, with client for its calls.
func service(client *http.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var orders []order
		if err := json.NewDecoder(r.Body).Decode(&orders); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, o := range orders {
			body, err := json.Marshal(o.Arguments)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, o.URL, bytes.NewReader(body))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
	})
}

// withSpans is the service on the middleware with a tracing SDK.
func withSpans(t *testing.T) http.Handler {
	provider := sdktrace.NewTracerProvider()
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: middleware.Transport(base, middleware.WithTracerProvider(provider))}
	return middleware.Handler(service(client), middleware.WithTracerProvider(provider))
}

// withoutSpans is the service on the propagation package alone: a child of the
// caller's span, or a root, for every call.
func withoutSpans(t *testing.T) http.Handler {
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		propagation.Inject(propagation.Current(r.Context()).Child(nil), r.Header, nil)
		return base.RoundTrip(r)
	})}
	next := service(client)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := propagation.Extract(r.Header, nil)
		next.ServeHTTP(w, r.WithContext(propagation.ContextWithState(r.Context(), s)))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// post writes a request by hand, since net/http's client would clean the
// headers up.
func post(t *testing.T, addr string, lines []string, body []byte) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /test HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n", addr, len(body))
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(reply, []byte("HTTP/1.1 200 ")) {
		t.Fatalf("the service answered %q", reply)
	}
}

var traceparentFormat = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// TestW3C runs the cases of the W3C's test suite (github.com/w3c/trace-context,
// test/test.py at SPEC_LEVEL 2, STRICT_LEVEL 2), in our own words, against
// running servers.
func TestW3C(t *testing.T) {
	if len(w3cCases) != 41 {
		t.Errorf("%d cases, the suite has 41", len(w3cCases))
	}
	back := newCollector(t)
	for name, build := range map[string]func(*testing.T) http.Handler{"middleware": withSpans, "propagation": withoutSpans} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(build(t))
			defer srv.Close()
			for name, steps := range w3cCases {
				t.Run(name, func(t *testing.T) {
					for i, s := range steps {
						s.run(t, srv.Listener.Addr().String(), back, fmt.Sprintf("%s/%d", t.Name(), i))
					}
				})
			}
		})
	}
}

func (s step) run(t *testing.T, addr string, back *collector, path string) {
	t.Helper()
	var orders []order
	for i := range max(1, s.calls) {
		orders = append(orders, order{URL: fmt.Sprintf("%s/%s/%d", back.URL, path, i), Arguments: []order{}})
	}
	body, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	post(t, addr, s.send, body)
	parents := map[string]bool{}
	for i := range orders {
		got, ok := back.take(fmt.Sprintf("/%s/%d", path, i))
		if !ok {
			t.Fatalf("%q: call %d was not made", s.send, i)
		}
		parents[s.check(t, got.header)] = true
	}
	if len(parents) != len(orders) {
		t.Errorf("%q: %d parent ids in %d calls", s.send, len(parents), len(orders))
	}
}

// check compares one call with what is wanted and returns its parent id.
func (s step) check(t *testing.T, got http.Header) string {
	t.Helper()
	if n := len(got["Traceparent"]); n != 1 {
		t.Fatalf("%q: %d traceparent headers", s.send, n)
	}
	m := traceparentFormat.FindStringSubmatch(got.Get("traceparent"))
	if m == nil || within(m[1], "0") || within(m[2], "0") {
		t.Fatalf("%q: traceparent %q", s.send, got.Get("traceparent"))
	}
	if s.trace != "" && m[1] != s.trace || slices.Contains(s.not, m[1]) {
		t.Errorf("%q: trace id %s", s.send, m[1])
	}
	if m[2] == w3cParent {
		t.Errorf("%q: the parent id was not changed", s.send)
	}
	if s.random && m[3] != "02" && m[3] != "03" {
		t.Errorf("%q: flags %s", s.send, m[3])
	}
	var members []string
	for _, line := range got["Tracestate"] {
		for member := range strings.SplitSeq(line, ",") {
			if member = strings.Trim(member, " \t"); member != "" {
				members = append(members, member)
			}
		}
	}
	at := 0
	for _, want := range s.state {
		i := slices.Index(members[at:], want)
		if i < 0 {
			t.Errorf("%q: tracestate %q lacks %q, or has it too early", s.send, members, want)
			continue
		}
		at += i + 1
	}
	for _, key := range s.gone {
		if slices.ContainsFunc(members, func(m string) bool { return strings.HasPrefix(m, key+"=") }) {
			t.Errorf("%q: tracestate %q has %s", s.send, members, key)
		}
	}
	if s.members != 0 && len(members) != s.members {
		t.Errorf("%q: %d tracestate members", s.send, len(members))
	}
	return m[2]
}
