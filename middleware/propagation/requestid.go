package propagation

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// MaxRequestIDLen is the longest request id that is taken over, in bytes.
const MaxRequestIDLen = 128

// requestIDByte marks the bytes a request id may hold: what UUIDs, ULIDs,
// base64 and "host/number" ids are made of, and nothing that a log, a shell or
// a page would interpret.
var requestIDByte = func() (t [256]bool) {
	for c := range t {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
			t[c] = true
		}
	}
	for _, c := range []byte("-_.~:+/=@") {
		t[c] = true
	}
	return t
}()

// ValidRequestID reports whether s is 1 to [MaxRequestIDLen] characters out of
// ASCII letters, digits and -_.~:+/=@.
func ValidRequestID(s string) bool {
	if len(s) == 0 || len(s) > MaxRequestIDLen {
		return false
	}
	for i := range len(s) {
		if !requestIDByte[s[i]] {
			return false
		}
	}
	return true
}

// NewRequestID makes a random UUID (RFC 9562 version 4, 36 characters), the
// form Envoy gives x-request-id. rnd supplies 64 random bits a call; nil means
// math/rand/v2.
func NewRequestID(rnd func() uint64) string {
	if rnd == nil {
		rnd = rand.Uint64
	}
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], rnd())
	binary.BigEndian.PutUint64(u[8:], rnd())
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	var b [36]byte
	hex.Encode(b[0:8], u[0:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:36], u[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// ResolveRequestID is the rule for the request id: the inbound one when its
// sender is trusted and it is valid, else a new one.
func ResolveRequestID(inbound string, trusted bool, rnd func() uint64) (id string, generated bool) {
	if trusted && ValidRequestID(inbound) {
		return inbound, false
	}
	return NewRequestID(rnd), true
}
