package middleware

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// The values of error.type that are not a status code or a Go type.
const (
	errCanceled   = "context_canceled"
	errDeadline   = "context_deadline_exceeded"
	errAborted    = "response_aborted"
	errGoexit     = "goexit"
	errTimeout    = "timeout"
	errDNS        = "dns_error"
	errRefused    = "connection_refused"
	errReset      = "connection_reset"
	errClosed     = "connection_closed"
	errTLS        = "tls_error"
	panicTypeNone = "panic"
)

// ErrorTyper is implemented by errors that name themselves in error.type. The
// name must come from a small fixed set.
type ErrorTyper interface {
	error
	ErrorType() string
}

// outcome is how a request ended: the status that was sent or received (0 for
// none), the value of error.type ("" for none) and whether the span's status
// is Error.
type outcome struct {
	status    int
	errorType string
	failed    bool
}

// ending is what the server knows when a handler is done.
type ending struct {
	status   int  // what was sent, 0 for nothing
	started  bool // whether the handler wrote anything
	returned bool // false when it panicked or left by runtime.Goexit
	panicked any
	gone     bool // whether the client had left
}

// serverOutcome judges a handled request.
func serverOutcome(e ending) outcome {
	switch {
	case e.returned:
		if !e.started && !e.gone {
			// net/http sends it for a handler that wrote nothing.
			return outcome{status: http.StatusOK}
		}
		if e.status >= 500 {
			return outcome{e.status, statusText(e.status), true}
		}
		if e.gone {
			// The client's doing, not the server's failure.
			return outcome{status: e.status, errorType: errCanceled}
		}
		return outcome{status: e.status}
	case e.panicked == nil:
		return outcome{e.status, errGoexit, true}
	case isAbort(e.panicked):
		if e.gone {
			return outcome{status: e.status, errorType: errCanceled}
		}
		return outcome{e.status, errAborted, true}
	}
	status := e.status
	if !e.started {
		status = http.StatusInternalServerError
	}
	return outcome{status, panicType(e.panicked), true}
}

// isAbort reports whether a panic is the one net/http keeps quiet about. It
// compares as net/http does.
func isAbort(v any) bool { return v == http.ErrAbortHandler }

// panicType names a panic by the type of its value.
func panicType(v any) string {
	if err, ok := v.(error); ok {
		return typeName(err)
	}
	return panicTypeNone
}

// contextErr is how a context ended. A deadline that has passed counts even
// when the context has not noticed: http.Client.Timeout cancels requests by a
// timer of its own, which may be first and whose error does not say why.
func contextErr(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// clientOutcome judges an exchange of a client: err is RoundTrip's or that of
// reading the body, ctxErr the request context's.
func clientOutcome(status int, err, ctxErr error) outcome {
	switch {
	case err == nil && status >= 400:
		return outcome{status, statusText(status), true}
	case err == nil:
		return outcome{status: status}
	case errors.Is(ctxErr, context.DeadlineExceeded):
		return outcome{status, errDeadline, true}
	case errors.Is(err, context.Canceled) || errors.Is(ctxErr, context.Canceled):
		// The caller changed its mind; nothing failed.
		return outcome{status: status, errorType: errCanceled}
	}
	return outcome{status, errorType(err), true}
}

// errorType names an error in few words: the first that fits of its own
// name, the usual network failures, and its Go type.
func errorType(err error) string {
	var (
		typed   ErrorTyper
		dns     *net.DNSError
		netErr  net.Error
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		record  tls.RecordHeaderError
		alert   tls.AlertError
	)
	switch {
	case errors.As(err, &typed):
		return typed.ErrorType()
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline
	case errors.As(err, &dns):
		return errDNS
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return errTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errReset
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &record), errors.As(err, &alert):
		return errTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return errClosed
	}
	return typeName(err)
}

// typeName is the Go type of the innermost error.
func typeName(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}

// statusNames are the codes that occur in error.type.
var statusNames = func() (names [600]string) {
	for i := 400; i < len(names); i++ {
		names[i] = strconv.Itoa(i)
	}
	return names
}()

func statusText(status int) string {
	if status >= 400 && status < len(statusNames) {
		return statusNames[status]
	}
	return strconv.Itoa(status)
}
