package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// shutdownTimeout is how long requests in progress may take at the end.
const shutdownTimeout = 5 * time.Second

// servers are the HTTP servers of this process.
type servers struct {
	list  []*http.Server
	group sync.WaitGroup
}

// serve starts the health and metrics servers. ready says whether the process may be
// counted on to take over; a follower with filled caches is.
func serve(ctx context.Context, o *options, ready func() bool, registry *prometheus.Registry) (*servers, error) {
	health := http.NewServeMux()
	health.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	health.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "caches are not filled yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	metrics := http.NewServeMux()
	metrics.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 30 * time.Second, ErrorHandling: promhttp.ContinueOnError,
	}))
	s := &servers{}
	for _, server := range []struct {
		what, address string
		handler       http.Handler
	}{{"health", o.healthAddr, health}, {"metrics", o.metricsAddr, metrics}} {
		if server.address == "" {
			continue
		}
		if err := s.start(ctx, server.what, server.address, server.handler); err != nil {
			s.close(ctx)
			return nil, err
		}
	}
	return s, nil
}

func (s *servers) start(ctx context.Context, what, address string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for %s on %s: %w", what, address, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	s.list = append(s.list, server)
	logger := klog.FromContext(ctx)
	logger.Info("Serving", "what", what, "address", listener.Addr().String())
	s.group.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "Server ended", "what", what)
		}
	})
	return nil
}

// close ends the servers and waits for them.
func (s *servers) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	for _, server := range s.list {
		if err := server.Shutdown(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Shutting a server down")
		}
	}
	s.group.Wait()
}
