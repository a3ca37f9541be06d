package middleware

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canarycontroller/canary-controller/middleware/internal/httpmetrics"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// handler is what Handler returns.
type handler struct {
	core
	next    http.Handler
	mux     *http.ServeMux
	filter  func(*http.Request) bool
	public  bool
	metrics *httpmetrics.Server // nil without a registerer
	active  []prometheus.Gauge  // by method; nil without a registerer
	routes  *routes
}

// Handler wraps next, usually an http.ServeMux. It panics when NewHandler would
// return an error.
//
// Make it once and not per request. Of nested Handlers only the outermost acts;
// an inner one merely tells it the route.
//
// The route is that of the ServeMux that served the request, when next is the
// mux, when Handler wraps handlers within the mux, or when everything in
// between passes on the same *http.Request; otherwise name the mux with
// WithMux.
func Handler(next http.Handler, opts ...HandlerOption) http.Handler {
	h, err := NewHandler(next, opts...)
	if err != nil {
		panic("middleware: " + err.Error())
	}
	return h
}

// NewHandler is Handler with an error for options that are not valid or
// metrics that cannot be registered.
func NewHandler(next http.Handler, opts ...HandlerOption) (http.Handler, error) {
	c := handlerConfig{settings: defaults()}
	for _, o := range opts {
		o.applyHandler(&c)
	}
	core, err := c.core()
	if err != nil {
		return nil, err
	}
	h := &handler{core: core, next: next, mux: c.mux, filter: c.filter, public: c.public}
	if c.registerer != nil {
		h.metrics, err = httpmetrics.NewServer(c.registerer, c.buckets, httpmetrics.Bounds{Series: c.seriesLimit})
		if err != nil {
			return nil, err
		}
		for _, label := range h.methods.labels {
			h.active = append(h.active, h.metrics.Active(label))
		}
	}
	h.routes = newRoutes(h.methods, h.metrics)
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if outer, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		outer.setPattern(r)
		h.next.ServeHTTP(w, r)
		outer.setPattern(r)
		return
	}

	x := &exchange{Context: ctx, h: h, outer: r, started: clock()}
	trust := propagation.TrustNothing
	if !h.public {
		trust = h.cfg.Trust(propagation.Peer{
			Context: ctx, RemoteAddr: r.RemoteAddr, TLS: r.TLS, Header: r.Header, Method: r.Method,
		})
	}
	x.state = propagation.ExtractWith(r.Header, h.cfg, trust)
	if id := x.state.RequestID; id != "" {
		// One slice for the request, for handlers that read the header, and
		// for the answer. Its capacity is one, so appending to either copies.
		v := r.Header[propagation.HeaderRequestID]
		if len(v) != 1 || v[0] != id {
			v = []string{id}
			if r.Header != nil {
				r.Header[propagation.HeaderRequestID] = v
			}
		}
		w.Header()[propagation.HeaderRequestID] = v[:1:1]
		x.rec.SingleRequestID()
	}

	method := h.methods.of(r.Method)
	x.method = int32(method)
	pattern := r.Pattern
	if h.mux != nil {
		_, pattern = h.mux.Handler(r)
	}
	x.op = h.routes.find(patternOf(r, pattern), method)

	var inner context.Context = x
	if h.tracer != nil && (h.filter == nil || h.filter(r)) && !denied(x.state) {
		inner = x.startSpan(trust)
	}
	// Copied once more so that the request is part of x; the compiler keeps
	// the first copy on the stack.
	x.inner = *r.WithContext(inner)
	w = x.rec.Wrap(ctx, w)
	if h.active != nil {
		h.active[method].Inc()
	}
	defer x.end()
	h.next.ServeHTTP(w, &x.inner)
	x.returned = true
}

// denied reports whether the caller decided that there is to be no trace and
// named none: a context without ids, in which no span belongs.
func denied(s propagation.State) bool {
	return s.Sampling == propagation.Deny && !s.HasIDs()
}
