package exporter

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// HandlerConfig configures a Handler.
type HandlerConfig struct {
	// Registry is gathered at each scrape, and takes the handler's own metrics
	// promhttp_metric_handler_*; required.
	Registry Registry
	// Rendered are written after the registry's families. Where both have a
	// family, the registry's is left out.
	Rendered []Rendered
	// MaxInFlight is the number of scrapes served at once, 4; more get 503.
	MaxInFlight int
	// Timeout bounds the gathering of the registry, 10 s; after it the scrape
	// gets 503. A shorter X-Prometheus-Scrape-Timeout-Seconds wins.
	Timeout time.Duration
	// Logger says what could not be collected. Nothing is logged if nil.
	Logger *slog.Logger
}

// Handler serves metrics in the Prometheus text format, OpenMetrics (with
// exemplars) or protobuf (with native histograms), as the client asks,
// compressed with gzip where the client accepts it. A collector that fails
// takes none of the others with it: the rest is served, and
// promhttp_metric_handler_errors_total counts. The parameter name[] selects
// families, as in promhttp.
type Handler struct {
	c        HandlerConfig
	http     http.Handler
	slots    chan struct{}
	rendered map[string]bool
	errors   map[string]prometheus.Counter
	scratch  sync.Pool // *bytes.Buffer
	writers  sync.Pool // *bufio.Writer
	gzips    sync.Pool // *gzip.Writer
}

// Causes of errors, the label values that promhttp has and one of our own.
const (
	causeGathering = "gathering"
	causeEncoding  = "encoding"
	causeTimeout   = "timeout"
)

// NewHandler checks the configuration and registers the handler's own metrics.
func NewHandler(c HandlerConfig) (*Handler, error) {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 4)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Registry == nil:
		return nil, errors.New("metrics handler: no registry")
	case c.MaxInFlight < 0 || c.Timeout < 0:
		return nil, fmt.Errorf("metrics handler: %d scrapes in flight and timeout %v must be positive", c.MaxInFlight, c.Timeout)
	}
	h := &Handler{c: c, slots: make(chan struct{}, c.MaxInFlight), rendered: map[string]bool{}, errors: map[string]prometheus.Counter{}}
	for _, r := range c.Rendered {
		for _, name := range r.FamilyNames() {
			if h.rendered[name] {
				return nil, fmt.Errorf("metrics handler: two sources write the family %s", name)
			}
			h.rendered[name] = true
		}
	}
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "promhttp_metric_handler_errors_total",
		Help: "Failures to collect or encode metrics, after which the rest was served, and gatherings that took too long.",
	}, []string{"cause"})
	for _, cause := range []string{causeGathering, causeEncoding, causeTimeout} {
		h.errors[cause] = failures.WithLabelValues(cause)
	}
	if err := register(c.Registry, "the metrics handler's metrics", []prometheus.Collector{failures}); err != nil {
		return nil, err
	}
	h.scratch.New = func() any { return &bytes.Buffer{} }
	h.writers.New = func() any { return bufio.NewWriterSize(nil, 64<<10) }
	h.gzips.New = func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		return w
	}
	h.http = promhttp.InstrumentMetricHandler(c.Registry, http.HandlerFunc(h.serve))
	return h, nil
}

// ServeHTTP serves one scrape.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.http.ServeHTTP(w, r) }

// Shutdown waits until no scrape is under way, nor a gathering that went on after its
// scrape timed out. Scrapes that come meanwhile may get 503.
func (h *Handler) Shutdown(ctx context.Context) error {
	held := 0
	defer func() {
		for range held {
			<-h.slots
		}
	}()
	for ; held < cap(h.slots); held++ {
		select {
		case h.slots <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a collector that does not return: %w", ctx.Err())
		}
	}
	return nil
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Only GET and HEAD.", http.StatusMethodNotAllowed)
		return
	}
	select {
	case h.slots <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("%d scrapes are being served, which is the limit.", h.c.MaxInFlight), http.StatusServiceUnavailable)
		return
	}
	families, err := h.gather(r)
	if errors.Is(err, errGatherTimeout) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer func() { <-h.slots }()
	if err != nil {
		h.failed(r.Context(), causeGathering, err)
	}
	h.write(w, r, families)
}

var errGatherTimeout = errors.New("a collector did not return in time")

