package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxMethods bounds the label rpc_method. A server's interceptors see only
	// registered methods, so the bound matters to proxies alone.
	maxMethods = 500
	// otherMethod is what the conventions call a method that is not counted
	// on its own.
	otherMethod = "_OTHER"
)

// buckets are those the OpenTelemetry conventions advise for call durations,
// in seconds.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// codeNames are the values of rpc_response_status_code, as in the gRPC
// specification.
var codeNames = [...]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

// initial are the codes every method's series exist for from the start:
// success and those the conventions count as a server's errors.
var initial = []codes.Code{
	codes.OK, codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss,
}

// codeName maps an error to the label's value. Statuses with a code outside
// the specification are UNKNOWN, as a peer would read them.
func codeName(err error) string {
	code := status.FromContextError(err).Code()
	if s, ok := status.FromError(err); ok {
		code = s.Code()
	}
	if int(code) < len(codeNames) {
		return codeNames[code]
	}
	return codeNames[codes.Unknown]
}

// metrics are the durations of one side, counted by method and status.
type metrics struct {
	duration *prometheus.HistogramVec

	mu    sync.RWMutex
	known map[string]map[string]prometheus.Observer // full method, status name
}

func newMetrics(reg prometheus.Registerer, s side) (*metrics, error) {
	name, help := "rpc_server_call_duration_seconds", "Duration of gRPC calls served, by method and status."
	if s == clientSide {
		name, help = "rpc_client_call_duration_seconds", "Duration of gRPC calls made, by method and status."
	}
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"rpc_method", "rpc_response_status_code"}),
		known: map[string]map[string]prometheus.Observer{},
	}
	if reg == nil {
		return m, nil
	}
	err := reg.Register(m.duration)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, same := already.ExistingCollector.(*prometheus.HistogramVec); same {
			m.duration, err = existing, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("grpc: registering metrics: %w", err)
	}
	return m, nil
}

// init creates the series of one method.
func (m *metrics) init(fullMethod string) {
	for _, c := range initial {
		m.observer(fullMethod, codeNames[c])
	}
}

// start begins a call; the returned function records its end.
func (m *metrics) start(ctx context.Context, fullMethod string) func(error) {
	begin := time.Now()
	return func(err error) {
		o := m.observer(fullMethod, codeName(err))
		took := time.Since(begin).Seconds()
		// The exemplar is the server's own span. A client's is made below its
		// interceptors; its trace is the same.
		sc := trace.SpanContextFromContext(ctx)
		if eo, ok := o.(prometheus.ExemplarObserver); ok && sc.IsSampled() {
			eo.ObserveWithExemplar(took, prometheus.Labels{"trace_id": sc.TraceID().String()})
			return
		}
		o.Observe(took)
	}
}

// observer returns the cached series, and makes it when the bound allows.
func (m *metrics) observer(fullMethod, code string) prometheus.Observer {
	m.mu.RLock()
	o, ok := m.known[fullMethod][code]
	m.mu.RUnlock()
	if ok {
		return o
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	byCode, ok := m.known[fullMethod]
	if !ok {
		if len(m.known) >= maxMethods {
			fullMethod = otherMethod
		}
		if byCode = m.known[fullMethod]; byCode == nil {
			byCode = map[string]prometheus.Observer{}
			m.known[fullMethod] = byCode
		}
	}
	if o, ok := byCode[code]; ok {
		return o
	}
	// The conventions write the method without the leading slash.
	o = m.duration.WithLabelValues(strings.ToValidUTF8(strings.TrimPrefix(fullMethod, "/"), "\uFFFD"), code)
	byCode[code] = o
	return o
}
