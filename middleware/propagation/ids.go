package propagation

import (
	"encoding/binary"

	"go.opentelemetry.io/otel/trace"
)

// newTraceID makes a random, valid trace id. All 128 bits are random, which is
// what lets NewRoot set the W3C random flag.
func newTraceID(rnd func() uint64) (id trace.TraceID) {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:8], rnd())
		binary.BigEndian.PutUint64(id[8:], rnd())
	}
	return id
}

func newSpanID(rnd func() uint64) (id trace.SpanID) {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rnd())
	}
	return id
}
