package middleware

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

type named struct{}

func (named) Error() string     { return "full" }
func (named) ErrorType() string { return "pool_overflow" }

func TestErrorType(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("a: %w", named{}), "pool_overflow"},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), "context_deadline_exceeded"},
		{&net.OpError{Err: &net.DNSError{IsTimeout: true}}, "dns_error"},
		{&net.OpError{Err: os.ErrDeadlineExceeded}, "timeout"},
		{&net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "connection_refused"},
		{&net.OpError{Err: syscall.ECONNRESET}, "connection_reset"},
		{fmt.Errorf("a: %w", x509.UnknownAuthorityError{}), "tls_error"},
		{io.ErrUnexpectedEOF, "connection_closed"},
		{fmt.Errorf("a: %w", errors.New("x")), "*errors.errorString"},
		{&os.PathError{Err: syscall.ENOENT}, "syscall.Errno"},
	} {
		if got := errorType(tc.err); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestServerOutcome(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name string
		in   ending
		want outcome
	}{
		{"wrote nothing", ending{returned: true}, outcome{status: 200}},
		{"ok", ending{status: 204, started: true, returned: true}, outcome{status: 204}},
		{"not found", ending{status: 404, started: true, returned: true}, outcome{status: 404}},
		{"unavailable", ending{status: 503, started: true, returned: true}, outcome{503, "503", true}},
		{"panic", ending{panicked: boom}, outcome{500, "*errors.errorString", true}},
		{"panic of a value", ending{panicked: 7}, outcome{500, "panic", true}},
		{"panic after the header", ending{status: 200, started: true, panicked: boom}, outcome{200, "*errors.errorString", true}},
		{"panic, client gone before", ending{started: true, panicked: boom, gone: true}, outcome{0, "*errors.errorString", true}},
		{"abort", ending{panicked: http.ErrAbortHandler}, outcome{0, "response_aborted", true}},
		{"abort, client gone", ending{status: 200, started: true, panicked: http.ErrAbortHandler, gone: true}, outcome{200, "context_canceled", false}},
		{"gone", ending{returned: true, gone: true}, outcome{0, "context_canceled", false}},
		{"gone after 200", ending{status: 200, started: true, returned: true, gone: true}, outcome{200, "context_canceled", false}},
		{"gone after 500", ending{status: 500, started: true, returned: true, gone: true}, outcome{500, "500", true}},
		{"goexit", ending{}, outcome{0, "goexit", true}},
	} {
		if got := serverOutcome(tc.in); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestClientOutcome(t *testing.T) {
	for _, tc := range []struct {
		status      int
		err, ctxErr error
		want        outcome
	}{
		{200, nil, nil, outcome{status: 200}},
		{404, nil, nil, outcome{404, "404", true}},
		{502, nil, context.Canceled, outcome{502, "502", true}},
		{0, context.Canceled, context.Canceled, outcome{0, "context_canceled", false}},
		{0, errors.New("use of closed connection"), context.Canceled, outcome{0, "context_canceled", false}},
		{0, context.DeadlineExceeded, context.DeadlineExceeded, outcome{0, "context_deadline_exceeded", true}},
		{0, errors.New("request canceled"), context.DeadlineExceeded, outcome{0, "context_deadline_exceeded", true}},
		{200, io.ErrUnexpectedEOF, nil, outcome{200, "connection_closed", true}},
	} {
		if got := clientOutcome(tc.status, tc.err, tc.ctxErr); got != tc.want {
			t.Errorf("%d %v %v: %+v, want %+v", tc.status, tc.err, tc.ctxErr, got, tc.want)
		}
	}
}

func TestMethods(t *testing.T) {
	label := func(m *methods, method string) string { return m.labels[m.of(method)] }
	m := newMethods(nil)
	for in, want := range map[string]string{"GET": "GET", "": "GET", "QUERY": "QUERY", "get": "_OTHER", "PROPFIND": "_OTHER"} {
		if got := label(m, in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	t.Setenv(knownMethodsEnv, " PROPFIND , GET,")
	m = newMethods(nil)
	if label(m, "PROPFIND") != "PROPFIND" || label(m, "POST") != "_OTHER" || len(m.labels) != 3 {
		t.Errorf("from the environment: %v", m.labels)
	}
	if m = newMethods([]string{"X", "X"}); !slices.Equal(m.labels, []string{"_OTHER", "X"}) || label(m, "GET") != "_OTHER" {
		t.Errorf("from the option: %v", m.labels)
	}
}

func TestRouteOf(t *testing.T) {
	for in, want := range map[string]string{"": "", "/": "/", "GET /a/{id}": "/a/{id}", "example.com/b": "/b", "POST example.com/c/{d...}": "/c/{d...}"} {
		if got := routeOf(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestRedaction(t *testing.T) {
	r := newRedactor([]string{"token"})
	for in, want := range map[string]string{
		"http://a/b?c=d#e":                      "http://a/b?c=d#e",
		"http://u@a/":                           "http://REDACTED@a/",
		"http://u:p@a/":                         "http://REDACTED:REDACTED@a/",
		"http://a/?sig=1&x=2&TOKEN=3":           "http://a/?sig=REDACTED&x=2&TOKEN=REDACTED",
		"http://a/?X%2DAmz%2DSignature=1&sig":   "http://a/?X%2DAmz%2DSignature=REDACTED&sig",
		"http://a/?signature=1&X-Amz-Date=2":    "http://a/?signature=REDACTED&X-Amz-Date=2",
		"http://a/?x=sig&assignature=1&%zz=2":   "http://a/?x=sig&assignature=1&%zz=2",
		"http://a/?AWSAccessKeyId=a;b&&sig=%3D": "http://a/?AWSAccessKeyId=REDACTED&&sig=REDACTED",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.url(u); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if u.String() != in {
			t.Errorf("%s was changed to %s", in, u)
		}
	}
}

// Whatever the query, the secret is not in what is shown and the rest is.
func TestRedactionHidesEverySecret(t *testing.T) {
	rd := newRedactor(nil)
	rapid.Check(t, func(t *rapid.T) {
		var in, want []string
		for range rapid.IntRange(0, 8).Draw(t, "pairs") {
			key := rapid.StringMatching(`[a-zA-Z%+-]{0,6}`).Draw(t, "key")
			value := rapid.StringMatching(`[a-z=%;]{0,4}`).Draw(t, "value")
			pair := key + "=" + value
			shown := pair
			if rapid.Bool().Draw(t, "secret") {
				k := rapid.SampledFrom(redactedKeys).Draw(t, "secret key")
				pair, shown = k+"=hunter2"+value, k+"=REDACTED"
			} else if strings.EqualFold(key, "sig") {
				shown = key + "=REDACTED"
			}
			in, want = append(in, pair), append(want, shown)
		}
		if got := rd.query(strings.Join(in, "&")); got != strings.Join(want, "&") {
			t.Fatalf("%v became %s, want %v", in, got, want)
		}
	})
}

func TestSplitHostPort(t *testing.T) {
	for in, want := range map[string]struct {
		host string
		port int
	}{
		"": {"", 0}, "a": {"a", 0}, "a:80": {"a", 80}, "a:": {"a", 0}, "a:x": {"a", 0}, "a:99999": {"a", 0}, "a:123456": {"a", 0},
		"[::1]": {"::1", 0}, "[::1]:8080": {"::1", 8080}, "::1": {"::1", 0}, "[": {"", 0}, "a:b:c": {"", 0}, "127.0.0.1:1": {"127.0.0.1", 1},
	} {
		if host, port := splitHostPort(in); host != want.host || port != want.port {
			t.Errorf("%q: %q %d, want %q %d", in, host, port, want.host, want.port)
		}
	}
}

func FuzzSplitHostPort(f *testing.F) {
	for _, s := range []string{"a:80", "[::1]:8080", "::1", "[", ":", "a:b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, port := splitHostPort(s)
		if port < 0 || port > 65535 || len(host) > len(s) {
			t.Errorf("%q: %q %d", s, host, port)
		}
		// Where the standard library finds a numeric port, so do we.
		if h, p, err := net.SplitHostPort(s); err == nil && p != "" && parsePort(p) > 0 && !strings.HasPrefix(s, "[") && (host != h || port != parsePort(p)) {
			t.Errorf("%q: %q %d, net says %q %q", s, host, port, h, p)
		}
	})
}

func FuzzRedactQuery(f *testing.F) {
	for _, s := range []string{"sig=1", "a=b&sig=1;x", "%73ig=1", "&&=", "sig"} {
		f.Add(s)
	}
	r := newRedactor(nil)
	f.Fuzz(func(t *testing.T, s string) {
		got := r.query(s)
		if strings.Count(got, "&") != strings.Count(s, "&") {
			t.Errorf("%q became %q", s, got)
		}
		if again := r.query(got); again != got {
			t.Errorf("%q became %q, then %q", s, got, again)
		}
		for pair := range strings.SplitSeq(got, "&") {
			key, value, _ := strings.Cut(pair, "=")
			plain, err := url.QueryUnescape(key)
			if err == nil && slices.Contains(redactedKeys, plain) && value != "" && value != redacted {
				t.Errorf("%q shows %q", s, pair)
			}
		}
	})
}

func TestHostList(t *testing.T) {
	l, err := newHostList([]string{"Reviews", "*.svc.local", "[::1]"})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"reviews": true, "REVIEWS": true, "reviews.": true, "a.svc.local": true, "a.b.svc.local.": true, "::1": true,
		"svc.local": false, "xsvc.local": false, "reviews.evil": false, "": false, ".svc.local": false,
	} {
		if got := l.has(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
	for _, bad := range []string{"", "*.", "*", "a.*", "http://a", "a b"} {
		if _, err := newHostList([]string{bad}); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestPatternsBeyondTheCacheStillHaveARoute(t *testing.T) {
	rs := newRoutes(newMethods(nil), nil)
	full := make(map[string]*patternOps, maxPatterns)
	for i := range maxPatterns {
		full[fmt.Sprint(i)] = nil
	}
	rs.byPattern.Store(&full)
	if op := rs.find("GET /late", otherMethod); op.route != "/late" || op.name != "HTTP /late" {
		t.Errorf("%+v", op)
	}
	if n := len(*rs.byPattern.Load()); n != maxPatterns {
		t.Errorf("%d patterns cached", n)
	}
}