// gather gathers the registry in the time that the scrape has. A gathering that
// takes longer keeps its slot until it ends, so that they cannot pile up and
// Shutdown waits for it.
func (h *Handler) gather(r *http.Request) ([]*dto.MetricFamily, error) {
	type result struct {
		families []*dto.MetricFamily
		err      error
	}
	gathered := make(chan result, 1)
	// Decides between the end of the gathering and the end of the wait for it.
	var settled atomic.Bool
	go func() {
		var res result
		defer func() {
			if p := recover(); p != nil {
				res.err = fmt.Errorf("panic while gathering: %v", p)
			}
			if !settled.CompareAndSwap(false, true) {
				<-h.slots
				return
			}
			gathered <- res
		}()
		res.families, res.err = h.c.Registry.Gather()
	}()
	timer := time.NewTimer(h.timeout(r))
	defer timer.Stop()
	late := false
	select {
	case res := <-gathered:
		return res.families, res.err
	case <-timer.C:
		late = true
	case <-r.Context().Done():
	}
	if !settled.CompareAndSwap(false, true) {
		res := <-gathered
		return res.families, res.err
	}
	if late {
		h.failed(r.Context(), causeTimeout, errGatherTimeout)
	}
	return nil, errGatherTimeout
}

// timeout is the configured one or that of the scraper less a tenth, which is
// left for sending.
func (h *Handler) timeout(r *http.Request) time.Duration {
	s, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if within := s > 0 && s <= h.c.Timeout.Seconds(); err != nil || !within {
		return h.c.Timeout
	}
	return time.Duration(s * .9 * float64(time.Second))
}

func (h *Handler) failed(ctx context.Context, cause string, err error) {
	h.errors[cause].Inc()
	h.c.Logger.ErrorContext(ctx, "Metrics are incomplete", "cause", cause, "err", err)
}

// write sends the families. Errors of the client's connection end it silently.
func (h *Handler) write(rw http.ResponseWriter, r *http.Request, families []*dto.MetricFamily) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtProtoDelim, expfmt.FmtText)
	header := rw.Header()
	header.Set("Content-Type", string(format))
	header.Add("Vary", "Accept")
	header.Add("Vary", "Accept-Encoding")

	out := h.writers.Get().(*bufio.Writer)
	defer func() { out.Reset(nil); h.writers.Put(out) }()
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		z := h.gzips.Get().(*gzip.Writer)
		z.Reset(rw)
		defer func() { z.Reset(io.Discard); h.gzips.Put(z) }()
		out.Reset(z)
		if h.writeFamilies(r, out, format, families) == nil && out.Flush() == nil {
			// The client has gone if this fails.
			_ = z.Close()
		}
		return
	}
	out.Reset(rw)
	if h.writeFamilies(r, out, format, families) == nil {
		_ = out.Flush()
	}
}

// writeFamilies returns errors of out only.
func (h *Handler) writeFamilies(r *http.Request, out *bufio.Writer, format expfmt.Format, families []*dto.MetricFamily) error {
	keep := selected(r)
	buf := h.scratch.Get().(*bytes.Buffer)
	defer h.scratch.Put(buf)
	for _, mf := range families {
		name := mf.GetName()
		if keep != nil && !keep(name) {
			continue
		}
		if h.rendered[name] {
			h.failed(r.Context(), causeGathering, fmt.Errorf("the registry and a rendered source both have the family %s", name))
			continue
		}
		// A family that cannot be encoded is left out whole: half of it would
		// spoil the rest.
		buf.Reset()
		if err := expfmt.NewEncoder(buf, format).Encode(mf); err != nil {
			h.failed(r.Context(), causeEncoding, fmt.Errorf("encoding %s: %w", name, err))
			continue
		}
		if _, err := out.Write(buf.Bytes()); err != nil {
			return err
		}
	}
	encoding := EncodingText
	switch format.FormatType() {
	case expfmt.TypeOpenMetrics:
		encoding = EncodingOpenMetrics
	case expfmt.TypeProtoDelim:
		encoding = EncodingProtobuf
	}
	for _, source := range h.c.Rendered {
		if err := source.WriteFamilies(out, encoding, keep); err != nil {
			return err
		}
	}
	if encoding == EncodingOpenMetrics {
		_, err := expfmt.FinalizeOpenMetrics(out)
		return err
	}
	return nil
}

// selected is the filter that the request asks for, or nil for everything.
func selected(r *http.Request) func(string) bool {
	if r.URL.RawQuery == "" {
		return nil
	}
	names := r.URL.Query()["name[]"]
	if len(names) == 0 {
		return nil
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

// acceptsGzip reads an Accept-Encoding header (RFC 9110, section 12.5.3).
func acceptsGzip(accept string) bool {
	any := false
	for part := range strings.SplitSeq(accept, ",") {
		coding, params, _ := strings.Cut(part, ";")
		ok := true
		if q, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); found {
			weight, err := strconv.ParseFloat(q, 64)
			ok = err == nil && weight > 0
		}
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			return ok
		case "*":
			any = ok
		}
	}
	return any
}
