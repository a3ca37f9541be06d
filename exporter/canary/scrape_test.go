package canary

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/exporter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// While Canaries change a thousand times a second, every scrape shows each
// Canary as of one moment: batch, batches, phase and replicas belong together.
func TestScrapesAreConsistentWhileCanariesChange(t *testing.T) {
	const canaries, scrapers, scrapesEach = 20, 3, 40
	phases := v1alpha1.Phases()
	reg := prometheus.NewRegistry()
	s := newTestState(t)
	h, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg, Rendered: []exporter.Rendered{s}})
	if err != nil {
		t.Fatal(err)
	}
	step := func(i, n int) {
		c := fullCanary(i)
		c.Status.CurrentBatch = int32(n)
		c.Status.Phase = phases[n%len(phases)]
		c.Status.New.Replicas = int32(n)
		if err := s.Put(c); err != nil {
			t.Error(err)
		}
	}
	for i := range canaries {
		step(i, 0)
	}
	stop := make(chan struct{})
	var updates sync.WaitGroup
	updates.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				step(n%canaries, n)
			}
		}
	})
	var scrapes sync.WaitGroup
	for range scrapers {
		scrapes.Go(func() {
			for range scrapesEach {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				checkConsistent(t, w.Body, canaries)
			}
		})
	}
	scrapes.Wait()
	close(stop)
	updates.Wait()
}

// A Canary that changes between two families of a scrape is still shown as of
// one moment.
func TestScrapeShowsACanaryAsOfOneMoment(t *testing.T) {
	phases := v1alpha1.Phases()
	s := newTestState(t)
	n := 0
	change := func(string) bool {
		c := fullCanary(1)
		c.Status.CurrentBatch, c.Status.New.Replicas, c.Status.Phase = int32(n), int32(n), phases[n%len(phases)]
		if err := s.Put(c); err != nil {
			t.Error(err)
		}
		n++
		return true
	}
	change("")
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	if err := s.WriteFamilies(w, exporter.EncodingText, change); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if n != 1+len(families()) {
		t.Fatalf("%d changes, want one before each family", n)
	}
	checkConsistent(t, &buf, 1)
}

func checkConsistent(t *testing.T, body io.Reader, canaries int) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		t.Error(err)
		return
	}
	batch, replicas, phase := map[string]int{}, map[string]int{}, map[string]string{}
	for name, mf := range families {
		for _, m := range mf.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case name == "canary_batch_current":
				batch[labels["canary"]] = int(m.GetGauge().GetValue())
			case name == "canary_replicas" && labels["role"] == "canary" && labels["state"] == "desired":
				replicas[labels["canary"]] = int(m.GetGauge().GetValue())
			case name == "canary_phase":
				phase[labels["canary"]] = labels["phase"]
			}
		}
	}
	if len(batch) != canaries || len(phase) != canaries || len(replicas) != canaries {
		t.Errorf("%d, %d and %d Canaries, want %d", len(batch), len(phase), len(replicas), canaries)
	}
	phases := v1alpha1.Phases()
	for c, n := range batch {
		if replicas[c] != n || phase[c] != string(phases[n%len(phases)]) {
			t.Errorf("%s: batch %d, %d replicas, phase %s", c, n, replicas[c], phase[c])
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	// Twice, for what pools hold on to.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMemoryReturnsToBaseline(t *testing.T) {
	s := newTestState(t)
	fill := func() {
		for i := range 10_000 {
			if err := s.Put(fullCanary(i)); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Count(write(t, s, exporter.EncodingText), "canary_phase{"); got != 10_000 {
			t.Fatalf("%d Canaries", got)
		}
	}
	empty := func() {
		for i := range 10_000 {
			s.Delete(fullCanary(i))
		}
		if s.Len() != 0 {
			t.Fatalf("%d Canaries left", s.Len())
		}
	}
	before := heap()
	fill()
	full := heap()
	empty()
	after := heap()
	runtime.KeepAlive(s)
	t.Logf("%d KiB before, %d KiB with 10,000 Canaries, %d KiB after", before>>10, full>>10, after>>10)
	if full < before+5<<20 {
		t.Errorf("10,000 Canaries take %d KiB, which cannot be", (full-before)>>10)
	}
	if after > before+256<<10 {
		t.Errorf("%d KiB are left after the last Canary", (after-before)>>10)
	}
}
