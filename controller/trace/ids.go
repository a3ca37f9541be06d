package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Sizes of ids in bytes, https://www.w3.org/TR/trace-context/#traceparent-header.
const (
	traceIDSize = 16
	spanIDSize  = 8
)

// IDs returns the trace of an attempt that begins now, in lower-case hexadecimal, for
// status.rollout.traceID and parentSpanID: those of traceparent, the value of the
// annotation [v1alpha1.AnnotationTraceparent], and otherwise a trace of its own, which
// depends on nothing but the Canary's UID and the attempt's id, start and retry.
//
// An error says why a traceparent that is not empty was ignored; the ids are good
// nevertheless.
func IDs(uid types.UID, rollout *v1alpha1.RolloutStatus, traceparent string) (traceID, parentSpanID string, ignored error) {
	if traceparent != "" {
		trace, parent, err := parseTraceparent(traceparent)
		if err == nil {
			return hex.EncodeToString(trace[:]), hex.EncodeToString(parent[:]), nil
		}
		ignored = fmt.Errorf("annotation %s: %w", v1alpha1.AnnotationTraceparent, err)
	}
	sum := hash("trace", string(uid), rollout.ID, instant(rollout.StartedAt.Time), rollout.Retry)
	return hex.EncodeToString(nonZero(sum[:traceIDSize])), "", ignored
}

// spanID returns the id of the span at a path, such as rollout or batch/2/apply. It tells
// apart the spans of every attempt that a trace may hold: a CI job may release several
// Canaries, and a retry continues the same trace again.
func spanID(trace []byte, uid types.UID, rollout *v1alpha1.RolloutStatus, path string) []byte {
	sum := hash("span", string(trace), string(uid), rollout.ID, instant(rollout.StartedAt.Time), path)
	return nonZero(sum[:spanIDSize])
}

// hash of parts, no part of which can pass for the end of another or the start of the next.
func hash(parts ...string) []byte {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// nonZero makes an id valid in the one case in 2^64 in which it is not.
func nonZero(id []byte) []byte {
	for _, b := range id {
		if b != 0 {
			return id
		}
	}
	id[len(id)-1] = 1
	return id
}

// parseTraceparent reads version 00 of the traceparent header of W3C Trace Context,
// https://www.w3.org/TR/trace-context/: 00-{trace id}-{parent id}-{flags}, all of it
// lower-case hexadecimal of fixed width. Nothing else is understood: what a later version
// means is not known, and a value that a person mistyped should be noticed.
func parseTraceparent(value string) (trace [traceIDSize]byte, parent [spanIDSize]byte, err error) {
	const layout = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	if len(value) != len(layout) {
		return trace, parent, fmt.Errorf("a traceparent has %d characters, such as %s; this one has %d", len(layout), layout, len(value))
	}
	for i := range len(layout) {
		c := value[i]
		switch {
		case layout[i] == '-':
			if c != '-' {
				return trace, parent, fmt.Errorf("character %d of a traceparent must be a dash", i+1)
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return trace, parent, fmt.Errorf("character %d of a traceparent must be one of 0-9 and a-f", i+1)
		}
	}
	if value[:2] != "00" {
		return trace, parent, fmt.Errorf("version %s of traceparent is not known, only 00", value[:2])
	}
	// The digits were checked above.
	_, _ = hex.Decode(trace[:], []byte(value[3:35]))
	_, _ = hex.Decode(parent[:], []byte(value[36:52]))
	switch {
	case trace == [traceIDSize]byte{}:
		return trace, parent, errors.New("the trace id of a traceparent must not be zero")
	case parent == [spanIDSize]byte{}:
		return trace, parent, errors.New("the parent id of a traceparent must not be zero")
	}
	return trace, parent, nil
}

// decodeID reads an id out of status: size bytes in hexadecimal, not all zero.
func decodeID(text string, size int) ([]byte, bool) {
	id, err := hex.DecodeString(text)
	if err != nil || len(id) != size {
		return nil, false
	}
	for _, b := range id {
		if b != 0 {
			return id, true
		}
	}
	return nil, false
}

// decodeTraceID also reads the 64-bit trace ids that B3 allows, as the 128-bit ids that
// they are the lower half of.
func decodeTraceID(text string) ([]byte, bool) {
	if short, ok := decodeID(text, spanIDSize); ok {
		return append(make([]byte, traceIDSize-spanIDSize), short...), true
	}
	return decodeID(text, traceIDSize)
}
