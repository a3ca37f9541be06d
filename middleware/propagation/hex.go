package propagation

// notHex marks a byte of the nibble tables that is no digit. Its high bits
// survive or-ing with other nibbles, so one test at the end of a run suffices.
const notHex = 0xf0

// lowerNibble holds the value of 0-9a-f, anyNibble that of A-F as well.
var lowerNibble, anyNibble = func() (lower, either [256]byte) {
	for c := range lower {
		lower[c], either[c] = notHex, notHex
	}
	for i, c := range []byte("0123456789abcdef") {
		lower[c], either[c] = byte(i), byte(i)
	}
	for i, c := range []byte("ABCDEF") {
		either[c] = byte(10 + i)
	}
	return lower, either
}()

// parseHex fills dst from exactly 2*len(dst) digits and reports whether all
// were digits. dst holds rubbish when it was not.
func parseHex(dst []byte, s string, nibble *[256]byte) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	var bad byte
	for i := range dst {
		hi, lo := nibble[s[2*i]], nibble[s[2*i+1]]
		bad |= hi | lo
		dst[i] = hi<<4 | lo&0x0f
	}
	return bad&notHex == 0
}

const hexDigits = "0123456789abcdef"

func appendHex(b, id []byte) []byte {
	for _, c := range id {
		b = append(b, hexDigits[c>>4], hexDigits[c&0x0f])
	}
	return b
}
