package middleware

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// The keys NewLogHandler adds; OpenTelemetry's for logs that are not OTLP.
const (
	logTraceID   = "trace_id"
	logSpanID    = "span_id"
	logRequestID = "request_id"
)

// logHandler is what NewLogHandler returns.
type logHandler struct {
	// inner has everything With was given, root nothing since the first group
	// was opened; later is what came since, to be redone on root.
	inner slog.Handler
	root  slog.Handler
	later []func(slog.Handler) slog.Handler
}

// NewLogHandler adds trace_id, span_id and request_id to the records of inner,
// as far as the context the record is logged with has them (use the ...Context
// methods of slog.Logger). They are at the top level, whatever groups a logger
// opened. Without a span of its own, as in forward-only mode, a request logs
// the ids of its caller.
func NewLogHandler(inner slog.Handler) slog.Handler {
	return &logHandler{inner: inner, root: inner}
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := make([]slog.Attr, 0, 3)
	traceID, spanID := "", ""
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		traceID, spanID = sc.TraceID().String(), sc.SpanID().String()
	} else if s, ok := propagation.FromContext(ctx); ok && s.HasIDs() {
		traceID, spanID = s.TraceID.String(), s.SpanID.String()
	}
	if traceID != "" {
		attrs = append(attrs, slog.String(logTraceID, traceID), slog.String(logSpanID, spanID))
	}
	if id := propagation.RequestIDFromContext(ctx); id != "" {
		attrs = append(attrs, slog.String(logRequestID, id))
	}
	if len(attrs) == 0 {
		return h.inner.Handle(ctx, r)
	}
	if len(h.later) == 0 {
		r = r.Clone()
		r.AddAttrs(attrs...)
		return h.inner.Handle(ctx, r)
	}
	// Attributes of a record belong to the innermost group, so these have to
	// get in before the first one.
	inner := h.root.WithAttrs(attrs)
	for _, redo := range h.later {
		inner = redo(inner)
	}
	return inner.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	if len(h.later) == 0 {
		inner := h.inner.WithAttrs(attrs)
		return &logHandler{inner: inner, root: inner}
	}
	return h.then(func(s slog.Handler) slog.Handler { return s.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.then(func(s slog.Handler) slog.Handler { return s.WithGroup(name) })
}

func (h *logHandler) then(do func(slog.Handler) slog.Handler) slog.Handler {
	return &logHandler{
		inner: do(h.inner),
		root:  h.root,
		later: append(h.later[:len(h.later):len(h.later)], do),
	}
}
