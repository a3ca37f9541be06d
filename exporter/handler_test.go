package exporter

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protodelim"
)

const acceptOpenMetrics = "application/openmetrics-text; version=1.0.0"

func newTestHandler(t testing.TB, c HandlerConfig) *Handler {
	t.Helper()
	h, err := NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// scraped has a counter with an exemplar, a native histogram and a pod.
func scraped(t testing.TB) *Handler {
	t.Helper()
	o, reg := newPods(t, nil)
	if err := o.Put(pod("a", 3)); err != nil {
		t.Fatal(err)
	}
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "test_events_total", Help: "Events."})
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "test_duration_seconds", Help: "Durations.", Buckets: []float64{1, 10}, NativeHistogramBucketFactor: 1.1,
	})
	reg.MustRegister(c, h)
	c.(prometheus.ExemplarAdder).AddWithExemplar(1, prometheus.Labels{"trace_id": "abc"})
	h.Observe(2)
	return newTestHandler(t, HandlerConfig{Registry: reg, Rendered: []Rendered{o}})
}

func TestHandlerText(t *testing.T) {
	w := get(scraped(t), "/metrics")
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4; charset=utf-8") {
		t.Error(got)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := families["test_pod_restarts_total"].GetMetric()[0].GetCounter().GetValue(); got != 3 {
		t.Errorf("restarts %v", got)
	}
	if got := families["test_events_total"].GetMetric()[0].GetCounter().GetValue(); got != 1 {
		t.Errorf("events %v", got)
	}
}

func TestHandlerOpenMetrics(t *testing.T) {
	w := get(scraped(t), "/metrics", "Accept", acceptOpenMetrics+";q=0.9,text/plain;q=0.1")
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/openmetrics-text; version=1.0.0; charset=utf-8") {
		t.Error(got)
	}
	body := w.Body.String()
	for _, want := range []string{
		`test_events_total 1.0 # {trace_id="abc"} 1.0`,
		"# TYPE test_pod_restarts counter\ntest_pod_restarts_total{namespace=\"n\",pod=\"a\"} 3\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("missing %s in\n%s", want, body)
		}
	}
	if !strings.HasSuffix(body, "\n# EOF\n") || strings.Count(body, "# EOF") != 1 {
		t.Errorf("not ended once and at the end:\n%s", body)
	}
}

func TestHandlerProtobufCarriesNativeHistograms(t *testing.T) {
	w := get(scraped(t), "/metrics", "Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	families := map[string]*dto.MetricFamily{}
	reader := bufio.NewReader(w.Body)
	for {
		mf := &dto.MetricFamily{}
		if err := protodelim.UnmarshalFrom(reader, mf); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		families[mf.GetName()] = mf
	}
	h := families["test_duration_seconds"].GetMetric()[0].GetHistogram()
	if len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) != 2 {
		t.Errorf("not native and classic: %v", h)
	}
	if got := families["test_pod_restarts_total"].GetMetric()[0].GetCounter().GetValue(); got != 3 {
		t.Errorf("restarts %v", got)
	}
}

func TestHandlerGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "identity": false, "gzip": true, "gzip;q=0": false, "br, gzip;q=0.5": true, "*": true, "*;q=0": false, "GZIP": true, "gzip; q=0.0": false, "gzip;q=x": false, "*, gzip;q=0": false,
	} {
		h := scraped(t)
		// The second scrape reuses what the first one used.
		get(h, "/metrics", "Accept-Encoding", accept, "Accept", acceptOpenMetrics)
		w := get(h, "/metrics", "Accept-Encoding", accept, "Accept", acceptOpenMetrics)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: compressed %v, want %v", accept, got, want)
			continue
		}
		body := io.Reader(w.Body)
		if want {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil || !bytes.HasSuffix(b, []byte("# EOF\n")) || !bytes.Contains(b, []byte("test_pod_info{")) {
			t.Errorf("Accept-Encoding %q: %v\n%s", accept, err, b)
		}
	}
}

func TestHandlerFilter(t *testing.T) {
	w := get(scraped(t), "/metrics?name[]=test_pod_info&name[]=test_events_total")
	for _, want := range []string{"test_pod_info{", "test_events_total 1"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("missing %s", want)
		}
	}
	if got := strings.Count(w.Body.String(), "# TYPE"); got != 2 {
		t.Errorf("%d families, want 2", got)
	}
}

func TestHandlerMethods(t *testing.T) {
	w := httptest.NewRecorder()
	scraped(t).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Error(w.Code, w.Header())
	}
}

// brokenCollector fails in one of its ways.
type brokenCollector struct {
	desc  *prometheus.Desc
	panic bool
}

