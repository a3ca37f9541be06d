package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// shutdownTimeout is how long requests in progress may take at the end.
const shutdownTimeout = 5 * time.Second

// healthServer answers /healthz and /readyz.
type healthServer struct {
	listener net.Listener
	http     *http.Server
}

// newHealthServer listens from now on. ready says whether the process may be counted on
// to take over; a follower with filled caches is.
func newHealthServer(ctx context.Context, address string, ready func() bool) (*healthServer, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "caches are not filled yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving health on %s: %w", address, err)
	}
	return &healthServer{listener: listener, http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}, nil
}

// Run serves until ctx is done.
func (s *healthServer) Run(ctx context.Context) error {
	end := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = s.http.Shutdown(grace)
	})
	defer end()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving health on %s: %w", s.listener.Addr(), err)
	}
	return nil
}
