package middleware

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// RequestIDKey is the span attribute that holds the request id. It is the one
// Envoy, and with it Istio, puts on its spans, so that one search in Jaeger
// finds the proxies' and the services' spans of a request.
const RequestIDKey = attribute.Key("guid:x-request-id")

var (
	serverKind = trace.WithSpanKind(trace.SpanKindServer)
	clientKind = trace.WithSpanKind(trace.SpanKindClient)
	newRoot    = trace.WithNewRoot()
)

// scratch is where attributes are put together before a span copies them.
// Options are kept with it: an option for the first n attributes of the same
// array is the same option every time, so it is made once.
type scratch struct {
	attrs [24]attribute.KeyValue
	first [25]trace.SpanStartOption
	opts  [4]trace.SpanStartOption
	n     int
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch { return scratches.Get().(*scratch) }

// release gives the scratch back, without what would keep requests alive.
func (s *scratch) release() {
	clear(s.attrs[:s.n])
	s.n = 0
	s.opts = [4]trace.SpanStartOption{}
	scratches.Put(s)
}

func (s *scratch) add(kv attribute.KeyValue) {
	s.attrs[s.n] = kv
	s.n++
}

// attributes is the option that sets what was added.
func (s *scratch) attributes() trace.SpanStartOption {
	if s.first[s.n] == nil {
		s.first[s.n] = trace.WithAttributes(s.attrs[:s.n]...)
	}
	return s.first[s.n]
}

// serverAttributes adds what is known before a request is handled, at most 14,
// and leaves what samplers have no use for to the end.
func (s *scratch) serverAttributes(x *exchange) {
	r := x.outer
	s.method(x.h.methods, int(x.method), r.Method)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	s.add(semconv.URLSchemeKey.String(scheme))
	s.add(semconv.URLPathKey.String(r.URL.Path))
	if r.URL.RawQuery != "" {
		s.add(semconv.URLQueryKey.String(x.h.redact.query(r.URL.RawQuery)))
	}
	if ua := r.Header["User-Agent"]; len(ua) > 0 {
		s.add(semconv.UserAgentOriginalKey.String(ua[0]))
	}
	if x.op.route != "" {
		s.add(semconv.HTTPRouteKey.String(x.op.route))
	}
	if !x.h.recommended {
		return
	}
	s.server(r.Host, scheme)
	host, port := splitHostPort(r.RemoteAddr)
	if host != "" {
		s.add(semconv.ClientAddressKey.String(host))
		s.add(semconv.NetworkPeerAddressKey.String(host))
	}
	if port > 0 {
		s.add(semconv.NetworkPeerPortKey.Int(port))
	}
	s.add(semconv.NetworkProtocolVersionKey.String(protocolVersion(r.ProtoMajor, r.ProtoMinor)))
	if r.ContentLength > 0 {
		s.add(semconv.HTTPRequestBodySizeKey.Int64(r.ContentLength))
	}
}

// clientAttributes adds what is known before a request is sent, at most 8.
func (s *scratch) clientAttributes(t *transport, r *http.Request, method, resend int) {
	s.method(t.methods, method, r.Method)
	s.add(semconv.URLFullKey.String(t.redact.url(r.URL)))
	s.add(semconv.ServerAddressKey.String(r.URL.Hostname()))
	// The client knows the port it dials, unlike a server its own.
	s.add(semconv.ServerPortKey.Int(portOf(r.URL.Port(), r.URL.Scheme)))
	if resend > 0 {
		s.add(semconv.HTTPRequestResendCountKey.Int(resend))
	}
	if t.recommended && r.ContentLength > 0 {
		s.add(semconv.HTTPRequestBodySizeKey.Int64(r.ContentLength))
	}
}

func (s *scratch) method(m *methods, method int, original string) {
	s.add(semconv.HTTPRequestMethodKey.String(m.labels[method]))
	if method == otherMethod {
		s.add(semconv.HTTPRequestMethodOriginalKey.String(original))
	}
}

// server adds the address and, unless it is the scheme's own, the port of the
// Host header.
func (s *scratch) server(hostport, scheme string) {
	host, port := splitHostPort(hostport)
	if host == "" {
		return
	}
	s.add(semconv.ServerAddressKey.String(host))
	if port > 0 && port != portOf("", scheme) {
		s.add(semconv.ServerPortKey.Int(port))
	}
}

// splitHostPort takes apart "host", "host:port", "[::1]" and "[::1]:port"; the
// port is 0 when there is none or it is not one.
func splitHostPort(hostport string) (host string, port int) {
	if strings.HasPrefix(hostport, "[") {
		end := strings.IndexByte(hostport, ']')
		if end < 0 {
			return "", 0
		}
		return hostport[1:end], parsePort(strings.TrimPrefix(hostport[end+1:], ":"))
	}
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && strings.IndexByte(hostport, ':') == i {
		return hostport[:i], parsePort(hostport[i+1:])
	} else if i >= 0 && net.ParseIP(hostport) == nil {
		return "", 0
	}
	return hostport, 0
}

// parsePort is without strconv because that allocates an error for "", which
// most hosts have.
func parsePort(s string) int {
	port := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || len(s) > 5 {
			return 0
		}
		port = port*10 + int(s[i]-'0')
	}
	if port > 65535 {
		return 0
	}
	return port
}

func portOf(port, scheme string) int {
	if p := parsePort(port); p > 0 {
		return p
	}
	if scheme == "https" {
		return 443
	}
	return 80
}

func protocolVersion(major, minor int) string {
	switch {
	case major == 1 && minor == 1:
		return "1.1"
	case major == 1 && minor == 0:
		return "1.0"
	case minor == 0:
		return strconv.Itoa(major)
	}
	return strconv.Itoa(major) + "." + strconv.Itoa(minor)
}
