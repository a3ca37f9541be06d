package propagation

import (
	"slices"
	"strings"
)

const (
	// maxTraceStateMembers is the specification's limit on list members.
	maxTraceStateMembers = 32
	// MaxTraceState is the length in bytes up to which a tracestate is carried
	// whole. A longer one loses members as the specification says: those over
	// 128 characters first, then the last ones.
	MaxTraceState = 8 << 10
	// bigTraceStateMember is the length over which a member goes first.
	bigTraceStateMember = 128
	maxTraceStateText   = 256 // of a key and of a value
)

// cleanTraceState joins the lines of a tracestate in order, without empty
// members and the white space around members. It returns "" when any member is
// malformed or there are more than 32. Members with the same key are kept as
// they are. One line that is clean already is returned without copying.
func cleanTraceState(lines []string) string {
	var (
		members [maxTraceStateMembers]string
		n, size int
	)
	for _, line := range lines {
		for more := line != ""; more; {
			var m string
			m, line, more = strings.Cut(line, ",")
			m = strings.Trim(m, " \t")
			if m == "" {
				continue
			}
			if n == len(members) || !validTraceStateMember(m) {
				return ""
			}
			members[n] = m
			n++
			size += len(m) + 1
		}
	}
	switch {
	case n == 0:
		return ""
	case len(lines) == 1 && size-1 == len(lines[0]) && size-1 <= MaxTraceState:
		return lines[0]
	}
	return strings.Join(truncateTraceState(members[:n], MaxTraceState), ",")
}

// truncateTraceState removes members until the list fits into limit bytes.
func truncateTraceState(members []string, limit int) []string {
	size := -1
	for _, m := range members {
		size += len(m) + 1
	}
	for i := len(members) - 1; i >= 0 && size > limit; i-- {
		if len(members[i]) > bigTraceStateMember {
			size -= len(members[i]) + 1
			members = slices.Delete(members, i, i+1)
		}
	}
	for size > limit && len(members) > 0 {
		last := len(members) - 1
		size -= len(members[last]) + 1
		members = members[:last]
	}
	return members
}

// validTraceStateMember checks key "=" value by the level 2 grammar. m has no
// white space around it.
func validTraceStateMember(m string) bool {
	key, value, ok := strings.Cut(m, "=")
	if !ok || len(key) == 0 || len(key) > maxTraceStateText || len(value) == 0 || len(value) > maxTraceStateText {
		return false
	}
	if !isLowerAlphaNum(key[0]) {
		return false
	}
	for i := 1; i < len(key); i++ {
		switch c := key[i]; {
		case isLowerAlphaNum(c), c == '_', c == '-', c == '*', c == '/', c == '@':
		default:
			return false
		}
	}
	for i := range len(value) {
		// The comma cannot occur: members were split at it.
		if c := value[i]; c < 0x20 || c > 0x7e || c == '=' {
			return false
		}
	}
	return true
}

func isLowerAlphaNum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
