package httpmetrics

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

var bounds = Bounds{Series: 50}

func server(t *testing.T, reg prometheus.Registerer, b Bounds) *Server {
	t.Helper()
	s, err := NewServer(reg, DefaultBuckets, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// series gathers one family as label values joined by "|" in the order
// method, route or address, status.
func series(t *testing.T, g prometheus.Gatherer, name string) map[string]*dto.Metric {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.Metric{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			l := map[string]string{}
			for _, p := range m.GetLabel() {
				l[p.GetName()] = p.GetValue()
			}
			out[l["http_request_method"]+"|"+l["http_route"]+l["server_address"]+"|"+l["http_response_status_code"]] = m
		}
	}
	return out
}

func TestObserve(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := server(t, reg, bounds)
	now := time.Hour
	get := s.Series("GET", "/a")
	get.Observe(200, 30*time.Millisecond, now, nil)
	get.Observe(200, 60*time.Millisecond, now, nil)
	get.Observe(503, 2*time.Second, now, nil)
	get.Observe(0, time.Second, now, nil)
	s.Series("POST", "").Observe(600, time.Second, now, nil)
	s.Active("GET").Inc()

	got := series(t, reg, "http_server_request_duration_seconds")
	for key, want := range map[string]uint64{"GET|/a|200": 2, "GET|/a|503": 1, "GET|/a|": 1, "POST||_OTHER": 1} {
		if n := got[key].GetHistogram().GetSampleCount(); n != want {
			t.Errorf("%s counted %d, want %d", key, n, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d series, want 4", len(got))
	}
	ok := got["GET|/a|200"].GetHistogram()
	if sum := ok.GetSampleSum(); sum < 0.0899 || sum > 0.0901 {
		t.Errorf("sum %v seconds, want 0.09", sum)
	}
	if len(ok.GetBucket()) != len(DefaultBuckets) || ok.GetBucket()[3].GetCumulativeCount() != 1 {
		t.Errorf("classic buckets %v", ok.GetBucket())
	}
	if ok.Schema == nil || len(ok.GetPositiveSpan()) == 0 {
		t.Error("no native buckets")
	}
	if n := testutil.CollectAndCount(s, "http_server_active_requests"); n != 1 {
		t.Errorf("%d series of active requests", n)
	}
}

func TestExemplars(t *testing.T) {
	reg := prometheus.NewRegistry()
	get := server(t, reg, bounds).Series("GET", "/a")
	now := time.Hour
	id := func(s string) func() string { return func() string { return s } }
	for _, o := range []struct {
		took  time.Duration
		after time.Duration
		id    func() string
	}{
		{20 * time.Millisecond, 0, nil},
		{20 * time.Millisecond, 0, id("first")},
		{20 * time.Millisecond, 50 * time.Millisecond, id("too soon")},
		{5 * time.Millisecond, 50 * time.Millisecond, id("other bucket, upper bound included")},
		{3 * time.Minute, 50 * time.Millisecond, id("beyond the last bound")},
		{700 * time.Millisecond, 0, id("early")},
		{700 * time.Millisecond, 100 * time.Millisecond, id("late enough")},
	} {
		get.Observe(200, o.took, now+o.after, o.id)
	}
	got := map[float64]string{}
	h := series(t, reg, "http_server_request_duration_seconds")["GET|/a|200"].GetHistogram()
	for _, b := range h.GetBucket() {
		if e := b.GetExemplar(); e != nil {
			if e.GetLabel()[0].GetName() != "trace_id" {
				t.Errorf("label %q", e.GetLabel()[0].GetName())
			}
			got[b.GetUpperBound()] = e.GetLabel()[0].GetValue()
		}
	}
	want := map[float64]string{0.005: "other bucket, upper bound included", 0.025: "first", 0.75: "late enough"}
	for bound, id := range want {
		if got[bound] != id {
			t.Errorf("bucket %v: exemplar %q, want %q", bound, got[bound], id)
		}
	}
	if h.GetSampleCount() != 7 {
		t.Errorf("count %d, want 7", h.GetSampleCount())
	}
}

func TestSeriesStayBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := server(t, reg, Bounds{Series: 20})
	now := time.Hour
	for i := range 1000 {
		s.Series("GET", fmt.Sprintf("/r%d", i)).Observe(100+i%600, time.Millisecond, now, nil)
	}
	got := series(t, reg, "http_server_request_duration_seconds")
	// 20 in full, then the classes 1xx to 5xx and one for what is no status.
	if len(got) != 26 {
		t.Errorf("%d series, want 26", len(got))
	}
	var total uint64
	for _, m := range got {
		total += m.GetHistogram().GetSampleCount()
	}
	if total != 1000 {
		t.Errorf("%d requests counted, want all 1000", total)
	}
	if n := got["GET|_OTHER|5xx"].GetHistogram().GetSampleCount(); n != 100 {
		t.Errorf("%d counted as 5xx of no route, want 100", n)
	}
}

func TestServerAddressesStayBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	c, err := NewClient(reg, DefaultBuckets, Bounds{Series: 1000, Values: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		c.Series("GET", fmt.Sprintf("host%d", i)).Observe(200, time.Millisecond, time.Hour, nil)
	}
	got := series(t, reg, "http_client_request_duration_seconds")
	if len(got) != 4 || got["GET|host2|200"] == nil || got["GET|_OTHER|200"].GetHistogram().GetSampleCount() != 7 {
		t.Errorf("series %v", got)
	}
}

func TestRegisteringTwiceShares(t *testing.T) {
	reg := prometheus.NewRegistry()
	wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"app": "x"}, prometheus.NewRegistry())
	for _, r := range []prometheus.Registerer{reg, wrapped} {
		if a, b := server(t, r, bounds), server(t, r, bounds); a != b {
			t.Errorf("two collectors on one %T", r)
		}
	}
	_, err := NewServer(reg, []float64{1}, bounds)
	if err == nil || !strings.Contains(err.Error(), "buckets") {
		t.Errorf("other buckets: %v", err)
	}
	_, err = NewServer(reg, DefaultBuckets, Bounds{Series: 1})
	if err == nil || !strings.Contains(err.Error(), "limits") {
		t.Errorf("other limits: %v", err)
	}
}

