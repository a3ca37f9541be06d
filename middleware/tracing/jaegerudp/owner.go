package jaegerudp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"syscall"

	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
)

var errUnresolved = errors.New("the Jaeger agent's name has no address yet")

// owner has the socket, the buffers and the counters of the protocol. Only the
// goroutine in run touches it.
type owner struct {
	enc       *encoder
	maxPacket int
	addr      netip.Addr // invalid until the name was resolved
	port      uint16
	dial      func(to netip.AddrPort, sendBuffer int) (io.WriteCloser, error)
	conn      io.WriteCloser // nil while none is open

	seqNo int64
	stats jaeger.ClientStats
	// unconfirmed is how many spans the last packet had. The kernel reports a
	// closed port on the write after the one that was refused.
	unconfirmed int
	failing     bool

	metrics *metrics
	log     *slog.Logger
	wake    chan struct{} // asks the watcher to look the name up now
}

// run serves requests until stop closes. A request that was accepted is
// finished first.
func (o *owner) run(requests <-chan request, found <-chan netip.Addr, stop <-chan struct{}) {
	defer o.hangUp()
	for {
		select {
		case <-stop:
			return
		case a := <-found:
			o.log.Info("the Jaeger agent's address changed", "from", o.addr, "to", a)
			o.addr = a
			o.hangUp()
		case r := <-requests:
			r.result <- o.export(r.ctx, r.batches)
		}
	}
}

// hangUp closes the socket; the next packet opens another.
func (o *owner) hangUp() {
	if o.conn == nil {
		return
	}
	if err := o.conn.Close(); err != nil {
		o.log.Warn("closing the socket to the Jaeger agent failed", "err", err)
	}
	o.conn = nil
	o.unconfirmed = 0
}

// export sends every batch; one that fails does not stop the others.
func (o *owner) export(ctx context.Context, batches []batch) error {
	var errs error
	for _, b := range batches {
		errs = errors.Join(errs, o.exportBatch(ctx, b))
	}
	o.noteStreak(errs)
	return errs
}

// noteStreak logs the first failure of a streak and its end, so that a dead
// agent does not fill the log.
func (o *owner) noteStreak(err error) {
	switch {
	case err != nil && !o.failing:
		o.log.Warn("sending spans to the Jaeger agent failed; further failures are only counted", "err", err)
	case err == nil && o.failing:
		o.log.Info("sending spans to the Jaeger agent works again")
	}
	o.failing = err != nil
}

// exportBatch packs the spans of one process by their measured sizes and sends
// the packets.
func (o *owner) exportBatch(ctx context.Context, b batch) error {
	overhead, err := o.enc.shrinkProcess(ctx, b.process, o.maxPacket)
	if err != nil {
		return o.drop(reasonSendFailed, len(b.spans), err)
	}
	budget := o.maxPacket - overhead
	spans, sizes, errs := o.measure(ctx, b.spans, budget)
	begin := 0
	for _, end := range split(sizes, budget) {
		if err := ctx.Err(); err != nil {
			return errors.Join(errs, o.drop(reasonCanceled, len(spans)-begin, context.Cause(ctx)))
		}
		errs = errors.Join(errs, o.sendPacket(ctx, b.process, spans[begin:end]))
		begin = end
	}
	return errs
}

// measure returns the spans that fit a packet and their sizes. One that does
// not is shrunk, and dropped when even that is not enough.
func (o *owner) measure(ctx context.Context, spans []*jaeger.Span, budget int) ([]*jaeger.Span, []int, error) {
	var errs error
	kept := make([]*jaeger.Span, 0, len(spans))
	sizes := make([]int, 0, len(spans))
	for _, s := range spans {
		n, err := o.enc.size(ctx, s)
		if err == nil && n > budget {
			var fits bool
			if fits, err = o.enc.shrink(ctx, s, budget); err == nil && !fits {
				errs = errors.Join(errs, o.drop(reasonTooLarge, 1, fmt.Errorf("span %.64q needs %d bytes of a packet's %d", s.OperationName, n, budget)))
				continue
			}
			if err == nil {
				o.metrics.truncated.Inc()
				n, err = o.enc.size(ctx, s)
			}
		}
		if err != nil {
			errs = errors.Join(errs, o.drop(reasonSendFailed, 1, err))
			continue
		}
		kept, sizes = append(kept, s), append(sizes, n)
	}
	return kept, sizes, errs
}

