package propagation

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Option changes a [Config] while it is made.
type Option func(*settings)

// settings are the options as given, before they are checked.
type settings struct {
	extract, inject      []Format
	forward, credentials []string
	baggage              []string
	trust                TrustPolicy
	passthrough, mirror  bool
	lenient, requestID   bool
	maxHeader, maxTotal  int
	onDrop               func(string, DropReason)
	rand                 func() uint64
}

// WithExtract sets the formats to read, in order; the first valid one wins.
// Without formats nothing is read.
func WithExtract(formats ...Format) Option {
	return func(s *settings) { s.extract = slices.Clone(formats) }
}

// WithInject sets the formats to write. Without formats none is written.
func WithInject(formats ...Format) Option {
	return func(s *settings) { s.inject = slices.Clone(formats) }
}

// WithForward adds headers to the allowlist.
func WithForward(names ...string) Option {
	return func(s *settings) { s.forward = append(slices.Clone(s.forward), names...) }
}

// WithForwardList replaces the allowlist. Without names nothing is forwarded.
func WithForwardList(names ...string) Option {
	return func(s *settings) { s.forward = slices.Clone(names) }
}

// WithCredentials adds headers that hold credentials, such as Authorization
// and Cookie, to the allowlist. They have an option of their own so that
// nobody forwards them by accident: every host called will see them, unless
// the transport limits the hosts.
func WithCredentials(names ...string) Option {
	return func(s *settings) { s.credentials = append(slices.Clone(s.credentials), names...) }
}

// WithTrust sets who is trusted with what; see [TrustPolicy].
func WithTrust(p TrustPolicy) Option { return func(s *settings) { s.trust = p } }

// WithBaggage carries the W3C baggage members with these keys; "*" carries
// all.
func WithBaggage(keys ...string) Option {
	return func(s *settings) { s.baggage = append(slices.Clone(s.baggage), keys...) }
}

// WithPassthrough is forward-only mode, for services that record no spans: the
// state goes out as it came in, with the same span and parent ids, in the
// formats it came in and those of [WithInject]. Trace headers of formats that
// lost to an earlier one are forwarded untouched.
func WithPassthrough() Option {
	return func(s *settings) { s.passthrough, s.mirror = true, true }
}

// WithMirror writes the formats the request came with in addition to those of
// [WithInject], so that the next hop finds the format its peers use.
func WithMirror() Option { return func(s *settings) { s.mirror = true } }

// WithLenientHex accepts upper-case digits in B3 ids, which the specification
// does not allow but some senders use. Lower case is written.
func WithLenientHex() Option { return func(s *settings) { s.lenient = true } }

// WithoutRequestID leaves x-request-id alone: not read, not made, not written.
func WithoutRequestID() Option { return func(s *settings) { s.requestID = false } }

// WithMaxForwarded limits forwarded headers: perHeader and total are bytes of
// value.
func WithMaxForwarded(perHeader, total int) Option {
	return func(s *settings) { s.maxHeader, s.maxTotal = perHeader, total }
}

// WithOnDrop calls f for every header value that is not forwarded although its
// name is on the allowlist. name is one of [Config.ForwardNames]. f is called
// on the request's goroutine and must be safe for concurrent use.
func WithOnDrop(f func(name string, reason DropReason)) Option {
	return func(s *settings) { s.onDrop = f }
}

// WithRand sets the source of random bits for ids. It must be safe for
// concurrent use. The default is math/rand/v2.
func WithRand(f func() uint64) Option {
	return func(s *settings) {
		if f != nil {
			s.rand = f
		}
	}
}

// DefaultForward is the allowlist used when no option changes it: what tracing
// systems and meshes pass along, and no credentials. x-request-id is always
// carried, by rules of its own.
func DefaultForward() []string {
	return []string{
		"x-ot-span-context",
		"traceparent",
		"tracestate",
		"x-cloud-trace-context",
		"grpc-trace-bin",
		"user-agent",
	}
}

