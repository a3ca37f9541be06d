package propagation

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"
)

// capture collects the allowlisted headers of a request into s.Forwarded.
func (c *Config) capture(s *State, src *source) {
	g := gatherer{config: c, left: c.maxTotal}
	for i := range c.forward {
		f := &c.forward[i]
		if f.binary && src.carrier != nil {
			// Such a carrier may hold text or bytes, and does not tell.
			continue
		}
		name := f.canonical
		if src.names == &lowerNames {
			name = f.lower
		}
		values := src.all(name)
		if len(values) == 0 {
			continue
		}
		g.expect(len(c.forward) - i)
		for _, v := range values {
			if f.binary && src.names == &lowerNames {
				// gRPC has decoded it; a State keeps the text HTTP carries.
				if len(v) > c.maxHeader {
					c.drop(f.canonical, DropTooLarge)
					continue
				}
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			g.add(f.canonical, v)
		}
	}
	for _, fk := range formatKeys {
		if !c.opaque(s, fk.format) {
			continue
		}
		for _, k := range fk.keys {
			for _, v := range src.all(src.names[k]) {
				g.expect(4)
				g.add(canonicalNames[k], v)
			}
		}
	}
	s.Forwarded = g.fields
}

// opaque reports whether headers of trace format f are forwarded as text.
func (c *Config) opaque(s *State, f Format) bool {
	if f == TraceContext && c.opaqueW3C && c.inject&f == 0 && !c.passthrough {
		return !(c.mirror && s.Seen&f != 0)
	}
	if !c.passthrough || family(s.Format)&f != 0 {
		return false
	}
	return s.Seen&f != 0 || f == TraceContext && c.opaqueW3C
}

// family is f with the other encoding of the same context.
func family(f Format) Format {
	if f&b3Family != 0 {
		return f | b3Family
	}
	return f
}

// gatherer collects fields within the limits.
type gatherer struct {
	config *Config
	fields []Field
	left   int
}

// expect makes room once, at the first header found.
func (g *gatherer) expect(n int) {
	if g.fields == nil {
		g.fields = make([]Field, 0, min(n, 4))
	}
}

func (g *gatherer) add(name, value string) {
	if reason, ok := checkHeaderValue(value, g.config.maxHeader); !ok {
		g.config.drop(name, reason)
		return
	}
	if len(value) > g.left {
		g.config.drop(name, DropTotalTooLarge)
		return
	}
	g.left -= len(value)
	g.fields = append(g.fields, Field{Name: name, Value: value})
}

func (c *Config) drop(name string, reason DropReason) {
	if c.onDrop != nil {
		c.onDrop(name, reason)
	}
}

// checkHeaderValue reports whether v can be sent as the value of an HTTP header
// (RFC 9110 section 5.5, and UTF-8 beyond ASCII) of at most limit bytes.
func checkHeaderValue(v string, limit int) (DropReason, bool) {
	if len(v) > limit {
		return DropTooLarge, false
	}
	var high byte
	for i := range len(v) {
		c := v[i]
		if c < ' ' && c != '\t' || c == 0x7f {
			return DropInvalid, false
		}
		high |= c
	}
	if high >= utf8.RuneSelf && !utf8.ValidString(v) {
		return DropNotUTF8, false
	}
	return 0, true
}

// printableASCII is what gRPC metadata that is not binary may hold.
func printableASCII(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return true
}

// decodeBinary undoes the base64 of one "-bin" header line, which may hold
// several values joined with commas, padded or not (gRPC over HTTP/2, "binary
// header").
func decodeBinary(v string) ([]string, bool) {
	values := make([]string, 0, 1)
	for part := range strings.SplitSeq(v, ",") {
		part = strings.TrimRight(strings.Trim(part, " \t"), "=")
		raw, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil {
			return nil, false
		}
		values = append(values, string(raw))
	}
	return values, true
}

// forwardable is the name to send a field under, and whether it may be sent.
// hint is where to look for it on the allowlist first, since captured fields
// come in its order. Names beyond the allowlist are those users put into the
// State themselves.
func (c *Config) forwardable(name string, hint *int) (forwardName, bool) {
	for i := *hint; i < len(c.forward); i++ {
		if c.forward[i].canonical == name {
			*hint = i
			return c.forward[i], true
		}
	}
	canonical := http.CanonicalHeaderKey(name)
	if !isToken(name) || hopHeaders[canonical] || (ownHeader(canonical) && canonical != name) {
		return forwardName{}, false
	}
	return newForwardName(canonical), true
}
