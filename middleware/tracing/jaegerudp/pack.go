//lint:file-ignore SA1019 The thrift of jaeger-client-go is frozen, and its other constructor needs a configuration it cannot share.

package jaegerudp

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/uber/jaeger-client-go/thrift"
	"github.com/uber/jaeger-client-go/thrift-gen/agent"
	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
)

// batch is what one process reports: the unit a packet is made from.
type batch struct {
	process *jaeger.Process
	spans   []*jaeger.Span
}

// encoder serialises into one reused buffer. It belongs to a single goroutine.
type encoder struct {
	buf    *thrift.TMemoryBuffer
	proto  thrift.TProtocol
	client *agent.AgentClient
}

func newEncoder(capacity int) *encoder {
	buf := thrift.NewTMemoryBufferLen(capacity)
	factory := thrift.NewTCompactProtocolFactory()
	return &encoder{
		buf:    buf,
		proto:  factory.GetProtocol(buf),
		client: agent.NewAgentClientFactory(buf, factory),
	}
}

// packet serialises a one-way Agent.emitBatch call. The bytes are valid until
// the next call of any method.
func (e *encoder) packet(ctx context.Context, b *jaeger.Batch) ([]byte, error) {
	e.buf.Reset()
	if err := e.client.EmitBatch(ctx, b); err != nil {
		return nil, fmt.Errorf("serialising a batch of %d spans: %w", len(b.Spans), err)
	}
	return e.buf.Bytes(), nil
}

// size returns how many bytes v takes inside a packet. A struct in the compact
// protocol does not depend on what surrounds it.
func (e *encoder) size(ctx context.Context, v thrift.TStruct) (int, error) {
	e.buf.Reset()
	if err := v.Write(ctx, e.proto); err != nil {
		return 0, fmt.Errorf("measuring %T: %w", v, err)
	}
	return e.buf.Len(), nil
}

// slack is what a packet's envelope can grow by between being measured empty
// and being sent: five bytes for the varint of the message's sequence number
// and five for the length of the span list.
const slack = 10

// overhead returns the most bytes a packet of this process takes beside its
// spans: an empty batch with every counter at its widest, and the slack.
func (e *encoder) overhead(ctx context.Context, p *jaeger.Process) (int, error) {
	widest := int64(math.MinInt64)
	packet, err := e.packet(ctx, &jaeger.Batch{
		Process: p,
		Spans:   []*jaeger.Span{},
		SeqNo:   &widest,
		Stats: &jaeger.ClientStats{
			FullQueueDroppedSpans: widest,
			TooLargeDroppedSpans:  widest,
			FailedToEmitSpans:     widest,
		},
	})
	if err != nil {
		return 0, err
	}
	return len(packet) + slack, nil
}

// split cuts consecutive sizes into groups that each sum to at most budget and
// returns the end index of every group. A size over the budget gets a group of
// its own; the caller has to have shrunk or dropped it.
func split(sizes []int, budget int) []int {
	var ends []int
	sum := 0
	for i, size := range sizes {
		if i > 0 && sum+size > budget {
			ends = append(ends, i)
			sum = 0
		}
		sum += size
	}
	if len(sizes) > 0 {
		ends = append(ends, len(sizes))
	}
	return ends
}

// truncation is what shrink took off a span.
type truncation struct {
	events, links, attributes int
}

// shrink removes what makes a span too big for one packet, least valuable
// first: its logs, then its links, then its tags from the largest down, each
// counted in the tag the OpenTelemetry specification names for it. It reports
// whether the result fits. Without a tag left a span is about 60 bytes and its
// name.
func (e *encoder) shrink(ctx context.Context, s *jaeger.Span, limit int) (bool, error) {
	var cut truncation
	kept := s.Tags

	steps := []func() bool{
		func() bool { cut.events = len(s.Logs); s.Logs = nil; return cut.events > 0 },
		func() bool { cut.links = len(s.References); s.References = nil; return cut.links > 0 },
	}
	for _, step := range steps {
		if !step() {
			continue
		}
		s.Tags = cut.tagged(kept)
		if n, err := e.size(ctx, s); err != nil || n <= limit {
			return err == nil, err
		}
	}

	sizes := make(map[*jaeger.Tag]int, len(kept))
	for _, t := range kept {
		n, err := e.size(ctx, t)
		if err != nil {
			return false, err
		}
		sizes[t] = n
	}
	bySize := slices.Clone(kept)
	slices.SortStableFunc(bySize, func(a, b *jaeger.Tag) int { return sizes[b] - sizes[a] })
	for _, largest := range bySize {
		kept = slices.DeleteFunc(slices.Clone(kept), func(t *jaeger.Tag) bool { return t == largest })
		cut.attributes++
		s.Tags = cut.tagged(kept)
		if n, err := e.size(ctx, s); err != nil || n <= limit {
			return err == nil, err
		}
	}
	return false, nil
}

// tagged returns the kept tags and those that say what was cut, added to what
// the SDK had already dropped.
func (c truncation) tagged(kept []*jaeger.Tag) []*jaeger.Tag {
	out := make([]*jaeger.Tag, 0, len(kept)+3)
	counts := map[string]int{
		tagDroppedEvents: c.events, tagDroppedLinks: c.links, tagDroppedAttributes: c.attributes,
	}
	for _, t := range kept {
		if _, counted := counts[t.Key]; counted && t.VLong != nil {
			counts[t.Key] += int(*t.VLong)
			continue
		}
		out = append(out, t)
	}
	for _, key := range []string{tagDroppedAttributes, tagDroppedEvents, tagDroppedLinks} {
		out = appendCount(out, key, counts[key])
	}
	return out
}

// shrinkProcess drops the largest process tags until the packet's envelope
// leaves at least half of a packet for spans.
func (e *encoder) shrinkProcess(ctx context.Context, p *jaeger.Process, maxPacket int) (int, error) {
	over, err := e.overhead(ctx, p)
	for err == nil && over > maxPacket/2 && len(p.Tags) > 0 {
		largest, at := -1, 0
		for i, t := range p.Tags {
			n, sizeErr := e.size(ctx, t)
			if sizeErr != nil {
				return 0, sizeErr
			}
			if n > largest {
				largest, at = n, i
			}
		}
		p.Tags = slices.Delete(slices.Clone(p.Tags), at, at+1)
		over, err = e.overhead(ctx, p)
	}
	return over, err
}
