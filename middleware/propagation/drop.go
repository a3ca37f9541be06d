package propagation

// DropReason says why a header on the allowlist was not forwarded.
type DropReason uint8

// The reasons to drop a header.
const (
	// DropInvalid is a control character: CR, LF, NUL and the like, which
	// would make net/http refuse the whole outbound request.
	DropInvalid DropReason = iota
	// DropNotUTF8 is a value that is not valid UTF-8.
	DropNotUTF8
	// DropTooLarge is a value over the limit for one header.
	DropTooLarge
	// DropTotalTooLarge is a value that does not fit under the limit for all.
	DropTotalTooLarge
	// DropNotASCII is a value gRPC metadata cannot carry.
	DropNotASCII
	// DropBadBase64 is a -bin header that does not decode.
	DropBadBase64
	numDropReasons
)

var dropReasonNames = [numDropReasons]string{
	DropInvalid:       "invalid",
	DropNotUTF8:       "not_utf8",
	DropTooLarge:      "too_large",
	DropTotalTooLarge: "total_too_large",
	DropNotASCII:      "not_ascii",
	DropBadBase64:     "bad_base64",
}

// String is the reason as a metric label.
func (r DropReason) String() string {
	if r >= numDropReasons {
		return "unknown"
	}
	return dropReasonNames[r]
}

// DropReasons are all reasons, for initialising a counter.
func DropReasons() []DropReason {
	reasons := make([]DropReason, numDropReasons)
	for i := range reasons {
		reasons[i] = DropReason(i)
	}
	return reasons
}
