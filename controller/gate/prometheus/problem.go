package prometheus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// The results of a query, the label values of canary_gate_query_duration_seconds.
const (
	resultSuccess = "success"
	resultNoData  = "no_data"
	resultTimeout = "timeout"
	resultError   = "error"
)

// explain says how a query failed and in which words, which hold neither the URL nor
// credentials.
func explain(err error, timeout time.Duration) (result, text string) {
	var apiErr *promv1.Error
	if errors.As(err, &apiErr) {
		return explainAPI(apiErr)
	}
	var urlErr *url.Error
	for errors.As(err, &urlErr) {
		// Its text begins with the URL.
		err = urlErr.Err
	}
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout() {
		return resultTimeout, fmt.Sprintf("no answer in %s", timeout)
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return resultError, clip("the server's certificate is not accepted: " + certificate.Err.Error())
	}
	return resultError, clip(err.Error())
}

// explainAPI is for what the server, or something in front of it, answered. Only errors
// that the API of Prometheus describes are repeated: anything else might be a page of
// whatever else listens there.
func explainAPI(err *promv1.Error) (result, text string) {
	kind, message := err.Type, err.Msg
	var body struct {
		ErrorType promv1.ErrorType
		Error     string
	}
	if err.Detail != "" && json.Unmarshal([]byte(err.Detail), &body) == nil && body.ErrorType != "" {
		kind, message = body.ErrorType, body.Error
	}
	switch kind {
	case promv1.ErrTimeout:
		return resultTimeout, clip("timeout: " + message)
	case promv1.ErrServer, promv1.ErrClient, promv1.ErrBadResponse:
		if code, ok := statusCode(message); ok {
			if code/100 == 3 {
				return resultError, fmt.Sprintf("the answer is a redirect (%d), which is not followed", code)
			}
			return resultError, strings.TrimSpace(fmt.Sprintf("the answer is %d %s", code, http.StatusText(code)))
		}
		if message == `unexpected value type "string"` {
			return resultError, "the query returns a string, it must return a number"
		}
		return resultError, "the answer is not one of Prometheus's API"
	}
	return resultError, clip(string(kind) + ": " + message)
}

// statusCode is the number at the end of a message such as "server error: 503".
func statusCode(message string) (int, bool) {
	code, err := strconv.Atoi(message[strings.LastIndexByte(message, ' ')+1:])
	return code, err == nil && code >= 100 && code <= 599
}
