package exporter

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protodelim"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectsConfig configures Objects.
type ObjectsConfig[T metav1.Object] struct {
	// Name tells several Objects of a process apart, in the label collector of
	// their own metrics and in logs; required. Use the resource's name.
	Name string
	// Families are the families of an object; required.
	Families []Family
	// Render emits the samples of one object; required. It must not keep or
	// change the object, and may be called concurrently.
	Render func(object T, e *Emitter)
	// Registerer takes Objects' own metrics; required.
	Registerer prometheus.Registerer
	// MaxObjects is the number of objects above which no per-object family is
	// published, 20,000.
	MaxObjects int
	// MaxSeries is the number of samples above which an object is refused, 12.
	MaxSeries int
	// Active says whether to publish the objects now; always if nil. Let it
	// report leadership, so that standby replicas do not publish everything a
	// second time. It is called once per scrape.
	Active func() bool
	// Logger says when the limit is crossed and what cannot be rendered.
	// Nothing is logged if nil.
	Logger *slog.Logger
}

// Objects holds the rendered metrics of objects. Putting or deleting an object
// costs the same however many there are. A scrape sees each object as of one
// moment. All methods are safe for concurrent use.
type Objects[T metav1.Object] struct {
	c        ObjectsConfig[T]
	headers  []familyHeader
	emitters sync.Pool
	scrapes  sync.Pool // *scrapeBuffers

	limited      prometheus.Counter
	renderErrors prometheus.Counter

	mu    sync.Mutex
	index map[types.NamespacedName]int
	// objects is dense, in the order of index.
	objects []*renderedObject
	over    bool
}

// chunk is the samples of one family of one object.
type chunk struct{ text, proto []byte }

// renderedObject is never changed once it is in Objects.
type renderedObject struct {
	key    types.NamespacedName
	uid    types.UID
	chunks []chunk
}

// scrapeBuffers is what a scrape needs besides its writer.
type scrapeBuffers struct {
	objects []*renderedObject
	chunks  []*chunk
}

var _ Rendered = (*Objects[metav1.Object])(nil)

// NewObjects checks the configuration and registers Objects' own metrics.
func NewObjects[T metav1.Object](c ObjectsConfig[T]) (*Objects[T], error) {
	c.MaxObjects = cmp.Or(c.MaxObjects, 20_000)
	c.MaxSeries = cmp.Or(c.MaxSeries, 12)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("metrics of objects %q: %w", c.Name, err)
	}
	labels := prometheus.Labels{"collector": c.Name}
	o := &Objects[T]{
		c:     c,
		index: map[types.NamespacedName]int{},
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "exporter_limited_scrapes_total", ConstLabels: labels,
			Help: "Scrapes that got no per-object families because there are more objects than the configured limit.",
		}),
		renderErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "exporter_render_errors_total", ConstLabels: labels,
			Help: "Objects whose metrics could not be rendered and are missing until they change.",
		}),
	}
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "exporter_objects", ConstLabels: labels,
		Help: "Objects held for the per-object families, also while these are not published.",
	}, func() float64 { return float64(o.Len()) })
	for _, f := range c.Families {
		o.headers = append(o.headers, f.header())
	}
	o.emitters.New = func() any { return newEmitter(c.Families, c.MaxSeries) }
	o.scrapes.New = func() any { return &scrapeBuffers{} }
	return o, register(c.Registerer, "metrics of objects "+c.Name, []prometheus.Collector{o.limited, o.renderErrors, held})
}

func (c *ObjectsConfig[T]) validate() error {
	switch {
	case c.Name == "":
		return errors.New("no name")
	case len(c.Families) == 0:
		return errors.New("no families")
	case c.Render == nil:
		return errors.New("no render function")
	case c.Registerer == nil:
		return errors.New("no registerer")
	case c.MaxObjects < 0 || c.MaxSeries < 0:
		return fmt.Errorf("limits of %d objects and %d series must be positive", c.MaxObjects, c.MaxSeries)
	}
	names := map[string]bool{}
	for _, f := range c.Families {
		if !model.LegacyValidation.IsValidMetricName(f.Name) {
			return fmt.Errorf("family %q: not a metric name", f.Name)
		}
		if names[f.Name] {
			return fmt.Errorf("family %q: named twice", f.Name)
		}
		names[f.Name] = true
		if f.Help == "" {
			return fmt.Errorf("family %q: no help", f.Name)
		}
		if f.Type != prometheus.GaugeValue && f.Type != prometheus.CounterValue {
			return fmt.Errorf("family %q: neither a gauge nor a counter", f.Name)
		}
		if (f.Type == prometheus.CounterValue) != strings.HasSuffix(f.Name, "_total") {
			return fmt.Errorf("family %q: counters and only counters end in _total", f.Name)
		}
		for i, l := range f.Labels {
			if !model.LegacyValidation.IsValidLabelName(l) || slices.Contains(f.Labels[:i], l) {
				return fmt.Errorf("family %q: label %q is not a label name or is named twice", f.Name, l)
			}
		}
	}
	return nil
}

