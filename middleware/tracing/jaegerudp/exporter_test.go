package jaegerudp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func newExporter(t *testing.T, opts Options) (*Exporter, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	opts.Registerer = reg
	if opts.Logger == nil {
		opts.Logger = quiet()
	}
	e, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return e, reg
}

// spans makes n finished spans of one service whose tag has size bytes.
func spans(service string, n, size int) []sdktrace.ReadOnlySpan {
	res := resource.NewSchemaless(attribute.String("service.name", service))
	stubs := make(tracetest.SpanStubs, n)
	for i := range stubs {
		stubs[i] = tracetest.SpanStub{
			Name: fmt.Sprintf("op-%d", i),
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2, byte(i >> 8), byte(i)}, TraceFlags: trace.FlagsSampled,
			}),
			StartTime:  time.Unix(1000, 0),
			EndTime:    time.Unix(1001, 0),
			Resource:   res,
			Attributes: []attribute.KeyValue{attribute.String("payload", strings.Repeat("x", size))},
		}
	}
	return stubs.Snapshots()
}

func counter(t *testing.T, reg *prometheus.Registry, name, reason string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if reason == "" || m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no series %s{reason=%q}", name, reason)
	return 0
}

const (
	sentTotal    = "jaeger_agent_exporter_spans_sent_total"
	droppedTotal = "jaeger_agent_exporter_spans_dropped_total"
)

func TestExportSplitsIntoPacketsUnderTheLimit(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	e, reg := newExporter(t, Options{Address: a.address(), MaxPacketSize: 2000})

	all := append(spans("reviews", 300, 100), spans("ratings", 20, 50)...)
	if err := e.ExportSpans(t.Context(), all); err != nil {
		t.Fatal(err)
	}

	batches := a.wait(t, 320)
	services := map[string]int{}
	for i, b := range batches {
		services[b.Process.ServiceName] += len(b.Spans)
		if got, want := b.GetSeqNo(), int64(i+1); got != want {
			t.Errorf("packet %d has sequence number %d, want %d", i, got, want)
		}
	}
	if services["reviews"] != 300 || services["ratings"] != 20 || len(services) != 2 {
		t.Errorf("spans by service: %v", services)
	}
	for i, size := range a.packets {
		if size > 2000 {
			t.Errorf("packet %d has %d bytes", i, size)
		}
		// The packing is measured, not guessed: only the last packet of a
		// process may leave room for another span of about 190 bytes.
		if services := batches[i].Process.ServiceName; services == "reviews" && i < 25 && size < 1700 {
			t.Errorf("packet %d has %d bytes of 2000", i, size)
		}
	}
	if got := counter(t, reg, sentTotal, ""); got != 320 {
		t.Errorf("%s = %v", sentTotal, got)
	}
}

func TestOversizeSpanLosesItsTagsNotItsPlaceInTheTrace(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	e, reg := newExporter(t, Options{Address: a.address(), MaxPacketSize: 1000})

	big := tracetest.SpanStub{
		Name:        "GET /productpage",
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{9}}),
		Resource:    resource.NewSchemaless(attribute.String("service.name", "productpage")),
		Attributes: []attribute.KeyValue{
			attribute.String("http.route", "/productpage"), attribute.String("huge", strings.Repeat("h", 5000)),
		},
		Events:            []sdktrace.Event{{Name: "one"}, {Name: "two"}},
		DroppedAttributes: 3,
	}
	named := big
	named.Name = strings.Repeat("n", 2000)
	err := e.ExportSpans(t.Context(), tracetest.SpanStubs{big, named}.Snapshots())
	if err == nil || !strings.Contains(err.Error(), "too_large") {
		t.Errorf("error = %v, want one that says too_large", err)
	}

	span := a.wait(t, 1)[0].Spans[0]
	got := map[string]any{}
	for _, tag := range span.Tags {
		got[tag.Key] = tag.GetVLong()
		if tag.VStr != nil {
			got[tag.Key] = *tag.VStr
		}
	}
	want := map[string]any{"http.route": "/productpage", tagDroppedAttributes: int64(4), tagDroppedEvents: int64(2)}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("tag %s = %v, want %v", k, got[k], v)
		}
	}
	if _, kept := got["huge"]; kept || len(span.Logs) != 0 {
		t.Errorf("kept the tag or the logs that did not fit: %v", got)
	}
	if got := counter(t, reg, droppedTotal, reasonTooLarge); got != 1 {
		t.Errorf("dropped as too large: %v, want 1", got)
	}
	if got := counter(t, reg, "jaeger_agent_exporter_spans_truncated_total", ""); got != 1 {
		t.Errorf("truncated: %v, want 1", got)
	}

	// The next packet tells the agent what was lost.
	if err := e.ExportSpans(t.Context(), spans("productpage", 1, 1)); err != nil {
		t.Fatal(err)
	}
	if stats := a.wait(t, 2)[1].Stats; stats.TooLargeDroppedSpans != 1 || stats.FailedToEmitSpans != 0 {
		t.Errorf("client stats = %+v", stats)
	}
}

func TestAgentThatDoesNotListen(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	address := a.address()
	a.close()
	e, reg := newExporter(t, Options{Address: address})

	eventually(t, "the refused spans are counted", func() bool {
		_ = e.ExportSpans(t.Context(), spans("details", 2, 1))
		return counter(t, reg, droppedTotal, reasonRefused) >= 4
	})

	// The agent starts, and the same exporter reaches it.
	back := startAgent(t, address)
	_ = e.ExportSpans(t.Context(), spans("details", 1, 1))
	if err := e.ExportSpans(t.Context(), spans("details", 1, 1)); err != nil {
		t.Errorf("export to the agent that came back: %v", err)
	}
	back.wait(t, 2)
}

