package jaegerudp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// ErrShutdown is returned by ExportSpans after Shutdown.
var ErrShutdown = errors.New("jaeger agent exporter: already shut down")

// Exporter sends spans to a Jaeger agent. All methods are safe for concurrent
// use.
type Exporter struct {
	requests chan request
	stop     chan struct{} // closed once, by Shutdown
	done     chan struct{} // closed when both goroutines have ended
	stopOnce sync.Once
	metrics  *metrics
	log      *slog.Logger
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

type request struct {
	ctx     context.Context
	batches []batch
	result  chan<- error // buffered: the owner never waits for the caller
}

// New starts an exporter. A host name that cannot be resolved yet is no error:
// the name is looked up again in the background and spans are dropped, and
// counted, until it has an address. ctx bounds only the first look-up.
//
// Errors name the option that is wrong, or a metric that is registered by
// something else.
func New(ctx context.Context, opts Options) (*Exporter, error) {
	opts, host, port, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	e := &Exporter{
		requests: make(chan request),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		metrics:  m,
		log:      opts.Logger,
	}
	own := &owner{
		enc:       newEncoder(opts.MaxPacketSize),
		maxPacket: opts.MaxPacketSize,
		port:      port,
		dial:      dialUDP,
		metrics:   m,
		log:       opts.Logger,
		wake:      make(chan struct{}, 1),
	}

	found := make(chan netip.Addr)
	var watch *watcher
	if ip, err := netip.ParseAddr(host); err == nil {
		own.addr = ip.Unmap()
	} else {
		watch = &watcher{
			resolver: opts.Resolver, host: host, interval: opts.ResolveInterval,
			found: found, wake: own.wake, warn: opts.Logger.Warn,
		}
		a, err := watch.lookup(ctx)
		if err != nil {
			e.log.WarnContext(ctx, "looking up the Jaeger agent failed; spans are dropped until it has an address", "host", host, "err", err)
		}
		watch.current, own.addr = a, a
	}

	watchCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	if watch != nil {
		running.Go(func() { watch.run(watchCtx) })
	}
	running.Go(func() {
		defer cancel()
		own.run(e.requests, found, e.stop)
	})
	go func() {
		running.Wait()
		close(e.done)
	}()
	return e, nil
}

// ExportSpans sends the spans in as many packets as they need and returns when
// the last one was written. It returns an error when some could not be sent;
// those are counted in jaeger_agent_exporter_spans_dropped_total.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	// The answer channel has room for one, so that the owner never blocks on a
	// caller that gave up.
	result := make(chan error, 1)
	req := request{ctx: ctx, batches: batchesOf(spans), result: result}

	// Of several ready cases select picks any, so a stopped exporter is asked
	// about first.
	select {
	case <-e.stop:
		return e.refuse(len(spans))
	default:
	}
	select {
	case <-e.stop:
		return e.refuse(len(spans))
	case <-ctx.Done():
		e.metrics.dropped.WithLabelValues(reasonCanceled).Add(float64(len(spans)))
		return fmt.Errorf("exporting %d spans to the Jaeger agent: %w", len(spans), context.Cause(ctx))
	case e.requests <- req:
	}
	// From here on the owner counts what happens to the spans.
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("exporting %d spans to the Jaeger agent: %w", len(spans), context.Cause(ctx))
	}
}

func (e *Exporter) refuse(spans int) error {
	e.metrics.dropped.WithLabelValues(reasonShutdown).Add(float64(spans))
	return ErrShutdown
}

// Shutdown closes the socket and waits for the exporter's goroutines to end,
// or for ctx. It may be called any number of times, from any goroutine.
func (e *Exporter) Shutdown(ctx context.Context) error {
	e.stopOnce.Do(func() { close(e.stop) })
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the Jaeger agent exporter to stop: %w", context.Cause(ctx))
	}
}

// MarshalLog names the exporter in the SDK's own logs.
func (e *Exporter) MarshalLog() any { return "jaegerudp.Exporter" }

// batchesOf converts spans and groups them by resource, in order of first
// appearance: a Jaeger batch belongs to one process.
func batchesOf(spans []sdktrace.ReadOnlySpan) []batch {
	var out []batch
	at := make(map[attribute.Distinct]int, 1)
	for _, s := range spans {
		key := s.Resource().Equivalent()
		i, seen := at[key]
		if !seen {
			i = len(out)
			at[key] = i
			out = append(out, batch{process: processOf(s.Resource()), spans: make([]*jaeger.Span, 0, len(spans))})
		}
		out[i].spans = append(out[i].spans, spanOf(s))
	}
	return out
}
