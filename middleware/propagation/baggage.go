package propagation

import "strings"

// Limits of the W3C Baggage specification, section 3.3.2.
const (
	maxBaggageBytes   = 8192
	maxBaggageMembers = 64
)

// filterBaggage joins the lines of a baggage header, keeping the members with
// allowed keys as they are, up to the specification's limits. Malformed and
// excess members are left out, and counted as one drop of each kind.
func (c *Config) filterBaggage(lines []string) string {
	var (
		b                strings.Builder
		n                int
		tooMuch, invalid bool
	)
	for _, line := range lines {
		for more := line != ""; more; {
			var m string
			m, line, more = strings.Cut(line, ",")
			m = strings.Trim(m, " \t")
			key, ok := baggageKey(m)
			switch {
			case m == "":
			case !ok:
				invalid = true
			case !c.baggageAll && !c.baggage[key]:
			case n == maxBaggageMembers || b.Len()+1+len(m) > maxBaggageBytes:
				tooMuch = true
			default:
				if n > 0 {
					b.WriteByte(',')
				}
				b.WriteString(m)
				n++
			}
		}
	}
	if invalid {
		c.drop(HeaderBaggage, DropInvalid)
	}
	if tooMuch {
		c.drop(HeaderBaggage, DropTotalTooLarge)
	}
	return b.String()
}

// baggageKey is the key of a list member, when the member is well formed:
// key "=" value *( ";" property ), all of it printable ASCII.
func baggageKey(m string) (string, bool) {
	key, value, ok := strings.Cut(m, "=")
	key = strings.TrimRight(key, " \t")
	if !ok || !isToken(key) {
		return "", false
	}
	for i := range len(value) {
		if c := value[i]; (c < ' ' && c != '\t') || c > '~' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return key, true
}