func TestForeignMetricsOfTheSameNameAreRefused(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "http_client_request_duration_seconds", Help: "x"}))
	if _, err := NewClient(reg, DefaultBuckets, bounds); err == nil {
		t.Error("no error")
	}
}

func TestLint(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := server(t, reg, bounds)
	s.Active("GET").Inc()
	s.Series("GET", "/").Observe(200, time.Second, time.Hour, nil)
	c, err := NewClient(reg, DefaultBuckets, bounds)
	if err != nil {
		t.Fatal(err)
	}
	c.Series("GET", "h").Observe(200, time.Second, time.Hour, nil)
	if _, err := NewDropped(reg, []string{"invalid"}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) != 4 {
		t.Errorf("%d families, problems %v, %v", len(families), problems, err)
	}
}

func TestDroppedStartsAtZero(t *testing.T) {
	reg := prometheus.NewRegistry()
	d, err := NewDropped(reg, []string{"invalid", "too_large"})
	if err != nil {
		t.Fatal(err)
	}
	d.Inc("invalid")
	d.Inc("invalid")
	want := `# HELP http_forwarded_headers_dropped_total Headers not forwarded because of their value, by what is wrong with it.
# TYPE http_forwarded_headers_dropped_total counter
http_forwarded_headers_dropped_total{reason="invalid"} 2
http_forwarded_headers_dropped_total{reason="too_large"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "http_forwarded_headers_dropped_total"); err != nil {
		t.Error(err)
	}
}

func TestConcurrentObservations(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := server(t, reg, Bounds{Series: 30})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				s.Series("GET", fmt.Sprint(i%40)).Observe(200+w%3, time.Millisecond, time.Hour, func() string { return "a" })
			}
		})
	}
	wg.Wait()
	var total uint64
	for _, m := range series(t, reg, "http_server_request_duration_seconds") {
		total += m.GetHistogram().GetSampleCount()
	}
	if total != 4000 {
		t.Errorf("%d counted, want 4000", total)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	get := server(t, prometheus.NewRegistry(), bounds).Series("GET", "/a")
	now := time.Hour
	id := func() string { return "a" }
	get.Observe(200, time.Millisecond, now, id)
	if n := testing.AllocsPerRun(100, func() { get.Observe(200, time.Millisecond, now, id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