func TestAgentMovesToAnotherAddress(t *testing.T) {
	first := startAgent(t, "127.0.0.1:0")
	second := startAgent(t, fmt.Sprintf("127.0.0.2:%d", first.port()))
	r := &fixedResolver{}
	r.set(nil, "127.0.0.1")
	e, reg := newExporter(t, Options{
		Address: fmt.Sprintf("jaeger-agent:%d", first.port()), Resolver: r, ResolveInterval: 5 * time.Millisecond,
	})
	if err := e.ExportSpans(t.Context(), spans("ratings", 1, 1)); err != nil {
		t.Fatal(err)
	}
	first.wait(t, 1)

	// A failing look-up keeps the address in use.
	r.set(errors.New("no DNS"))
	r.mu.Lock()
	calls := r.calls
	r.mu.Unlock()
	eventually(t, "another look-up", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.calls > calls })
	if err := e.ExportSpans(t.Context(), spans("ratings", 1, 1)); err != nil {
		t.Fatal(err)
	}
	first.wait(t, 2)

	r.set(nil, "127.0.0.2")
	eventually(t, "spans arrive at the new address", func() bool {
		if err := e.ExportSpans(t.Context(), spans("ratings", 1, 1)); err != nil {
			t.Fatal(err)
		}
		second.mu.Lock()
		defer second.mu.Unlock()
		return len(second.batches) > 0
	})
	for _, reason := range reasons {
		if got := counter(t, reg, droppedTotal, reason); got != 0 {
			t.Errorf("dropped (%s): %v", reason, got)
		}
	}
}

func TestAgentWhoseNameIsUnknownAtStart(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	r := &fixedResolver{}
	r.set(errors.New("no such host"))
	e, reg := newExporter(t, Options{
		Address: fmt.Sprintf("jaeger-agent:%d", a.port()), Resolver: r, ResolveInterval: 5 * time.Millisecond,
	})
	if err := e.ExportSpans(t.Context(), spans("ratings", 3, 1)); !errors.Is(err, errUnresolved) {
		t.Errorf("error = %v, want %v", err, errUnresolved)
	}
	if got := counter(t, reg, droppedTotal, reasonUnresolved); got != 3 {
		t.Errorf("dropped: %v, want 3", got)
	}
	r.set(nil, "127.0.0.1")
	eventually(t, "the name resolves and spans arrive", func() bool {
		return e.ExportSpans(t.Context(), spans("ratings", 1, 1)) == nil
	})
	a.wait(t, 1)
}

func TestShutdownIsIdempotentAndConcurrent(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	e, reg := newExporter(t, Options{Address: a.address()})

	const exporters, each = 8, 20
	var wg sync.WaitGroup
	for range exporters {
		wg.Go(func() {
			for range each {
				if err := e.ExportSpans(context.Background(), spans("x", 5, 10)); err != nil && !errors.Is(err, ErrShutdown) {
					t.Errorf("export: %v", err)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				t.Errorf("shutdown: %v", err)
			}
		})
	}
	wg.Wait()

	if err := e.ExportSpans(t.Context(), spans("x", 5, 10)); !errors.Is(err, ErrShutdown) {
		t.Errorf("export after shutdown: %v, want ErrShutdown", err)
	}
	sent, lost := counter(t, reg, sentTotal, ""), counter(t, reg, droppedTotal, reasonShutdown)
	if total := float64(exporters*each*5 + 5); sent+lost != total {
		t.Errorf("sent %v + refused %v = %v, want every span: %v", sent, lost, sent+lost, total)
	}
}

func TestExportWithAnEndedContext(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	e, reg := newExporter(t, Options{Address: a.address()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.ExportSpans(ctx, spans("x", 5, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want canceled", err)
	}
	eventually(t, "the spans are counted", func() bool {
		return counter(t, reg, droppedTotal, reasonCanceled) == 5
	})
}

func TestMetricsAreLintedAndShared(t *testing.T) {
	a := startAgent(t, "127.0.0.1:0")
	reg := prometheus.NewPedanticRegistry()
	for range 2 {
		e, err := New(t.Context(), Options{Address: a.address(), Registerer: reg, Logger: quiet()})
		if err != nil {
			t.Fatalf("two exporters of one process: %v", err)
		}
		if err := e.ExportSpans(t.Context(), spans("x", 1, 1)); err != nil {
			t.Fatal(err)
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := counter(t, reg, sentTotal, ""); got != 2 {
		t.Errorf("sent by both: %v, want 2", got)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(reg, droppedTotal); err != nil || n != len(reasons) {
		t.Errorf("%d series of %s, want one for each of %v (%v)", n, droppedTotal, reasons, err)
	}
}

func TestOptionsErrors(t *testing.T) {
	for _, tc := range []struct {
		opts Options
		want string
	}{
		{Options{Address: "jaeger"}, "must be host:port"},
		{Options{Address: ":6831"}, "host is missing"},
		{Options{Address: "jaeger:http"}, "port must be a number from 1 to 65535"},
		{Options{Address: "jaeger:0"}, "port must be a number from 1 to 65535"},
		{Options{MaxPacketSize: 100}, "must be 512 to 65507 bytes"},
		{Options{MaxPacketSize: 70000}, "must be 512 to 65507 bytes"},
		{Options{ResolveInterval: -1}, "must not be negative"},
	} {
		_, err := New(t.Context(), tc.opts)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%+v) error = %v, want %q", tc.opts, err, tc.want)
		}
	}
}
