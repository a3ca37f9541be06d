package exporter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"pgregory.net/rapid"
)

// pods publishes pods, as a stranger's controller would its own kind.
func podsConfig(reg prometheus.Registerer) ObjectsConfig[*corev1.Pod] {
	return ObjectsConfig[*corev1.Pod]{
		Name: "pods",
		Families: []Family{
			{Name: "test_pod_info", Help: "A \"pod\",\nwith \\.", Type: prometheus.GaugeValue, Labels: []string{"namespace", "pod", "node"}},
			{Name: "test_pod_restarts_total", Help: "Restarts.", Type: prometheus.CounterValue, Labels: []string{"namespace", "pod"}},
		},
		Render: func(p *corev1.Pod, e *Emitter) {
			e.Emit(0, 1, p.Namespace, p.Name, p.Spec.NodeName)
			if p.Status.Message == "panic" {
				panic("as asked")
			}
			if p.Status.Message == "bad" {
				e.Emit(0, 1, "too few")
			}
			for range len(p.Status.ContainerStatuses) {
				e.Emit(1, float64(p.Status.ContainerStatuses[0].RestartCount), p.Namespace, p.Name)
			}
		},
		Registerer: reg,
	}
}

func newPods(t testing.TB, change func(*ObjectsConfig[*corev1.Pod])) (*Objects[*corev1.Pod], *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	c := podsConfig(reg)
	if change != nil {
		change(&c)
	}
	o, err := NewObjects(c)
	if err != nil {
		t.Fatal(err)
	}
	return o, reg
}

func pod(name string, restarts ...int32) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}}
	for _, r := range restarts {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{RestartCount: r})
	}
	return p
}

func text(t testing.TB, r Rendered, encoding Encoding) string {
	t.Helper()
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	if err := r.WriteFamilies(w, encoding, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestObjectsText(t *testing.T) {
	o, _ := newPods(t, nil)
	a, b := pod("a", 3), pod("b")
	a.Spec.NodeName = "quote\" back\\slash\nline \xff"
	for _, p := range []*corev1.Pod{a, b} {
		if err := o.Put(p); err != nil {
			t.Fatal(err)
		}
	}
	body := `test_pod_info{namespace="n",pod="a",node="quote\" back\\slash\nline ` + "\uFFFD" + `"} 1
test_pod_info{namespace="n",pod="b",node=""} 1
`
	want := `# HELP test_pod_info A "pod",\nwith \\.
# TYPE test_pod_info gauge
` + body + `# HELP test_pod_restarts_total Restarts.
# TYPE test_pod_restarts_total counter
test_pod_restarts_total{namespace="n",pod="a"} 3
`
	if diff := cmp.Diff(want, text(t, o, EncodingText)); diff != "" {
		t.Error(diff)
	}
	want = `# HELP test_pod_info A \"pod\",\nwith \\.
# TYPE test_pod_info gauge
` + body + `# HELP test_pod_restarts Restarts.
# TYPE test_pod_restarts counter
test_pod_restarts_total{namespace="n",pod="a"} 3
`
	if diff := cmp.Diff(want, text(t, o, EncodingOpenMetrics)); diff != "" {
		t.Error(diff)
	}
}

// The protobuf form says the same as the text form, whatever is in it.
func TestObjectsProtobufEqualsText(t *testing.T) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	rapid.Check(t, func(r *rapid.T) {
		o, err := NewObjects(ObjectsConfig[*corev1.Pod]{
			Name: "pods", Registerer: prometheus.NewRegistry(), MaxSeries: 100,
			Families: podsConfig(nil).Families,
			Render: func(p *corev1.Pod, e *Emitter) {
				e.Emit(0, rapid.Float64().Draw(r, "value"), p.Namespace, p.Name, rapid.String().Draw(r, "node"))
				e.Emit(1, rapid.Float64Range(0, math.MaxFloat64).Draw(r, "count"), p.Namespace, p.Name)
			},
		})
		if err != nil {
			r.Fatal(err)
		}
		for i := range rapid.IntRange(0, 5).Draw(r, "objects") {
			if err := o.Put(pod(fmt.Sprint(i))); err != nil {
				r.Fatal(err)
			}
		}
		fromText, err := parser.TextToMetricFamilies(strings.NewReader(text(t, o, EncodingText)))
		if err != nil {
			r.Fatal(err)
		}
		fromProto, err := o.Gather()
		if err != nil {
			r.Fatal(err)
		}
		if len(fromProto) != len(fromText) {
			r.Fatalf("%d families of protobuf, %d of text", len(fromProto), len(fromText))
		}
		for _, mf := range fromProto {
			if diff := cmp.Diff(fromText[mf.GetName()], mf, protocmp.Transform(), cmp.Comparer(func(a, b float64) bool {
				return a == b || math.IsNaN(a) && math.IsNaN(b)
			})); diff != "" {
				r.Fatal(diff)
			}
		}
	})
}

// Whatever is put and deleted, what is published is what a map would hold.
func TestObjectsAgainstAMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o, _ := newPods(t, nil)
		model := map[string]int32{}
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				name, restarts := fmt.Sprint(rapid.IntRange(0, 200).Draw(r, "name")), rapid.Int32Range(0, 9).Draw(r, "restarts")
				if err := o.Put(pod(name, restarts)); err != nil {
					r.Fatal(err)
				}
				model[name] = restarts
			},
			"put many": func(r *rapid.T) {
				for i := range 150 {
					if err := o.Put(pod(fmt.Sprint(i), 1)); err != nil {
						r.Fatal(err)
					}
					model[fmt.Sprint(i)] = 1
				}
			},
			"delete": func(r *rapid.T) {
				name := fmt.Sprint(rapid.IntRange(0, 200).Draw(r, "name"))
				o.Delete(pod(name))
				delete(model, name)
			},
			"delete many": func(r *rapid.T) {
				for i := range 195 {
					o.DeleteKey("n", fmt.Sprint(i))
					delete(model, fmt.Sprint(i))
				}
			},
			"": func(r *rapid.T) {
				if o.Len() != len(model) {
					r.Fatalf("%d objects, want %d", o.Len(), len(model))
				}
				got := text(t, o, EncodingText)
				for name, restarts := range model {
					if !strings.Contains(got, fmt.Sprintf("test_pod_restarts_total{namespace=\"n\",pod=%q} %d\n", name, restarts)) {
						r.Fatalf("%s is missing or wrong", name)
					}
				}
				if n := strings.Count(got, "\ntest_pod_restarts_total{"); n != len(model) {
					r.Fatalf("%d series, want %d", n, len(model))
				}
			},
		})
	})
}

