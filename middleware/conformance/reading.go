package conformance

import (
	"fmt"
	"strings"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// Reading is what one implementation makes of a request, in terms that all of
// them share.
type Reading struct {
	// Valid says there are ids, or a decision without ids.
	Valid bool
	// TraceID has 32 digits, whatever its width on the wire.
	TraceID, SpanID string
	// ParentID is empty for none, and for implementations that do not keep it.
	ParentID string
	// Decision is accept, deny, debug or defer.
	Decision string
	// TraceState is the list as the implementation writes it.
	TraceState string
	// Random is the W3C flag.
	Random bool
	// Panicked is what the implementation panicked with.
	Panicked string
}

// zeroID is how some implementations write no id.
const zeroID = "0000000000000000"

func pad(id string) string { return strings.Repeat("0", max(0, 32-len(id))) + id }

// catch runs read and turns a panic into a Reading.
func catch(read func() Reading) (r Reading) {
	defer func() {
		if p := recover(); p != nil {
			r = Reading{Panicked: fmt.Sprint(p)}
		}
	}()
	return read()
}

// fromState is the Reading of our own State.
func fromState(s propagation.State) Reading {
	if !s.HasIDs() {
		if s.Sampling == propagation.Defer {
			return Reading{}
		}
		return Reading{Valid: true, Decision: s.Sampling.String()}
	}
	r := Reading{
		Valid: true, TraceID: pad(s.TraceIDString()), SpanID: s.SpanID.String(),
		Decision: s.Sampling.String(), TraceState: s.TraceState, Random: s.Random,
	}
	if s.ParentID.IsValid() {
		r.ParentID = s.ParentID.String()
	}
	return r
}
