package outlier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// Reason is why something could not be read, the label "reason" of
// canary_outlier_scrape_errors_total.
type Reason string

// The reasons.
const (
	// ReasonTimeout: no complete answer in time.
	ReasonTimeout Reason = "timeout"
	// ReasonUnreachable: no connection, or one that broke.
	ReasonUnreachable Reason = "unreachable"
	// ReasonStatus: an HTTP status other than 200.
	ReasonStatus Reason = "status"
	// ReasonMalformed: an answer that is not what the endpoint should serve.
	ReasonMalformed Reason = "malformed"
	// ReasonTooLarge: an answer beyond the limits.
	ReasonTooLarge Reason = "too_large"
	// ReasonNoStats: a well-formed answer without any outlier statistics.
	ReasonNoStats Reason = "no_stats"
	// ReasonList: the proxies to read could not be listed, or there are none.
	ReasonList Reason = "list"
	// ReasonTargets: targets were invalid, or too many for per-object series.
	ReasonTargets Reason = "targets"
)

var reasons = []Reason{
	ReasonTimeout, ReasonUnreachable, ReasonStatus, ReasonMalformed,
	ReasonTooLarge, ReasonNoStats, ReasonList, ReasonTargets,
}

// ReadError is a failure to read, with its reason.
type ReadError struct {
	Reason Reason
	Err    error
}

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

func readErrorf(reason Reason, format string, args ...any) error {
	return &ReadError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// reasonOf classifies an error. What is no ReadError came from the network.
func reasonOf(err error) Reason {
	var re *ReadError
	var ne net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ReasonTimeout
	case errors.As(err, &re):
		return re.Reason
	case errors.As(err, &ne) && ne.Timeout():
		return ReasonTimeout
	default:
		return ReasonUnreachable
	}
}

// limitedReader fails with ReasonTooLarge once more than its limit was read,
// where io.LimitedReader would pretend that the body ended.
type limitedReader struct {
	r     io.Reader
	left  int64
	limit int64
}

func newLimitedReader(r io.Reader, limit int64) *limitedReader {
	return &limitedReader{r: r, left: limit, limit: limit}
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, readErrorf(ReasonTooLarge, "body is larger than %d bytes", l.limit)
	}
	// One byte more than is left tells a body of exactly the limit from a
	// longer one.
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return 0, readErrorf(ReasonTooLarge, "body is larger than %d bytes", l.limit)
	}
	return n, err
}
