//lint:file-ignore SA1019 The thrift of jaeger-client-go is frozen, and its other constructor needs a configuration it cannot share.

package jaegerudp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/uber/jaeger-client-go/thrift"
	"github.com/uber/jaeger-client-go/thrift-gen/agent"
	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"github.com/uber/jaeger-client-go/thrift-gen/zipkincore"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAgent reads datagrams from a real socket and decodes them with the
// generated server code.
type fakeAgent struct {
	conn *net.UDPConn
	done chan struct{}

	mu      sync.Mutex
	batches []*jaeger.Batch
	packets []int // sizes in bytes
	errs    []error
}

func startAgent(t *testing.T, address string) *fakeAgent {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{conn: conn, done: make(chan struct{})}
	go a.serve()
	t.Cleanup(a.close)
	return a
}

func (a *fakeAgent) close() {
	a.conn.Close()
	<-a.done
}

func (a *fakeAgent) address() string { return a.conn.LocalAddr().String() }

func (a *fakeAgent) port() int { return a.conn.LocalAddr().(*net.UDPAddr).Port }

func (a *fakeAgent) serve() {
	defer close(a.done)
	buf := make([]byte, 1<<16)
	for {
		n, err := a.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		a.mu.Lock()
		if err == nil {
			a.packets = append(a.packets, n)
			err = decode(buf[:n], (*receiver)(a))
		}
		if err != nil {
			a.errs = append(a.errs, err)
		}
		a.mu.Unlock()
	}
}

// decode runs the generated agent server over one packet.
func decode(packet []byte, to agent.Agent) error {
	trans := thrift.NewTMemoryBuffer()
	trans.Write(packet)
	proto := thrift.NewTCompactProtocolFactory().GetProtocol(trans)
	if _, err := agent.NewAgentProcessor(to).Process(context.Background(), proto, proto); err != nil {
		return err
	}
	if left := trans.Len(); left != 0 {
		return fmt.Errorf("%d bytes left after the message", left)
	}
	return nil
}

// receiver is fakeAgent's side of the Thrift service; serve holds the lock.
type receiver fakeAgent

func (r *receiver) EmitBatch(_ context.Context, b *jaeger.Batch) error {
	r.batches = append(r.batches, b)
	return nil
}

func (r *receiver) EmitZipkinBatch(context.Context, []*zipkincore.Span) error {
	return errors.New("zipkin batches are not expected")
}

// wait polls until n spans arrived and returns the batches they came in.
func (a *fakeAgent) wait(t *testing.T, n int) []*jaeger.Batch {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		a.mu.Lock()
		got, errs, batches := countSpans(a.batches), a.errs, append([]*jaeger.Batch(nil), a.batches...)
		a.mu.Unlock()
		if len(errs) > 0 {
			t.Fatalf("the agent could not read a packet: %v", errors.Join(errs...))
		}
		if got >= n {
			return batches
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent has %d spans, want %d", got, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func countSpans(batches []*jaeger.Batch) int {
	n := 0
	for _, b := range batches {
		n += len(b.Spans)
	}
	return n
}

// eventually polls cond for up to five seconds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5 s: %s", what)
		}
	}
}

// fixedResolver answers from a value a test can change.
type fixedResolver struct {
	mu    sync.Mutex
	addrs []netip.Addr
	err   error
	calls int
}

func (r *fixedResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	return r.addrs, r.err
}

func (r *fixedResolver) set(err error, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.addrs = err, nil
	for _, a := range addrs {
		r.addrs = append(r.addrs, netip.MustParseAddr(a))
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
