package jaegerudp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sizes  []int
		budget int
		want   []int
	}{
		{"nothing", nil, 10, nil},
		{"all fit exactly", []int{4, 6}, 10, []int{2}},
		{"one byte over", []int{4, 7}, 10, []int{1, 2}},
		{"three packets", []int{5, 5, 5, 5, 5}, 10, []int{2, 4, 5}},
		{"one over the budget stands alone", []int{3, 20, 3}, 10, []int{1, 2, 3}},
		{"first over the budget", []int{20}, 10, []int{1}},
	} {
		if got := split(tc.sizes, tc.budget); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: split(%v, %d) = %v, want %v", tc.name, tc.sizes, tc.budget, got, tc.want)
		}
	}
}

func TestChoose(t *testing.T) {
	ip := netip.MustParseAddr
	for _, tc := range []struct {
		name    string
		current netip.Addr
		found   []netip.Addr
		want    netip.Addr
	}{
		{"none", netip.Addr{}, nil, netip.Addr{}},
		{"stays while the name still has it", ip("10.0.0.2"), []netip.Addr{ip("10.0.0.1"), ip("10.0.0.2")}, ip("10.0.0.2")},
		{"moves", ip("10.0.0.9"), []netip.Addr{ip("10.0.0.1"), ip("10.0.0.2")}, ip("10.0.0.1")},
		{"IPv4 first", netip.Addr{}, []netip.Addr{ip("::1"), ip("127.0.0.1")}, ip("127.0.0.1")},
		{"IPv6 alone", netip.Addr{}, []netip.Addr{ip("::1")}, ip("::1")},
		{"mapped", ip("10.0.0.2"), []netip.Addr{ip("::ffff:10.0.0.2")}, ip("10.0.0.2")},
	} {
		if got, ok := choose(tc.current, tc.found); got != tc.want || ok != tc.want.IsValid() {
			t.Errorf("%s: %v %v, want %v", tc.name, got, ok, tc.want)
		}
	}
}

// wire is a socket that keeps what was written and refuses datagrams over its
// limit, as the kernel does.
type wire struct {
	limit   int
	errs    []error // answers for the next writes
	packets [][]byte
}

func (w *wire) Write(p []byte) (int, error) {
	if len(w.errs) > 0 {
		err := w.errs[0]
		w.errs = w.errs[1:]
		if err != nil {
			return 0, err
		}
	}
	if w.limit > 0 && len(p) > w.limit {
		return 0, syscall.EMSGSIZE
	}
	w.packets = append(w.packets, bytes.Clone(p))
	return len(p), nil
}

func (w *wire) Close() error { return nil }

func (w *wire) batches(t rapid.TB) []*jaeger.Batch {
	var got fakeAgent
	for _, p := range w.packets {
		if err := decode(p, (*receiver)(&got)); err != nil {
			t.Fatalf("packet of %d bytes does not decode: %v", len(p), err)
		}
	}
	return got.batches
}

func newOwner(t rapid.TB, maxPacket int, w *wire) *owner {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &owner{
		enc: newEncoder(maxPacket), maxPacket: maxPacket, port: 6831, addr: netip.MustParseAddr("127.0.0.1"),
		dial:    func(netip.AddrPort, int) (io.WriteCloser, error) { return w, nil },
		metrics: m, log: quiet(), wake: make(chan struct{}, 1),
	}
}

func genSpan(t *rapid.T) *jaeger.Span {
	s := &jaeger.Span{
		TraceIdLow: rapid.Int64().Draw(t, "low"), TraceIdHigh: rapid.Int64().Draw(t, "high"),
		SpanId: rapid.Int64().Draw(t, "span"), ParentSpanId: rapid.Int64().Draw(t, "parent"),
		OperationName: rapid.StringN(0, 40, 2000).Draw(t, "name"),
		StartTime:     rapid.Int64().Draw(t, "start"), Duration: rapid.Int64().Draw(t, "duration"),
	}
	for range rapid.IntRange(0, 6).Draw(t, "tags") {
		s.Tags = append(s.Tags, stringTag("key", strings.Repeat("v", rapid.IntRange(0, 1500).Draw(t, "tag"))))
	}
	for range rapid.IntRange(0, 3).Draw(t, "logs") {
		s.Logs = append(s.Logs, &jaeger.Log{Fields: []*jaeger.Tag{stringTag("event", strings.Repeat("e", rapid.IntRange(0, 500).Draw(t, "log")))}})
	}
	return s
}

// Whatever the spans and the limit: no packet is over the limit, every packet
// decodes, and a span is either sent once, in order, or counted as dropped.
func TestPackingLosesNothingSilently(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxPacket := rapid.IntRange(minPacketSize, 4000).Draw(t, "limit")
		w := &wire{}
		if rapid.Bool().Draw(t, "system refuses big ones") {
			w.limit = rapid.IntRange(minPacketSize, 4000).Draw(t, "system limit")
		}
		o := newOwner(t, maxPacket, w)
		o.seqNo = rapid.Int64Range(0, 1<<40).Draw(t, "seq")
		b := batch{
			process: &jaeger.Process{ServiceName: rapid.StringN(1, 20, 60).Draw(t, "service")},
			spans:   rapid.SliceOfN(rapid.Custom(genSpan), 0, 40).Draw(t, "spans"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "process tags") {
			b.process.Tags = append(b.process.Tags, stringTag("p", strings.Repeat("p", rapid.IntRange(0, 1500).Draw(t, "process tag"))))
		}
		var ids []int64
		for _, s := range b.spans {
			ids = append(ids, s.SpanId)
		}
		err := o.export(context.Background(), []batch{b})

		for _, p := range w.packets {
			if len(p) > maxPacket {
				t.Fatalf("a packet of %d bytes, limit %d", len(p), maxPacket)
			}
		}
		var got []int64
		for _, sent := range w.batches(t) {
			for _, s := range sent.Spans {
				got = append(got, s.SpanId)
			}
		}
		lost := int(testutil.ToFloat64(o.metrics.dropped.WithLabelValues(reasonTooLarge)))
		if len(got)+lost != len(ids) {
			t.Fatalf("%d spans in, %d sent, %d counted as lost", len(ids), len(got), lost)
		}
		if (lost > 0) != (err != nil) {
			t.Fatalf("%d lost but the error is %v", lost, err)
		}
		rest := ids
		for _, id := range got {
			at := slices.Index(rest, id)
			if at < 0 {
				t.Fatalf("span %d sent twice or out of order", id)
			}
			rest = rest[at+1:]
		}
	})
}

func TestMeasuredOverheadIsAnUpperBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newEncoder(1000)
		ctx := context.Background()
		p := &jaeger.Process{ServiceName: rapid.String().Draw(t, "service")}
		over, err := e.overhead(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		spans := rapid.SliceOfN(rapid.Custom(genSpan), 0, 20).Draw(t, "spans")
		sum := 0
		for _, s := range spans {
			n, err := e.size(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		seq := rapid.Int64().Draw(t, "seq")
		packet, err := e.packet(ctx, &jaeger.Batch{Process: p, Spans: spans, SeqNo: &seq, Stats: &jaeger.ClientStats{
			FullQueueDroppedSpans: rapid.Int64().Draw(t, "a"), TooLargeDroppedSpans: rapid.Int64().Draw(t, "b"), FailedToEmitSpans: rapid.Int64().Draw(t, "c"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if len(packet) > over+sum {
			t.Fatalf("packet %d bytes, bound %d+%d", len(packet), over, sum)
		}
		if spare := over + sum - len(packet); spare > 60 {
			t.Fatalf("the bound wastes %d bytes", spare)
		}
	})
}

func TestSystemWithASmallerDatagramLimit(t *testing.T) {
	w := &wire{limit: 9216} // macOS's net.inet.udp.maxdgram
	o := newOwner(t, DefaultMaxPacketSize, w)
	if err := o.export(t.Context(), batchesOf(spans("x", 500, 200))); err != nil {
		t.Fatal(err)
	}
	if n := countSpans(w.batches(t)); n != 500 {
		t.Errorf("%d spans sent, want 500", n)
	}
	if o.maxPacket != 8125 { // 65000 halved three times
		t.Errorf("limit settled at %d, want 8125", o.maxPacket)
	}
	before := len(w.packets)
	if err := o.export(t.Context(), batchesOf(spans("x", 20, 200))); err != nil || len(w.packets) != before+1 {
		t.Errorf("a later export took %d packets (%v), want 1", len(w.packets)-before, err)
	}
}

func TestWriteErrors(t *testing.T) {
	w := &wire{errs: []error{nil, syscall.ECONNREFUSED, nil, errors.New("network is down")}}
	o := newOwner(t, DefaultMaxPacketSize, w)
	export := func(n int) error { return o.export(t.Context(), batchesOf(spans("x", n, 1))) }

	if err := export(3); err != nil {
		t.Fatalf("first: %v", err)
	}
	// The kernel's answer to the first packet arrives with the second.
	if err := export(2); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("second: %v, want connection refused", err)
	}
	if err := export(4); err == nil || !strings.Contains(err.Error(), "network is down") {
		t.Errorf("third: %v", err)
	}
	for reason, want := range map[string]float64{reasonRefused: 3, reasonSendFailed: 4} {
		if got := testutil.ToFloat64(o.metrics.dropped.WithLabelValues(reason)); got != want {
			t.Errorf("dropped (%s) = %v, want %v", reason, got, want)
		}
	}
	if got := testutil.ToFloat64(o.metrics.sent); got != 5 {
		t.Errorf("sent = %v, want 5", got)
	}
	select {
	case <-o.wake:
	default:
		t.Error("a failed send did not ask for the agent's address")
	}
	if o.conn != nil {
		t.Error("the failed socket is still in use")
	}
}

func BenchmarkExport512Spans(b *testing.B) {
	w := &wire{}
	o := newOwner(b, DefaultMaxPacketSize, w)
	all := spans("productpage", 512, 200)
	b.ReportAllocs()
	for b.Loop() {
		w.packets = w.packets[:0]
		if err := o.export(b.Context(), batchesOf(all)); err != nil {
			b.Fatal(err)
		}
	}
}

// The widest packet there is: every counter at its longest and a list long
// enough to need a length of its own.
func TestOverheadCoversTheWidestEnvelope(t *testing.T) {
	e := newEncoder(1000)
	p := &jaeger.Process{ServiceName: "x"}
	over, err := e.overhead(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	spans := make([]*jaeger.Span, 200)
	for i := range spans {
		spans[i] = &jaeger.Span{}
	}
	one, err := e.size(t.Context(), spans[0])
	if err != nil {
		t.Fatal(err)
	}
	widest := int64(math.MinInt64)
	packet, err := e.packet(t.Context(), &jaeger.Batch{Process: p, Spans: spans, SeqNo: &widest, Stats: &jaeger.ClientStats{
		FullQueueDroppedSpans: widest, TooLargeDroppedSpans: widest, FailedToEmitSpans: widest,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(packet) > over+len(spans)*one {
		t.Errorf("packet %d bytes, bound %d+%d", len(packet), over, len(spans)*one)
	}
}
