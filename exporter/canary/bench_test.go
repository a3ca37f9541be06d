package canary

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/exporter"
)

// discard is a client that only counts.
type discard struct {
	header http.Header
	bytes  int64
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.bytes += int64(len(p)); return len(p), nil }

func benchmarkScrape(b *testing.B, h http.Handler, acceptEncoding string) {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "text/plain")
	r.Header.Set("Accept-Encoding", acceptEncoding)
	d := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(d.header)
		h.ServeHTTP(d, r)
	}
	b.SetBytes(d.bytes / int64(b.N))
	b.ReportMetric(float64(d.bytes)/float64(b.N)/1e6, "MB/scrape")
}

func filledState(b *testing.B, n int) *State {
	s := newTestState(b)
	for i := range n {
		if err := s.Put(fullCanary(i)); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkScrape compares the ways to publish 10,000 Canaries of 11 series.
// Run it with GOMAXPROCS=1.
func BenchmarkScrape(b *testing.B) {
	const n = 10_000
	newHandler := func(b *testing.B, reg *prometheus.Registry, rendered ...exporter.Rendered) http.Handler {
		h, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg, Rendered: rendered})
		if err != nil {
			b.Fatal(err)
		}
		return h
	}
	b.Run("rendered", func(b *testing.B) {
		benchmarkScrape(b, newHandler(b, prometheus.NewRegistry(), filledState(b, n)), "identity")
	})
	b.Run("rendered-gzip", func(b *testing.B) {
		benchmarkScrape(b, newHandler(b, prometheus.NewRegistry(), filledState(b, n)), "gzip")
	})
	b.Run("rendered-with-everything-else", func(b *testing.B) {
		reg := exporter.NewRegistry()
		if _, err := NewInstruments(reg); err != nil {
			b.Fatal(err)
		}
		if _, err := exporter.NewWorkqueues(reg, "canary"); err != nil {
			b.Fatal(err)
		}
		benchmarkScrape(b, newHandler(b, reg, filledState(b, n)), "identity")
	})
	b.Run("gaugevec", func(b *testing.B) {
		reg := prometheus.NewRegistry()
		var vecs []*prometheus.GaugeVec
		for _, f := range families() {
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
			reg.MustRegister(v)
			vecs = append(vecs, v)
		}
		for i := range n {
			eachSample(fullCanary(i), func(f int, v float64, labels ...string) { vecs[f].WithLabelValues(labels...).Set(v) })
		}
		benchmarkScrape(b, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), "identity")
	})
	b.Run("const-collector", func(b *testing.B) {
		reg := prometheus.NewRegistry()
		c := &constCollector{}
		for _, f := range families() {
			c.descs = append(c.descs, prometheus.NewDesc(f.Name, f.Help, f.Labels, nil))
		}
		for i := range n {
			c.canaries = append(c.canaries, fullCanary(i))
		}
		reg.MustRegister(c)
		benchmarkScrape(b, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), "identity")
	})
}

// BenchmarkPut shows that a change costs the same however many Canaries there are.
func BenchmarkPut(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n, "-canaries"), func(b *testing.B) {
			s := filledState(b, n)
			c := fullCanary(n / 2)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Put(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDeleteAndPut does the same for the end and the beginning of a Canary.
func BenchmarkDeleteAndPut(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n, "-canaries"), func(b *testing.B) {
			s := filledState(b, n)
			c := fullCanary(n / 2)
			b.ReportAllocs()
			for b.Loop() {
				s.Delete(c)
				if err := s.Put(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type constCollector struct {
	descs    []*prometheus.Desc
	canaries []*v1alpha1.Canary
}

func (c *constCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *constCollector) Collect(ch chan<- prometheus.Metric) {
	for _, canary := range c.canaries {
		eachSample(canary, func(f int, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(c.descs[f], prometheus.GaugeValue, v, labels...)
		})
	}
}

// eachSample are the samples of a fullCanary, for the forms that cannot use render.
func eachSample(c *v1alpha1.Canary, emit func(family int, value float64, labels ...string)) {
	ns, name, s := c.Namespace, c.Name, &c.Status
	emit(familyInfo, 1, ns, name, string(c.Spec.Info.Type), string(c.Spec.Info.PauseType))
	emit(familyPhase, 1, ns, name, string(s.Phase))
	emit(familyBatchCurrent, float64(s.CurrentBatch), ns, name)
	emit(familyBatches, float64(batches(s.Batch)), ns, name)
	emit(familyBatchTransition, float64(lastTransition(s).Unix()), ns, name)
	for role, w := range map[Role]*v1alpha1.WorkloadStatus{RoleCanary: s.New, RoleStable: s.Old} {
		emit(familyTargetInfo, 1, ns, name, string(role), w.Name)
		emit(familyReplicas, float64(w.Replicas), ns, name, string(role), "desired")
		emit(familyReplicas, float64(w.AvailableReplicas), ns, name, string(role), "available")
	}
}