func (b brokenCollector) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }
func (b brokenCollector) Collect(ch chan<- prometheus.Metric) {
	if b.panic {
		panic("collector")
	}
	ch <- prometheus.NewInvalidMetric(b.desc, errors.New("no such file"))
}

func TestHandlerServesTheRestWhenACollectorFails(t *testing.T) {
	for name, collector := range map[string]prometheus.Collector{
		"error": brokenCollector{desc: prometheus.NewDesc("test_broken", "h", nil, nil)},
		"panic": brokenCollector{desc: prometheus.NewDesc("test_broken", "h", nil, nil), panic: true},
		// The registry has a family that the pods also have.
		"conflict": prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_pod_info", Help: "h"}),
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o, reg := newPods(t, nil)
			if err := o.Put(pod("a", 3)); err != nil {
				t.Fatal(err)
			}
			reg.MustRegister(collector, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "test_good", Help: "h"}, func() float64 { return 5 }))
			h := newTestHandler(t, HandlerConfig{Registry: reg, Rendered: []Rendered{o}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			w := get(h, "/metrics")
			if w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
			body := w.Body.String()
			if !strings.Contains(body, "\ntest_good 5\n") || strings.Count(body, "# TYPE test_pod_info ") != 1 || !strings.Contains(body, `test_pod_info{namespace="n",pod="a",node=""} 1`) {
				t.Errorf("the rest is not served:\n%s", body)
			}
			if got := testutil.ToFloat64(h.errors[causeGathering]); got != 1 {
				t.Errorf("%v errors counted", got)
			}
			if !strings.Contains(log.String(), `level=ERROR msg="Metrics are incomplete" cause=gathering`) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// slowCollector returns when it is let.
type slowCollector struct{ entered, release chan struct{} }

func (s slowCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- prometheus.NewDesc("test_slow", "h", nil, nil)
}

func (s slowCollector) Collect(ch chan<- prometheus.Metric) {
	s.entered <- struct{}{}
	<-s.release
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("test_slow", "h", nil, nil), prometheus.GaugeValue, 1)
}

func TestHandlerLimitsScrapesInFlight(t *testing.T) {
	slow := slowCollector{make(chan struct{}, 9), make(chan struct{})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(slow)
	h := newTestHandler(t, HandlerConfig{Registry: reg, MaxInFlight: 2, Timeout: time.Minute})
	codes := make(chan int, 2)
	for range 2 {
		go func() { codes <- get(h, "/metrics").Code }()
	}
	<-slow.entered
	<-slow.entered
	if w := get(h, "/metrics"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("third scrape: %d %v", w.Code, w.Header())
	}
	close(slow.release)
	for range 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
	if w := get(h, "/metrics"); w.Code != http.StatusOK {
		t.Errorf("afterwards: %d", w.Code)
	}
}

func TestHandlerTimeout(t *testing.T) {
	slow := slowCollector{make(chan struct{}, 9), make(chan struct{})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(slow)
	h := newTestHandler(t, HandlerConfig{Registry: reg, MaxInFlight: 1})
	// The scraper's own timeout is shorter than ours.
	if w := get(h, "/metrics", "X-Prometheus-Scrape-Timeout-Seconds", "0.05"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	if got := testutil.ToFloat64(h.errors[causeTimeout]); got != 1 {
		t.Errorf("%v timeouts counted", got)
	}
	// The gathering goes on and keeps its slot.
	if w := get(h, "/metrics"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a second gathering began: %d", w.Code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown with a hanging collector: %v", err)
	}
	close(slow.release)
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if w := get(h, "/metrics"); w.Code != http.StatusOK {
		t.Errorf("status %d although the slot is free again", w.Code)
	}
}

func TestHandlerTimeoutOfARequest(t *testing.T) {
	h := newTestHandler(t, HandlerConfig{Registry: prometheus.NewRegistry()})
	for header, want := range map[string]time.Duration{
		"": 10 * time.Second, "10": 9 * time.Second, "5": 4500 * time.Millisecond, "60": 10 * time.Second, "-1": 10 * time.Second, "NaN": 10 * time.Second, "x": 10 * time.Second,
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", header)
		if got := h.timeout(r); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestHandlerConfig(t *testing.T) {
	o, reg := newPods(t, nil)
	for want, c := range map[string]HandlerConfig{
		"metrics handler: no registry":                                           {},
		"metrics handler: -1 scrapes in flight and timeout 10s must be positive": {Registry: reg, MaxInFlight: -1},
		"metrics handler: two sources write the family test_pod_info":            {Registry: reg, Rendered: []Rendered{o, o}},
	} {
		if _, err := NewHandler(c); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
