package conformance

import (
	"net/http"
	"strings"
)

// Disagreement is a way in which we read input differently from a peer, on
// purpose. Why is in DISAGREEMENTS.md under its name.
type Disagreement struct {
	Name string
	// Applies reports whether the input, not the outcome alone, is of this
	// kind.
	Applies func(in http.Header, ours, theirs Reading) bool
	// Example shows that it exists; a test holds us to it.
	Example http.Header
}

// Compare returns the names of the fields in which two readings differ, among
// those both implementations keep.
func Compare(ours, theirs Reading, keeps Fields) []string {
	if theirs.Panicked != "" {
		return []string{"panic"}
	}
	if ours.Valid != theirs.Valid {
		return []string{"valid"}
	}
	var diff []string
	for _, f := range []struct {
		name         string
		ours, theirs string
		kept         bool
	}{
		{"trace id", ours.TraceID, theirs.TraceID, true},
		{"span id", ours.SpanID, theirs.SpanID, true},
		{"parent id", ours.ParentID, theirs.ParentID, keeps.Parent},
		{"decision", ours.Decision, theirs.Decision, true},
		{"tracestate", ours.TraceState, theirs.TraceState, keeps.TraceState},
		{"random", boolString(ours.Random), boolString(theirs.Random), keeps.Random},
	} {
		if f.kept && f.ours != f.theirs {
			diff = append(diff, f.name)
		}
	}
	return diff
}

func boolString(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// h makes headers from name, value pairs.
func h(pairs ...string) http.Header {
	m := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		m.Add(pairs[i], pairs[i+1])
	}
	return m
}

const (
	trace128 = "80f198ee56343ba864fe8b2a57d3eff7"
	trace64  = "64fe8b2a57d3eff7"
	spanID   = "e457b5a2e4d86bd1"
	parentID = "05e3ac9a4f6e3b90"
	ids128   = trace128 + "-" + spanID
)

// within reports whether s consists of characters of set only.
func within(s, set string) bool { return strings.Trim(s, set) == "" }

const (
	lowerHex = "0123456789abcdef"
	anyHex   = lowerHex + "ABCDEF"
)
