package middleware

import (
	"context"
	"fmt"

	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/internal/httpmetrics"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// transport is what Transport returns.
type transport struct {
	core
	base      http.RoundTripper
	metrics   *httpmetrics.Client // nil without a registerer
	addresses map[string]bool     // nil when any may be a label
	forwardTo *hostList           // nil for every host
	names     []string            // span names by method
}

// Transport wraps base, http.DefaultTransport when nil. It panics when
// NewTransport would return an error.
//
// Every attempt, be it a redirect or a retry, is a span and an observation of
// its own, counted in http.request.resend_count (see ContextWithResendCount).
// The span ends when the body was read to its end or closed or the request's
// context is done, so a body that is neither read nor closed leaves it open as
// long as it leaves the connection open. The duration in the metrics is that
// until the response's header.
func Transport(base http.RoundTripper, opts ...TransportOption) http.RoundTripper {
	t, err := NewTransport(base, opts...)
	if err != nil {
		panic("middleware: " + err.Error())
	}
	return t
}

// NewTransport is Transport with an error for options that are not valid or
// metrics that cannot be registered.
func NewTransport(base http.RoundTripper, opts ...TransportOption) (http.RoundTripper, error) {
	c := transportConfig{settings: defaults(), addressLimit: defaultAddressLimit}
	for _, o := range opts {
		o.applyTransport(&c)
	}
	core, err := c.core()
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{core: core, base: base, names: core.methods.prefixes}
	if t.forwardTo, err = newHostList(c.forwardTo); err != nil {
		return nil, fmt.Errorf("WithForwardTo: %w", err)
	}
	if c.addressLimit < 1 {
		return nil, fmt.Errorf("WithServerAddressLimit: %d is not positive", c.addressLimit)
	}
	for _, a := range c.addresses {
		if t.addresses == nil {
			t.addresses = make(map[string]bool)
		}
		t.addresses[strings.ToLower(a)] = true
	}
	if c.registerer != nil {
		t.metrics, err = httpmetrics.NewClient(c.registerer, c.buckets,
			httpmetrics.Bounds{Series: c.seriesLimit, Values: c.addressLimit})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. It does not change req.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil || req.Header == nil {
		// base has the proper error for these and closes the body.
		return t.base.RoundTrip(req)
	}
	started := clock()
	ctx := req.Context()
	method := t.methods.of(req.Method)
	state, span, ctx := t.start(ctx, req, method)

	host := req.URL.Hostname()
	if t.forwardTo != nil && !t.forwardTo.has(host) {
		state = state.WithoutForwarded()
	}
	c := new(call)
	c.sent = *req.WithContext(ctx)
	if !state.IsEmpty() {
		c.sent.Header = copyHeader(req.Header, len(state.Forwarded))
		propagation.Inject(state, c.sent.Header, t.cfg)
	}

	resp, err := t.base.RoundTrip(&c.sent)
	now := clock()
	status := 0
	if resp != nil {
		status = resp.StatusCode
		if resp.Request == &c.sent {
			// The caller gets back what it sent, not what was added.
			resp.Request = req
		}
	}
	if t.metrics != nil {
		t.observe(method, host, status, now-started, now, span)
	}
	if span == nil || !span.IsRecording() {
		return resp, err
	}
	var ctxErr error
	if err != nil {
		ctxErr = contextErr(req.Context())
	}
	out := clientOutcome(status, err, ctxErr)
	s := newScratch()
	if status != 0 {
		s.add(semconv.HTTPResponseStatusCodeKey.Int(status))
	}
	if resp != nil && t.recommended {
		s.add(semconv.NetworkProtocolVersionKey.String(protocolVersion(resp.ProtoMajor, resp.ProtoMinor)))
	}
	span.SetAttributes(s.attrs[:s.n]...)
	s.release()
	if err != nil || resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		endClientSpan(span, out)
		return resp, err
	}
	resp.Body = c.watch(resp.Body, span, out)
	return resp, nil
}

// start begins the client span, nil when none is to be made, and says what to
// inject and the context to send the request with.
func (t *transport) start(ctx context.Context, req *http.Request, method int) (propagation.State, trace.Span, context.Context) {
	state := propagation.Current(ctx)
	if t.tracer == nil || denied(state) {
		return state, nil, ctx
	}
	parent := ctx
	psc := trace.SpanContextFromContext(ctx)
	if !psc.IsValid() && state.HasIDs() {
		// The server made no span of its request (WithFilter), so the
		// caller's is the parent.
		psc = state.SpanContext()
		parent = trace.ContextWithSpanContext(ctx, psc)
	}
	s := newScratch()
	s.clientAttributes(t, req, method, resendCount(req))
	ctx, span := t.tracer.Start(parent, t.names[method], append(s.opts[:0], clientKind, s.attributes())...)
	s.release()

	sc := span.SpanContext()
	if !sc.IsValid() || sc.SpanID() == psc.SpanID() {
		// A tracer that makes no spans hands the parent back.
		return state, nil, ctx
	}
	var parentID trace.SpanID
	if psc.TraceID() == sc.TraceID() {
		parentID = psc.SpanID()
	}
	return state.WithSpan(sc, parentID), span, ctx
}

func (t *transport) observe(method int, host string, status int, took, now time.Duration, span trace.Span) {
	address := lower(host)
	if t.addresses != nil && !t.addresses[address] {
		address = httpmetrics.Other
	}
	series := t.metrics.Series(t.methods.labels[method], address)
	if span != nil {
		if sc := span.SpanContext(); sc.IsSampled() {
			series.Observe(status, took, now, func() string { return sc.TraceID().String() })
			return
		}
	}
	series.Observe(status, took, now, nil)
}

// CloseIdleConnections closes those of the base, so that
// http.Client.CloseIdleConnections reaches it.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func endClientSpan(span trace.Span, out outcome) {
	if out.errorType != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(out.errorType))
	}
	if out.failed {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// copyHeader copies a header with room for what is injected. The values are
// shared, with no room to append to: setting or adding one in the copy leaves
// the original alone, which is all a RoundTripper can do to a header without
// breaking its contract.
func copyHeader(h http.Header, forwarded int) http.Header {
	// B3's four and traceparent; a ninth key costs a map three allocations.
	const injected = 5
	c := make(http.Header, len(h)+forwarded+injected)
	for k, v := range h {
		c[k] = v[:len(v):len(v)]
	}
	return c
}

// lower is strings.ToLower for hosts, which are nearly always lower already.
func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; 'A' <= c && c <= 'Z' || c >= 0x80 {
			return strings.ToLower(s)
		}
	}
	return s
}

type resendKey struct{}

// ContextWithResendCount says that requests sent with the context are the n-th
// attempt after the first, for http.request.resend_count. Code that retries
// requests calls it; redirects followed by http.Client are counted without it.
func ContextWithResendCount(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, resendKey{}, n)
}

// resendCount adds up the redirects that led to the request, which http.Client
// chains through Request.Response, and the retries its context tells of.
func resendCount(req *http.Request) int {
	n, _ := req.Context().Value(resendKey{}).(int)
	for r := req.Response; r != nil && r.Request != nil; r = r.Request.Response {
		n++
	}
	return n
}
