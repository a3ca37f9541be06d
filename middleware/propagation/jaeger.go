package propagation

const (
	jaegerSampled = 0x01
	jaegerDebug   = 0x02
)

// parseUberTraceID reads "{trace}:{span}:{parent}:{flags}", with colons escaped
// as %3A as well, since Jaeger's clients write HTTP headers URL-encoded. Ids
// may be shorter than their width and are padded with zeros on the left. The
// deprecated parent field is optional in effect: "0" and rubbish mean none.
func parseUberTraceID(v string, id *identity) bool {
	*id = identity{}
	var f [4]string
	for i := range f {
		var sep int
		f[i], v, sep = cutColon(v)
		if last := i == len(f)-1; last != (sep == 0) {
			return false
		}
	}
	if len(f[0]) <= 16 {
		id.short = parsePadded(id.traceID[8:], f[0])
	}
	if !id.short && !parsePadded(id.traceID[:], f[0]) {
		return false
	}
	var flags [1]byte
	if !parsePadded(id.spanID[:], f[1]) || !parsePadded(flags[:], f[3]) || !id.hasIDs() {
		return false
	}
	if !parsePadded(id.parentID[:], f[2]) {
		id.parentID = [8]byte{}
	}
	switch flags[0] & (jaegerSampled | jaegerDebug) {
	case jaegerSampled | jaegerDebug:
		id.sampling = Debug
	case jaegerSampled:
		id.sampling = Accept
	default:
		// The debug bit counts only together with sampled.
		id.sampling = Deny
	}
	return true
}

// cutColon splits s at its first colon, escaped or not; sep is the length of
// what separated, 0 when nothing did.
func cutColon(s string) (before, after string, sep int) {
	for i := range len(s) {
		switch {
		case s[i] == ':':
			return s[:i], s[i+1:], 1
		case s[i] == '%' && len(s) >= i+3 && s[i+1] == '3' && (s[i+2] == 'A' || s[i+2] == 'a'):
			return s[:i], s[i+3:], 3
		}
	}
	return s, "", 0
}

// parsePadded reads 1 to 2*len(dst) digits of either case into the low end of
// dst.
func parsePadded(dst []byte, s string) bool {
	if len(s) == 0 || len(s) > 2*len(dst) {
		return false
	}
	clear(dst)
	for i := range len(s) {
		n := anyNibble[s[len(s)-1-i]]
		if n == notHex {
			return false
		}
		dst[len(dst)-1-i/2] |= n << (4 * (i % 2))
	}
	return true
}

// appendUberTraceID appends the uber-trace-id of s, which must have ids. Jaeger
// has no deferred decision, so that one is written as not sampled.
func appendUberTraceID(b []byte, s *State) []byte {
	b = s.appendTraceID(b)
	b = append(b, ':')
	b = appendHex(b, s.SpanID[:])
	b = append(b, ':')
	if s.ParentID.IsValid() {
		b = appendHex(b, s.ParentID[:])
	} else {
		b = append(b, '0')
	}
	var flags byte
	switch s.Sampling {
	case Accept:
		flags = jaegerSampled
	case Debug:
		flags = jaegerSampled | jaegerDebug
	}
	return append(b, ':', hexDigits[flags])
}