// credentialHeaders are refused by WithForward.
var credentialHeaders = map[string]bool{
	"Authorization":            true,
	"Cookie":                   true,
	"Proxy-Authorization":      true,
	"Set-Cookie":               true,
	"X-Api-Key":                true,
	"X-Amz-Security-Token":     true,
	"X-Auth-Token":             true,
	"X-Csrf-Token":             true,
	"X-Forwarded-Access-Token": true,
	"Jwt":                      true,
	"End-User":                 true,
}

// hopHeaders belong to one connection or one message, so that forwarding them
// would break the next one (RFC 9110 sections 7.6.1 and 8).
var hopHeaders = map[string]bool{
	"Connection":        true,
	"Content-Encoding":  true,
	"Content-Length":    true,
	"Content-Type":      true,
	"Expect":            true,
	"Host":              true,
	"Keep-Alive":        true,
	"Proxy-Connection":  true,
	"Te":                true,
	"Trailer":           true,
	"Transfer-Encoding": true,
	"Upgrade":           true,
}

func (s *settings) compile() (*Config, error) {
	c := &Config{
		extract:     s.extract,
		trust:       s.trust,
		passthrough: s.passthrough,
		mirror:      s.mirror,
		nibble:      &lowerNibble,
		requestID:   s.requestID,
		maxHeader:   s.maxHeader,
		maxTotal:    s.maxTotal,
		onDrop:      s.onDrop,
		rand:        s.rand,
	}
	if s.lenient {
		c.nibble = &anyNibble
	}
	var (
		errs  []error
		known Format
	)
	for _, f := range s.extract {
		if !f.one() {
			errs = append(errs, fmt.Errorf("WithExtract: %s (%#x) is not one known format", f, uint8(f)))
		}
		known |= f
	}
	for _, f := range s.inject {
		if !f.one() {
			errs = append(errs, fmt.Errorf("WithInject: %s (%#x) is not one known format", f, uint8(f)))
		}
		c.inject |= f
		known |= f
	}
	if s.maxHeader <= 0 || s.maxTotal < s.maxHeader {
		errs = append(errs, fmt.Errorf("WithMaxForwarded: want 0 < perHeader <= total, got %d and %d", s.maxHeader, s.maxTotal))
	}
	errs = append(errs, s.compileForward(c)...)
	if c.opaqueW3C && c.inject&TraceContext == 0 {
		// Then they are somebody else's, forwarded as text.
		known &^= TraceContext
	}
	for _, fk := range formatKeys {
		if known&fk.format != 0 {
			for _, k := range fk.keys {
				c.stale |= 1 << k
			}
		}
	}
	for _, k := range s.baggage {
		switch {
		case k == "*":
			c.baggageAll = true
		case !isToken(k):
			errs = append(errs, fmt.Errorf("WithBaggage: %q is not a baggage key (an RFC 9110 token)", k))
		default:
			if c.baggage == nil {
				c.baggage = map[string]bool{}
			}
			c.baggage[k] = true
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("propagation configuration: %w", err)
	}
	return c, nil
}

func (s *settings) compileForward(c *Config) (errs []error) {
	seen := map[string]bool{}
	add := func(option, name string, credential bool) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !isToken(name):
			errs = append(errs, fmt.Errorf("%s: %q is not a header name", option, name))
			return
		case hopHeaders[canonical]:
			errs = append(errs, fmt.Errorf("%s: %s belongs to one connection or message and cannot be forwarded", option, name))
			return
		case !credential && credentialHeaders[canonical]:
			errs = append(errs, fmt.Errorf("%s: %s holds credentials; use WithCredentials to forward it on purpose", option, name))
			return
		case canonical == HeaderTraceparent || canonical == HeaderTracestate:
			c.opaqueW3C = true
			return
		case ownHeader(canonical) || seen[canonical]:
			// Trace headers, the request id and baggage are carried by their
			// own rules; naming them here is harmless.
			return
		}
		seen[canonical] = true
		f := newForwardName(name)
		f.listed = true
		c.forward = append(c.forward, f)
	}
	for _, name := range s.forward {
		add("WithForward", name, false)
	}
	for _, name := range s.credentials {
		add("WithCredentials", name, true)
	}
	return errs
}

func ownHeader(canonical string) bool { return slices.Contains(canonicalNames[:], canonical) }

// isToken reports whether s is a token of RFC 9110 section 5.6.2, which header
// names and baggage keys are.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
