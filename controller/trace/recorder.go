package trace

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Config says how spans are sent. The zero value takes everything from the environment.
type Config struct {
	// Endpoint is the URL of an OTLP collector, such as http://collector:4317 for gRPC or
	// http://collector:4318 for HTTP, where /v1/traces is added to a URL without a path.
	// https means TLS. Without it OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and
	// OTEL_EXPORTER_OTLP_ENDPOINT count; with none of them nothing is sent.
	// OTEL_EXPORTER_OTLP_PROTOCOL, if set, decides the protocol, otherwise the port does.
	Endpoint string
	// Registerer takes the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Logger hears of failures; nil for slog.Default().
	Logger *slog.Logger
	// QueueSize is how many spans may wait. Default 16384, about 16 MiB.
	QueueSize int
	// BatchSize is how many spans are sent at once. Default 256.
	BatchSize int
	// FlushTimeout bounds how long Run goes on sending after its context has ended. Default 5s.
	FlushTimeout time.Duration
	// ResumeWithin is how long after its end Resume sends a rollout again. Default 1h.
	ResumeWithin time.Duration
}

// Recorder sends the spans of rollouts. Create it with New and call Run once; the other
// methods are safe for concurrent use, never block, and may be called before and after.
type Recorder struct {
	client   otlptrace.Client // nil when nothing is sent
	resource *resourcepb.Resource
	metrics  *metrics
	log      *slog.Logger
	config   Config
	backoff  backoff
	now      func() time.Time

	// wake tells Run that there is something to send.
	wake chan struct{}

	mu sync.Mutex
	// queue holds spans to send.
	queue []*tracepb.Span
	// resumed holds Canaries whose spans are made when it is their turn.
	resumed []*v1alpha1.Canary
	// told is what was queued of the latest attempt of each Canary.
	told map[types.UID]told
	// full says that spans are being dropped.
	full bool
}

// told are the spans of an attempt that were queued.
type told struct {
	of     attemptID
	pieces map[piece]bool
}

// New returns a Recorder. An error names the setting that is wrong; a collector that is
// not there is none.
func New(c Config) (*Recorder, error) {
	setDefault(&c.QueueSize, 16384)
	setDefault(&c.BatchSize, 256)
	setDefault(&c.FlushTimeout, 5*time.Second)
	setDefault(&c.ResumeWithin, time.Hour)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	to, err := findDestination(c.Endpoint, environment)
	if err != nil {
		return nil, fmt.Errorf("tracing rollouts: %w", err)
	}
	r := &Recorder{log: c.Logger, config: c, backoff: defaultBackoff, now: time.Now, wake: make(chan struct{}, 1), told: map[types.UID]told{}}
	if r.metrics, err = newMetrics(c.Registerer); err != nil {
		return nil, err
	}
	if to.off {
		return r, nil
	}
	if r.resource, err = newResource(context.Background()); err != nil {
		return nil, fmt.Errorf("tracing rollouts: %w", err)
	}
	r.client = to.client()
	return r, nil
}

func setDefault[T int | time.Duration](value *T, to T) {
	if *value <= 0 {
		*value = to
	}
}

// Enabled says whether spans are sent anywhere.
func (r *Recorder) Enabled() bool { return r.client != nil }

// StatusWritten queues the spans that ended by what changed from before to after, two
// states of a Canary that the API server has kept, and those that had ended earlier and
// that this Recorder has not queued yet: because it missed a change, or because there was
// no room. It may be called for the same change again. The Canaries are only read, and not
// kept.
func (r *Recorder) StatusWritten(before, after *v1alpha1.Canary) {
	if !r.Enabled() {
		return
	}
	r.mu.Lock()
	spans, mark := r.untold(before, after)
	room := len(r.queue) == 0 || len(r.queue)+len(spans) <= r.config.QueueSize
	began := !room && !r.full
	r.full = !room
	if room {
		r.queue = append(r.queue, spans...)
		r.metrics.queued.Set(float64(len(r.queue)))
		mark()
	}
	r.mu.Unlock()
	if room {
		r.notify()
		return
	}
	r.metrics.dropped.Add(float64(len(spans)))
	if began {
		r.log.Warn("The queue of spans is full; spans of rollouts are dropped and counted", "size", r.config.QueueSize)
	}
}

// Deleted queues the spans that end because c, which has a deletion timestamp and will not
// change any more, goes. It may be called again.
func (r *Recorder) Deleted(c *v1alpha1.Canary) {
	if c.DeletionTimestamp != nil {
		r.StatusWritten(nil, c)
	}
}

// Resume queues all spans of c's rollout that have ended, if it is under way or ended
// lately. Call it for every Canary when the controller begins to work: a predecessor may
// have written a status and ended before it sent the spans. c must not change any more,
// as objects of an informer do not.
func (r *Recorder) Resume(c *v1alpha1.Canary) {
	if !r.Enabled() {
		return
	}
	a, traced := newAttempt(c, nil)
	if !traced {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := a.rollout().FinishedAt; f != nil && r.now().Sub(f.Time) > r.config.ResumeWithin {
		// It was sent then.
		_, mark := r.untold(nil, c)
		mark()
		return
	}
	r.resumed = append(r.resumed, c)
	r.notify()
}

// untold returns the spans of the attempts in before and after that have ended and are not
// queued yet, and what notes that they are. The caller holds r.mu.
func (r *Recorder) untold(before, after *v1alpha1.Canary) (list []*tracepb.Span, mark func()) {
	known := r.told[after.UID]
	if next := after.Status.Rollout; next != nil && known.of == idOf(next) {
		// That it has replaced another attempt was told with its first spans.
		before = nil
	}
	var now told
	for _, a := range courses(before, after) {
		now = told{of: a.id(), pieces: map[piece]bool{}}
		for _, p := range a.ended() {
			now.pieces[p] = true
			if known.of != a.id() || !known.pieces[p] {
				list = append(list, a.span(p))
			}
		}
	}
	return list, func() {
		switch {
		case now.pieces == nil:
		case after.DeletionTimestamp != nil:
			delete(r.told, after.UID)
		case known.of == now.of:
			// It may be told by an older state than the one before.
			for p := range now.pieces {
				known.pieces[p] = true
			}
		default:
			r.told[after.UID] = now
		}
	}
}

func (r *Recorder) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns what to send next, at most a batch; nothing when there is nothing.
func (r *Recorder) take() []*tracepb.Span {
	for {
		r.mu.Lock()
		if n := min(len(r.queue), r.config.BatchSize); n > 0 {
			batch := append([]*tracepb.Span(nil), r.queue[:n]...)
			r.queue = append(r.queue[:0:0], r.queue[n:]...)
			r.metrics.queued.Set(float64(len(r.queue)))
			r.mu.Unlock()
			return batch
		}
		if len(r.resumed) == 0 {
			r.mu.Unlock()
			return nil
		}
		// These do not compete for room with what is new: they come when there is nothing new.
		spans, mark := r.untold(nil, r.resumed[0])
		r.resumed = r.resumed[1:]
		r.queue = append(r.queue, spans...)
		mark()
		r.mu.Unlock()
	}
}