// sendPacket writes one datagram.
func (o *owner) sendPacket(ctx context.Context, p *jaeger.Process, spans []*jaeger.Span) error {
	if !o.addr.IsValid() {
		return o.drop(reasonUnresolved, len(spans), errUnresolved)
	}
	seqNo := o.seqNo + 1
	stats := o.stats
	packet, err := o.enc.packet(ctx, &jaeger.Batch{Process: p, Spans: spans, SeqNo: &seqNo, Stats: &stats})
	if err != nil {
		return o.drop(reasonSendFailed, len(spans), err)
	}
	if len(packet) > o.maxPacket {
		// The limit was lowered after these spans were packed.
		if half := len(spans) / 2; half > 0 {
			return errors.Join(o.sendPacket(ctx, p, spans[:half]), o.sendPacket(ctx, p, spans[half:]))
		}
		return o.drop(reasonTooLarge, len(spans), fmt.Errorf("a packet of %d bytes is over the limit of %d", len(packet), o.maxPacket))
	}
	o.seqNo = seqNo

	var refused error
	if err = o.write(packet); errors.Is(err, syscall.ECONNREFUSED) {
		// The report is about the packet before; this one was not tried.
		refused = o.drop(reasonRefused, o.unconfirmed, err)
		o.askAddress()
		err = o.write(packet)
	}
	switch {
	case errors.Is(err, syscall.EMSGSIZE) && o.maxPacket > minPacketSize:
		// Some systems take less than the limit (macOS 9216 bytes by default).
		// Packing again for half of it settles on a size that passes.
		o.maxPacket = max(o.maxPacket/2, minPacketSize)
		o.log.Warn("the system refuses datagrams of this size; sending smaller ones", "bytes", len(packet), "limit", o.maxPacket)
		return errors.Join(refused, o.exportBatch(ctx, batch{process: p, spans: spans}))
	case err != nil:
		o.hangUp()
		o.askAddress()
		return errors.Join(refused, o.drop(reasonSendFailed, len(spans), err))
	}
	o.unconfirmed = len(spans)
	o.metrics.packets.Inc()
	o.metrics.sent.Add(float64(len(spans)))
	return refused
}

// write opens the socket when there is none and writes the packet.
func (o *owner) write(packet []byte) error {
	if o.conn == nil {
		conn, err := o.dial(netip.AddrPortFrom(o.addr, o.port), o.maxPacket)
		if err != nil {
			return fmt.Errorf("opening a socket to the Jaeger agent: %w", err)
		}
		o.conn = conn
	}
	if _, err := o.conn.Write(packet); err != nil {
		return fmt.Errorf("writing to the Jaeger agent: %w", err)
	}
	return nil
}

// dialUDP opens a connected socket, on which the kernel reports a closed port.
func dialUDP(to netip.AddrPort, sendBuffer int) (io.WriteCloser, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	// A datagram bigger than the send buffer is refused on some systems.
	if err := conn.SetWriteBuffer(sendBuffer); err != nil {
		return nil, errors.Join(fmt.Errorf("setting the send buffer to %d bytes: %w", sendBuffer, err), conn.Close())
	}
	return conn, nil
}

// askAddress wakes the watcher, if there is one; a second request while one
// waits says nothing new.
func (o *owner) askAddress() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// drop counts spans that were lost and returns the error to report. Nothing
// lost is no error.
func (o *owner) drop(reason string, spans int, cause error) error {
	if spans == 0 {
		return nil
	}
	o.metrics.dropped.WithLabelValues(reason).Add(float64(spans))
	if reason == reasonTooLarge {
		o.stats.TooLargeDroppedSpans += int64(spans)
	} else {
		o.stats.FailedToEmitSpans += int64(spans)
	}
	return fmt.Errorf("dropped %d spans (%s): %w", spans, reason, cause)
}
