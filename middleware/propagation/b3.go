package propagation

import "strings"

// identity is what one format says: ids, decision, or both.
type identity struct {
	traceID  [16]byte
	spanID   [8]byte
	parentID [8]byte
	sampling Sampling
	short    bool
	random   bool
}

func (id *identity) hasIDs() bool {
	return id.traceID != [16]byte{} && id.spanID != [8]byte{}
}

// parseTraceID reads exactly 16 or 32 digits that are not all zero.
func (id *identity) parseTraceID(s string, nibble *[256]byte) bool {
	switch len(s) {
	case 32:
		id.short = false
		return parseHex(id.traceID[:], s, nibble) && id.traceID != [16]byte{}
	case 16:
		id.short = true
		return parseHex(id.traceID[8:], s, nibble) && id.traceID != [16]byte{}
	default:
		return false
	}
}

func (id *identity) parseSpanID(s string, nibble *[256]byte) bool {
	return parseHex(id.spanID[:], s, nibble) && id.spanID != [8]byte{}
}

// maxB3Single is the length of the longest legal value: 32-16-1-16 digits.
const maxB3Single = 32 + 1 + 16 + 1 + 1 + 1 + 16

// parseB3Single reads a b3 header: "{trace}-{span}[-{sampling}][-{parent}]" or
// "{sampling}" alone. It takes the value whole or not at all, because a value
// with a malformed tail may have been cut anywhere. A parent of zeros, which
// some senders write at the root, is no parent.
func parseB3Single(v string, nibble *[256]byte, id *identity) bool {
	*id = identity{}
	switch {
	case len(v) == 1:
		return id.parseB3Decision(v[0])
	case len(v) < 16+1+16 || len(v) > maxB3Single:
		return false
	}
	width := 16
	if v[16] != '-' {
		width = 32
	}
	if len(v) < width+1+16 || v[width] != '-' ||
		!id.parseTraceID(v[:width], nibble) || !id.parseSpanID(v[width+1:width+17], nibble) {
		return false
	}
	rest := v[width+17:]
	// Defer is the absence of the sampling field, so the parent may follow the
	// span id directly.
	if len(rest) == 2 || len(rest) == 2+17 {
		if rest[0] != '-' || !id.parseB3Decision(rest[1]) {
			return false
		}
		rest = rest[2:]
	}
	if len(rest) == 0 {
		return true
	}
	return len(rest) == 17 && rest[0] == '-' && parseHex(id.parentID[:], rest[1:], nibble)
}

func (id *identity) parseB3Decision(c byte) bool {
	switch c {
	case '0':
		id.sampling = Deny
	case '1':
		id.sampling = Accept
	case 'd':
		id.sampling = Debug
	default:
		return false
	}
	return true
}

// parseB3Multi reads the values of the X-B3-* headers, "" for an absent one.
// Ids are taken together or not at all, and with malformed ids the decision is
// refused too. A malformed optional header is as good as absent: the
// specification's own example is a proxy that sends "-" for no parent, and its
// cost was broken traces.
func parseB3Multi(traceID, spanID, parentID, sampled, flags string, nibble *[256]byte, id *identity) bool {
	*id = identity{}
	switch {
	case sampled == "1", len(sampled) == 4 && strings.EqualFold(sampled, "true"):
		id.sampling = Accept
	case sampled == "0", len(sampled) == 5 && strings.EqualFold(sampled, "false"):
		id.sampling = Deny
	}
	if flags == "1" {
		id.sampling = Debug
	}
	if traceID == "" && spanID == "" {
		return id.sampling != Defer
	}
	if !id.parseTraceID(traceID, nibble) || !id.parseSpanID(spanID, nibble) {
		return false
	}
	if parentID != "" && !parseHex(id.parentID[:], parentID, nibble) {
		id.parentID = [8]byte{}
	}
	return true
}

// appendB3Single appends the b3 header of s. A deferred decision is sent
// without the parent, because many readers take the third field to be the
// sampling state.
func appendB3Single(b []byte, s *State) []byte {
	if !s.HasIDs() {
		if s.Sampling == Defer {
			return b
		}
		return append(b, b3Decision[s.Sampling])
	}
	b = s.appendTraceID(b)
	b = append(b, '-')
	b = appendHex(b, s.SpanID[:])
	if s.Sampling == Defer {
		return b
	}
	b = append(b, '-', b3Decision[s.Sampling])
	if s.ParentID.IsValid() {
		b = append(b, '-')
		b = appendHex(b, s.ParentID[:])
	}
	return b
}

var b3Decision = [...]byte{Deny: '0', Accept: '1', Debug: 'd'}
