package middleware

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/internal/response"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// exchange is one request being handled. It is a context as well, between the
// server's and those made from it, which makes everything about a request one
// allocation and lets a Handler further in find the one around it.
type exchange struct {
	context.Context // the server's

	h         *handler
	state     propagation.State
	outer     *http.Request // as the server gave it
	inner     http.Request  // as the next handler gets it
	remote    remoteSpan
	span      trace.Span // nil when none is recorded or made
	op        *operation // what was known at the start
	pattern   atomic.Pointer[string]
	rec       response.Recorder
	started   time.Duration // on clock
	method    int32
	hasRemote bool // whether the context shows remote
	sampled   bool
	returned  bool
}

type exchangeKey struct{}

var processStart = time.Now()

// clock is the monotonic time since the process started: half the price and a
// third of the size of time.Now.
func clock() time.Duration { return time.Since(processStart) }

// Value implements context.Context.
func (x *exchange) Value(key any) any {
	switch {
	case key == stateKey:
		return &x.state
	case key == spanKey && x.hasRemote:
		return &x.remote
	case key == exchangeKey{}:
		return x
	}
	return x.Context.Value(key)
}

// setPattern takes over the pattern a mux further in set on a copy of the
// request. It may be called from another goroutine (http.TimeoutHandler).
func (x *exchange) setPattern(r *http.Request) {
	if r.Pattern != "" {
		pattern := patternOf(r, r.Pattern)
		x.pattern.Store(&pattern)
	}
}

// startSpan starts the server span, which is kept only if it records, and
// returns the context with it.
func (x *exchange) startSpan(trust propagation.Trust) context.Context {
	var ctx context.Context = x
	s := newScratch()
	s.serverAttributes(x)
	opts := append(s.opts[:0], serverKind, s.attributes())
	if !trust.Has(propagation.TrustIDs) {
		opts = append(opts, newRoot)
		if link := propagation.ExtractLink(x.outer.Header, x.h.cfg); link.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: link}))
		}
	} else if x.state.HasIDs() && !hasLocalParent(x.Context, x.state.TraceID) {
		if holdsSpans && x.state.TraceState == "" {
			x.remote.x, x.hasRemote = x, true
		} else {
			ctx = trace.ContextWithSpanContext(ctx, x.state.SpanContext())
		}
	}
	ctx, span := x.h.tracer.Start(ctx, x.op.name, opts...)
	s.release()
	x.sampled = span.SpanContext().IsSampled()
	if span.IsRecording() {
		x.span = span
	}
	return ctx
}

// hasLocalParent reports whether ctx holds a span of this process to which the
// request belongs, as with another instrumentation around this one.
func hasLocalParent(ctx context.Context, id trace.TraceID) bool {
	sc := trace.SpanContextFromContext(ctx)
	return sc.IsValid() && !sc.IsRemote() && sc.TraceID() == id
}

// end is deferred around the handler: it records how the request ended and
// lets a panic go on.
func (x *exchange) end() {
	panicked := recover()
	now := clock()
	x.restore()

	out := serverOutcome(ending{
		status: x.rec.Status(), started: x.rec.Started(), returned: x.returned, panicked: panicked,
		gone: x.outer.Context().Err() == context.Canceled,
	})
	op := x.operation()
	if x.span != nil {
		x.endSpan(op, out, panicked)
	}
	if op.series != nil {
		x.h.active[x.method].Dec()
		took := now - x.started
		if x.sampled {
			op.series.Observe(out.status, took, now, x.traceID)
		} else {
			op.series.Observe(out.status, took, now, nil)
		}
	}
	if panicked != nil {
		panic(panicked)
	}
}

// restore gives the request of the server what the handlers set on its copy:
// net/http removes the temporary files of MultipartForm, and middleware further
// out may look at Pattern.
func (x *exchange) restore() {
	if x.outer.MultipartForm == nil {
		x.outer.MultipartForm = x.inner.MultipartForm
	}
	if x.outer.Pattern == "" {
		x.outer.Pattern = x.inner.Pattern
	}
}

// operation is what is known of the route after the request was handled. What
// a Handler within the mux said counts most, then what the mux set on the
// request.
func (x *exchange) operation() *operation {
	if p := x.pattern.Load(); p != nil {
		return x.h.routes.find(*p, int(x.method))
	}
	if x.h.mux == nil && x.inner.Pattern != "" {
		return x.h.routes.find(patternOf(&x.inner, x.inner.Pattern), int(x.method))
	}
	return x.op
}

func (x *exchange) traceID() string {
	return trace.SpanContextFromContext(x.inner.Context()).TraceID().String()
}

func (x *exchange) endSpan(op *operation, out outcome, panicked any) {
	s := newScratch()
	if id := x.state.RequestID; id != "" {
		s.add(RequestIDKey.String(id))
	}
	if op != x.op {
		x.span.SetName(op.name)
		if op.route != "" {
			s.add(semconv.HTTPRouteKey.String(op.route))
		}
	}
	if out.status != 0 {
		s.add(semconv.HTTPResponseStatusCodeKey.Int(out.status))
	}
	if out.errorType != "" {
		s.add(semconv.ErrorTypeKey.String(out.errorType))
	}
	if x.h.recommended {
		s.add(semconv.HTTPResponseBodySizeKey.Int64(x.rec.BodySize()))
	}
	x.span.SetAttributes(s.attrs[:s.n]...)
	s.release()
	if out.failed {
		description := ""
		if panicked != nil && !isAbort(panicked) {
			description = x.addException(panicked)
		}
		x.span.SetStatus(codes.Error, description)
	}
	x.span.End()
}

// addException records a panic as the semantic conventions record exceptions
// and returns its message.
func (x *exchange) addException(panicked any) string {
	message := fmt.Sprint(panicked)
	x.span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(
		semconv.ExceptionTypeKey.String(fmt.Sprintf("%T", panicked)),
		semconv.ExceptionMessageKey.String(message),
		semconv.ExceptionStacktraceKey.String(string(debug.Stack())),
	))
	return message
}
