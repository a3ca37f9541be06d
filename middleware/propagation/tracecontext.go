package propagation

import "strings"

const (
	// traceparentLen is the length of a version 00 traceparent.
	traceparentLen = 2 + 1 + 32 + 1 + 16 + 1 + 2

	flagSampled = 0x01
	flagRandom  = 0x02
)

// parseTraceparent reads one traceparent header. Version 00 must have exactly
// its four fields; a higher version may add more after another dash. Flag bits
// other than sampled and random have no meaning yet and are not kept.
func parseTraceparent(v string, id *identity) bool {
	*id = identity{}
	v = strings.Trim(v, " \t")
	if len(v) < traceparentLen || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return false
	}
	var version, flags [1]byte
	if !parseHex(version[:], v[:2], &lowerNibble) || version[0] == 0xff {
		return false
	}
	if len(v) > traceparentLen && (version[0] == 0 || v[traceparentLen] != '-') {
		return false
	}
	if !id.parseTraceID(v[3:35], &lowerNibble) || !id.parseSpanID(v[36:52], &lowerNibble) ||
		!parseHex(flags[:], v[53:55], &lowerNibble) {
		return false
	}
	id.sampling = Deny
	if flags[0]&flagSampled != 0 {
		id.sampling = Accept
	}
	id.random = flags[0]&flagRandom != 0
	return true
}

// appendTraceparent appends the version 00 traceparent of s, which must have
// ids. A deferred decision is written as not sampled, the default the
// specification gives for it.
func appendTraceparent(b []byte, s *State) []byte {
	var flags byte
	if s.Sampled() {
		flags |= flagSampled
	}
	if s.Random {
		flags |= flagRandom
	}
	b = append(b, "00-"...)
	b = appendHex(b, s.TraceID[:])
	b = append(b, '-')
	b = appendHex(b, s.SpanID[:])
	return append(b, '-', '0', hexDigits[flags])
}
