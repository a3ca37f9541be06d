package fault

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// wait sleeps, or returns the context's error when the caller goes away first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HTTP applies faults before next.
func (i *Injector) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := i.decide()
		if wait(r.Context(), o.Wait) != nil {
			return
		}
		if o.Status != 0 {
			http.Error(w, "injected fault", o.Status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Unary applies faults to gRPC calls.
func (i *Injector) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	o := i.decide()
	if err := wait(ctx, o.Wait); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if o.Status != 0 {
		return nil, status.Error(grpcCode(o.Status), "injected fault")
	}
	return handler(ctx, req)
}

// grpcCode maps an HTTP status as the gRPC specification's
// http-grpc-status-mapping does, with 500 as INTERNAL.
func grpcCode(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusBadRequest, http.StatusInternalServerError:
		return codes.Internal
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.Unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	}
	return codes.Unknown
}

// maxBody is far above any settings.
const maxBody = 4 << 10

// ServeHTTP is the admin endpoint: GET shows the settings, PUT replaces them
// with the JSON of its body, DELETE makes the service healthy.
func (i *Injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		var s Settings
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		err := dec.Decode(&s)
		if err == nil && dec.Decode(new(any)) != io.EOF {
			err = errors.New("more than one JSON value")
		}
		if err != nil {
			http.Error(w, "fault settings: "+err.Error(), http.StatusBadRequest)
			return
		}
		i.Set(s)
	case http.MethodDelete:
		i.Set(Settings{})
	default:
		w.Header().Set("Allow", "GET, PUT, DELETE")
		http.Error(w, "use GET, PUT or DELETE", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client going away is all that can fail here.
	_ = json.NewEncoder(w).Encode(i.Settings())
}
