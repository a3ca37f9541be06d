package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Address to listen on, 127.0.0.1:8080.
	Address string
	// Path of the metrics, /metrics. Every other path gets 404.
	Path string
	// Handler serves the metrics; required. A *Handler is waited for.
	Handler http.Handler
	// TLS turns on HTTPS; plain HTTP if nil.
	TLS *TLSConfig
	// Auth decides who may scrape; everybody if nil. It needs TLS unless the
	// address is a loopback one, since tokens would cross the network readable.
	Auth *Auth
	// Registerer takes the metrics of certificate reloads; none if nil.
	Registerer prometheus.Registerer
	// Logger is the server's. Nothing is logged if nil.
	Logger *slog.Logger
}

// Server serves metrics.
type Server struct {
	logger      *slog.Logger
	listener    net.Listener
	http        *http.Server
	certificate *certificate
	handler     http.Handler
}

// shutdownTimeout bounds how long Run waits for scrapes after its context is
// done.
const shutdownTimeout = 5 * time.Second

// NewServer checks the configuration, reads the certificate and listens, so
// that a port in use is seen at once. Run serves; a Server that is never run
// must be closed.
func NewServer(c ServerConfig) (*Server, error) {
	c.Address = cmp.Or(c.Address, "127.0.0.1:8080")
	c.Path = cmp.Or(c.Path, "/metrics")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Handler == nil:
		return nil, errors.New("metrics server: no handler")
	case !strings.HasPrefix(c.Path, "/"):
		return nil, fmt.Errorf("metrics server: path %q must begin with /", c.Path)
	case c.Auth != nil && c.TLS == nil && !loopback(c.Address):
		return nil, fmt.Errorf("metrics server: authorisation on %s needs TLS, or bearer tokens would cross the network unencrypted", c.Address)
	}
	s := &Server{logger: c.Logger, handler: c.Handler}
	scrape := c.Handler
	if c.Auth != nil {
		scrape = c.Auth.Wrap(scrape)
	}
	mux := http.NewServeMux()
	mux.Handle(c.Path, scrape)
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// Long enough for gathering and for a slow network, short enough that
		// a client that does not read gives its slot back.
		WriteTimeout:   time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	if c.TLS != nil {
		var err error
		if s.certificate, err = newCertificate(*c.TLS, c.Registerer, c.Logger); err != nil {
			return nil, fmt.Errorf("metrics server: %w", err)
		}
		s.http.TLSConfig = s.certificate.tlsConfig()
	}
	var err error
	if s.listener, err = net.Listen("tcp", c.Address); err != nil {
		return nil, fmt.Errorf("metrics server: %w", err)
	}
	return s, nil
}

// Addr is the address the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening. Only a Server that is not run needs it.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx is done, and then returns nil when the scrapes under way
// have ended or 5 s have passed. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	defer background.Wait()
	served := make(chan error, 1)
	background.Go(func() {
		if s.certificate != nil {
			served <- s.http.ServeTLS(s.listener, "", "")
			return
		}
		served <- s.http.Serve(s.listener)
	})
	if s.certificate != nil {
		background.Go(func() { s.certificate.run(ctx) })
	}
	s.logger.InfoContext(ctx, "Serving metrics", "address", s.Addr().String(), "tls", s.certificate != nil)

	select {
	case err := <-served:
		cancel()
		return fmt.Errorf("serving metrics on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	return s.shutdown(context.WithoutCancel(ctx))
}

func (s *Server) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.logger.Warn("Scrapes were cut off", "err", err)
		if err := s.http.Close(); err != nil {
			return fmt.Errorf("closing the metrics server: %w", err)
		}
	}
	if h, ok := s.handler.(*Handler); ok {
		if err := h.Shutdown(ctx); err != nil {
			return fmt.Errorf("stopping the metrics server: %w", err)
		}
	}
	return nil
}

// loopback reports whether an address to listen on is reachable from this
// machine only.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
