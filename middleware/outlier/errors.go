package outlier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
)

// OverflowReason is the limit of the connection pool that a request met.
type OverflowReason string

// The reasons, with the DestinationRule field that sets each limit.
const (
	// OverflowPendingRequests: http.http1MaxPendingRequests.
	OverflowPendingRequests OverflowReason = "pending_requests"
	// OverflowRequests: http.http2MaxRequests.
	OverflowRequests OverflowReason = "requests"
	// OverflowRetries: http.maxRetries.
	OverflowRetries OverflowReason = "retries"
	// OverflowConnections: tcp.maxConnections. It only appears in metrics: a
	// request that gets no connection of its own waits for one.
	OverflowConnections OverflowReason = "connections"
)

// overflowReasons lists every label value, so that metrics exist from the start.
var overflowReasons = []OverflowReason{OverflowPendingRequests, OverflowRequests, OverflowRetries, OverflowConnections}

// OverflowError is returned at once when a limit of the connection pool is
// reached. The request was not sent, except with OverflowRetries, where Err is
// why it would have been tried again.
type OverflowError struct {
	Cluster string
	Reason  OverflowReason
	Limit   int64
	Err     error
}

func (e *OverflowError) Error() string {
	s := fmt.Sprintf("outlier: cluster %s: overflow: %d %s already outstanding", e.Cluster, e.Limit, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the failure that would have been retried, if any.
func (e *OverflowError) Unwrap() error { return e.Err }

// ConnectError is a failure to connect to the endpoint that was chosen, after
// any retries on others. Nothing of the request was sent.
type ConnectError struct {
	Cluster  string
	Endpoint string
	Err      error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("outlier: cluster %s: connecting to endpoint %s: %v", e.Cluster, e.Endpoint, e.Err)
}

// Unwrap gives the error of the dialer or of the TLS handshake.
func (e *ConnectError) Unwrap() error { return e.Err }

var (
	// ErrNoHealthyEndpoint: there is no endpoint, or all are ejected and
	// minHealthPercent does not switch ejection off (Envoy's "no healthy
	// upstream").
	ErrNoHealthyEndpoint = errors.New("no healthy endpoint")
	// ErrClosed: the transport was closed.
	ErrClosed = errors.New("transport closed")
)

// localOriginCode is the status code that stands for a request without an
// answer: as in Envoy with splitExternalLocalOriginErrors off, a timeout counts
// as 504 and every other failure as 503.
func localOriginCode(err error) int {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout() {
		return http.StatusGatewayTimeout
	}
	return http.StatusServiceUnavailable
}