func TestObjectsOfOneName(t *testing.T) {
	o, _ := newPods(t, nil)
	first, second := pod("a", 5), pod("a", 0)
	first.UID, second.UID = "1", "2"
	for _, p := range []*corev1.Pod{first, second} {
		if err := o.Put(p); err != nil {
			t.Fatal(err)
		}
	}
	o.Delete(first) // late: the second has its place
	if got := text(t, o, EncodingText); !strings.Contains(got, `test_pod_restarts_total{namespace="n",pod="a"} 0`) {
		t.Errorf("the successor is gone:\n%s", got)
	}
	o.Delete(second)
	if got := text(t, o, EncodingText); got != "" {
		t.Errorf("left:\n%s", got)
	}
}

func TestObjectsThatCannotBeRendered(t *testing.T) {
	for message, want := range map[string]string{
		"bad":   `rendering metrics of pods n/a: family test_pod_info: 1 label values for 3 labels`,
		"panic": `rendering metrics of pods n/a: panic: as asked`,
		"many":  `rendering metrics of pods n/a: family test_pod_restarts_total: more than 12 series`,
	} {
		t.Run(message, func(t *testing.T) {
			o, reg := newPods(t, nil)
			if err := o.Put(pod("a", 1)); err != nil {
				t.Fatal(err)
			}
			if err := o.Put(pod("b", 1)); err != nil {
				t.Fatal(err)
			}
			broken := pod("a")
			broken.Status.Message = message
			if message == "many" {
				broken.Status.ContainerStatuses = make([]corev1.ContainerStatus, 12)
			}
			if err := o.Put(broken); err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
			got := text(t, o, EncodingText)
			if strings.Contains(got, `pod="a"`) || !strings.Contains(got, `pod="b"`) {
				t.Errorf("not exactly b:\n%s", got)
			}
			if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP exporter_render_errors_total Objects whose metrics could not be rendered and are missing until they change.
# TYPE exporter_render_errors_total counter
exporter_render_errors_total{collector="pods"} 1
`), "exporter_render_errors_total"); err != nil {
				t.Error(err)
			}
			if err := o.Put(pod("a", 2)); err != nil {
				t.Errorf("not well again: %v", err)
			}
		})
	}
}

func TestObjectsLimit(t *testing.T) {
	var log bytes.Buffer
	o, reg := newPods(t, func(c *ObjectsConfig[*corev1.Pod]) {
		c.MaxObjects = 40
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	put := func(n int) {
		for i := range n {
			if err := o.Put(pod(fmt.Sprint(i), 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func() int { return strings.Count(text(t, o, EncodingText), "\ntest_pod_info{") }
	put(40)
	if got := count(); got != 40 {
		t.Errorf("%d series at the limit, want 40", got)
	}
	put(45)
	if got := text(t, o, EncodingText); got != "" {
		t.Errorf("over the limit:\n%s", got)
	}
	count()
	for i := 44; i > 38; i-- {
		o.DeleteKey("n", fmt.Sprint(i))
	}
	if got := count(); got != 0 {
		t.Errorf("%d series just below the limit, want none until 5 %% below it", got)
	}
	o.DeleteKey("n", "38")
	if got := count(); got != 38 {
		t.Errorf("%d series, want 38", got)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP exporter_limited_scrapes_total Scrapes that got no per-object families because there are more objects than the configured limit.
# TYPE exporter_limited_scrapes_total counter
exporter_limited_scrapes_total{collector="pods"} 3
# HELP exporter_objects Objects held for the per-object families, also while these are not published.
# TYPE exporter_objects gauge
exporter_objects{collector="pods"} 38
`), "exporter_limited_scrapes_total", "exporter_objects"); err != nil {
		t.Error(err)
	}
	if got := log.String(); strings.Count(got, "\n") != 2 ||
		!strings.Contains(got, `level=WARN msg="Per-object metrics are not published: too many objects" collector=pods objects=41 limit=40`) ||
		!strings.Contains(got, `level=INFO msg="Per-object metrics are published again" collector=pods objects=38 limit=40`) {
		t.Errorf("log:\n%s", got)
	}
}

func TestObjectsWhileInactive(t *testing.T) {
	leading := false
	o, _ := newPods(t, func(c *ObjectsConfig[*corev1.Pod]) { c.Active = func() bool { return leading } })
	if err := o.Put(pod("a", 1)); err != nil {
		t.Fatal(err)
	}
	if got := text(t, o, EncodingText); got != "" {
		t.Errorf("a standby publishes:\n%s", got)
	}
	leading = true
	if got := text(t, o, EncodingText); !strings.Contains(got, `pod="a"`) {
		t.Error("a leader publishes nothing")
	}
}

func TestObjectsFilter(t *testing.T) {
	o, _ := newPods(t, nil)
	if err := o.Put(pod("a", 1)); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	if err := o.WriteFamilies(w, EncodingText, func(n string) bool { return n == "test_pod_restarts_total" }); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := buf.String(); strings.Contains(got, "test_pod_info") || !strings.Contains(got, "test_pod_restarts_total{") {
		t.Error(got)
	}
}

func TestObjectsReportAFailingWriter(t *testing.T) {
	o, _ := newPods(t, nil)
	for i := range 100 {
		if err := o.Put(pod(fmt.Sprint(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, encoding := range []Encoding{EncodingText, EncodingOpenMetrics, EncodingProtobuf} {
		if err := o.WriteFamilies(bufio.NewWriterSize(brokenWriter{}, 16), encoding, nil); !errors.Is(err, errBroken) {
			t.Errorf("encoding %d: error %v", encoding, err)
		}
	}
}

var errBroken = errors.New("broken pipe")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestObjectsConfig(t *testing.T) {
	family := func(f Family) func(*ObjectsConfig[*corev1.Pod]) {
		return func(c *ObjectsConfig[*corev1.Pod]) { c.Families = append(c.Families, f) }
	}
	for want, change := range map[string]func(*ObjectsConfig[*corev1.Pod]){
		`metrics of objects "": no name`:                                                           func(c *ObjectsConfig[*corev1.Pod]) { c.Name = "" },
		`metrics of objects "pods": no families`:                                                   func(c *ObjectsConfig[*corev1.Pod]) { c.Families = nil },
		`metrics of objects "pods": no render function`:                                            func(c *ObjectsConfig[*corev1.Pod]) { c.Render = nil },
		`metrics of objects "pods": no registerer`:                                                 func(c *ObjectsConfig[*corev1.Pod]) { c.Registerer = nil },
		`metrics of objects "pods": limits of -1 objects and 12 series must be positive`:           func(c *ObjectsConfig[*corev1.Pod]) { c.MaxObjects = -1 },
		`metrics of objects "pods": family "a-b": not a metric name`:                               family(Family{Name: "a-b"}),
		`metrics of objects "pods": family "test_pod_info": named twice`:                           family(Family{Name: "test_pod_info"}),
		`metrics of objects "pods": family "x": no help`:                                           family(Family{Name: "x"}),
		`metrics of objects "pods": family "x": neither a gauge nor a counter`:                     family(Family{Name: "x", Help: "h", Type: prometheus.UntypedValue}),
		`metrics of objects "pods": family "x": counters and only counters end in _total`:          family(Family{Name: "x", Help: "h", Type: prometheus.CounterValue}),
		`metrics of objects "pods": family "x": label "a" is not a label name or is named twice`:   family(Family{Name: "x", Help: "h", Type: prometheus.GaugeValue, Labels: []string{"a", "a"}}),
		`metrics of objects "pods": family "x": label "a-b" is not a label name or is named twice`: family(Family{Name: "x", Help: "h", Type: prometheus.GaugeValue, Labels: []string{"a-b"}}),
		`metrics of objects "pods": family "x_total": counters and only counters end in _total`:    family(Family{Name: "x_total", Help: "h", Type: prometheus.GaugeValue}),
		`metrics of objects "pods": limits of 20000 objects and -5 series must be positive`:        func(c *ObjectsConfig[*corev1.Pod]) { c.MaxSeries = -5 },
	} {
		c := podsConfig(prometheus.NewRegistry())
		change(&c)
		if _, err := NewObjects(c); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	c := podsConfig(prometheus.NewRegistry())
	if _, err := NewObjects(c); err != nil {
		t.Fatal(err)
	}
	if _, err := NewObjects(c); err == nil {
		t.Error("two collectors of one name registered")
	}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := pod("a", 1)
	a.ResourceVersion = "1"
	source := cachetesting.NewFakeControllerSource()
	defer source.Shutdown()
	source.Add(a)
	informer := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
	renders := 0
	o, reg := newPods(t, func(c *ObjectsConfig[*corev1.Pod]) {
		render := c.Render
		c.Render = func(p *corev1.Pod, e *Emitter) { renders++; render(p, e) }
	})
	registration, err := o.Watch(informer)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		t.Fatal("not synced")
	}
	if got := text(t, o, EncodingText); !strings.Contains(got, `test_pod_restarts_total{namespace="n",pod="a"} 1`) {
		t.Fatalf("after the sync:\n%s", got)
	}
	changed := pod("a", 2)
	changed.ResourceVersion = "2"
	source.Modify(changed)
	eventually(t, "the change is published", func() bool {
		return strings.Contains(text(t, o, EncodingText), `test_pod_restarts_total{namespace="n",pod="a"} 2`)
	})
	source.Delete(changed)
	eventually(t, "the deletion is published", func() bool { return text(t, o, EncodingText) == "" })

	// What informers also do, called directly.
	before := renders
	o.observeChange(changed, changed)
	if renders != before {
		t.Error("a resync rendered an object")
	}
	o.observe(changed)
	o.observeDeletion(cache.DeletedFinalStateUnknown{Key: "n/a", Obj: changed})
	if o.Len() != 0 {
		t.Error("a tombstone deleted nothing")
	}
	o.observe(&corev1.Node{})
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP exporter_render_errors_total Objects whose metrics could not be rendered and are missing until they change.
# TYPE exporter_render_errors_total counter
exporter_render_errors_total{collector="pods"} 1
`), "exporter_render_errors_total"); err != nil {
		t.Error(err)
	}
}