// Put renders an object and replaces what was held under its namespace and
// name. An object that cannot be rendered loses the series it had, and the
// error says why.
func (o *Objects[T]) Put(object T) error {
	r, err := o.render(object)
	if err != nil {
		o.renderErrors.Inc()
		o.remove(r.key, "")
		return fmt.Errorf("rendering metrics of %s %s: %w", o.c.Name, r.key, err)
	}
	o.mu.Lock()
	if i, ok := o.index[r.key]; ok {
		o.objects[i] = r
	} else {
		o.index[r.key] = len(o.objects)
		o.objects = append(o.objects, r)
	}
	crossed, n := o.crossed(), len(o.objects)
	o.mu.Unlock()
	if crossed {
		o.c.Logger.Warn("Per-object metrics are not published: too many objects", "collector", o.c.Name, "objects", n, "limit", o.c.MaxObjects)
	}
	return nil
}

// Delete drops an object, unless the one held under its name is another with
// a UID of its own.
func (o *Objects[T]) Delete(object T) { o.remove(keyOf(object), object.GetUID()) }

// DeleteKey drops whatever is held under that namespace and name.
func (o *Objects[T]) DeleteKey(namespace, name string) {
	o.remove(types.NamespacedName{Namespace: namespace, Name: name}, "")
}

// Len is the number of objects held.
func (o *Objects[T]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.objects)
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// render returns a renderedObject with at least its key.
func (o *Objects[T]) render(object T) (r *renderedObject, err error) {
	r = &renderedObject{key: keyOf(object), uid: object.GetUID()}
	e := o.emitters.Get().(*Emitter)
	e.reset()
	defer func() {
		if p := recover(); p != nil {
			// The emitter is in an unknown state and is not used again.
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	o.c.Render(object, e)
	r.chunks, err = e.chunks()
	o.emitters.Put(e)
	return r, err
}

func (o *Objects[T]) remove(key types.NamespacedName, uid types.UID) {
	o.mu.Lock()
	i, ok := o.index[key]
	if !ok || (uid != "" && o.objects[i].uid != "" && o.objects[i].uid != uid) {
		o.mu.Unlock()
		return
	}
	last := len(o.objects) - 1
	o.objects[i] = o.objects[last]
	o.index[o.objects[i].key] = i
	o.objects[last] = nil
	o.objects = o.objects[:last]
	delete(o.index, key)
	o.shrink()
	crossed, n := o.crossed(), len(o.objects)
	o.mu.Unlock()
	if crossed {
		o.c.Logger.Info("Per-object metrics are published again", "collector", o.c.Name, "objects", n, "limit", o.c.MaxObjects)
	}
}

// shrink gives memory back when most of it is unused. Neither slices nor maps
// do so by themselves. The cost is spread over the deletions that led here.
func (o *Objects[T]) shrink() {
	const small = 64
	if cap(o.objects) <= small || len(o.objects) > cap(o.objects)/4 {
		return
	}
	o.objects = append(make([]*renderedObject, 0, max(small, 2*len(o.objects))), o.objects...)
	index := make(map[types.NamespacedName]int, len(o.objects))
	for i, r := range o.objects {
		index[r.key] = i
	}
	o.index = index
}

// crossed notes whether the limit is exceeded and reports a change. The
// families come back only 5 % below it, so as not to come and go with every
// object.
func (o *Objects[T]) crossed() bool {
	before := o.over
	switch n := len(o.objects); {
	case n > o.c.MaxObjects:
		o.over = true
	case n <= o.c.MaxObjects-o.c.MaxObjects/20:
		o.over = false
	}
	return before != o.over
}

// snapshot copies the list of objects for a scrape. The objects themselves
// never change, so that nothing is locked while a slow client reads.
func (o *Objects[T]) snapshot(b *scrapeBuffers) {
	if o.c.Active != nil && !o.c.Active() {
		return
	}
	o.mu.Lock()
	over := o.over
	if !over {
		b.objects = append(b.objects, o.objects...)
	}
	o.mu.Unlock()
	if over {
		o.limited.Inc()
	}
}

// FamilyNames implements Rendered.
func (o *Objects[T]) FamilyNames() []string {
	var names []string
	for _, f := range o.c.Families {
		names = append(names, f.Name)
	}
	return names
}

// WriteFamilies implements Rendered.
func (o *Objects[T]) WriteFamilies(w *bufio.Writer, encoding Encoding, keep func(string) bool) error {
	b := o.scrapes.Get().(*scrapeBuffers)
	defer func() {
		// The pool must not keep deleted objects alive.
		clear(b.objects)
		clear(b.chunks)
		b.objects, b.chunks = b.objects[:0], b.chunks[:0]
		o.scrapes.Put(b)
	}()
	o.snapshot(b)
	for f, h := range o.headers {
		if keep != nil && !keep(o.c.Families[f].Name) {
			continue
		}
		b.chunks = b.chunks[:0]
		for _, r := range b.objects {
			b.chunks = append(b.chunks, &r.chunks[f])
		}
		if err := h.write(w, encoding, b.chunks); err != nil {
			return err
		}
	}
	return nil
}

// Gather implements prometheus.Gatherer for use with other handlers, at the
// price of decoding every sample.
func (o *Objects[T]) Gather() ([]*dto.MetricFamily, error) {
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	if err := o.WriteFamilies(w, EncodingProtobuf, nil); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	var families []*dto.MetricFamily
	unlimited := protodelim.UnmarshalOptions{MaxSize: -1}
	for {
		mf := &dto.MetricFamily{}
		err := unlimited.UnmarshalFrom(&buf, mf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("decoding metrics of objects %s: %w", o.c.Name, err)
		}
		families = append(families, mf)
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return families, nil
}
