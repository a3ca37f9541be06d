package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/fault"
	"github.com/canarycontroller/canary-controller/middleware"
	grpcmw "github.com/canarycontroller/canary-controller/middleware/grpc"
	"github.com/canarycontroller/canary-controller/middleware/tracing"
)

// App is what a service's own code gets.
type App struct {
	Config   Config
	Log      *slog.Logger
	Registry *prometheus.Registry
	Faults   *fault.Injector
	tracing  *tracing.Provider
	ready    atomic.Bool
}

// New sets the process up: metrics, tracing, faults.
func New(ctx context.Context, c Config, log *slog.Logger) (*App, error) {
	a := &App{
		Config: c, Log: log, Registry: prometheus.NewRegistry(),
		Faults: fault.NewInjector(c.Faults, rand.Float64),
	}
	a.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	opts := []tracing.Option{
		tracing.WithServiceName(c.ServiceName), tracing.WithServiceVersion(c.Version),
		tracing.WithRegisterer(a.Registry), tracing.WithLogger(log),
	}
	if !c.Exports {
		opts = append(opts, tracing.WithoutExporter())
	}
	var err error
	if a.tracing, err = tracing.Setup(ctx, opts...); err != nil {
		return nil, err
	}
	return a, nil
}

// ServeHTTP serves mux, with the middleware and the faults around it, until
// ctx ends; then it shuts down and returns.
func (a *App) ServeHTTP(ctx context.Context, mux *http.ServeMux) error {
	handler, err := middleware.NewHandler(a.Faults.HTTP(mux), middleware.WithMux(mux), middleware.WithRegisterer(a.Registry))
	if err != nil {
		return err
	}
	s := newHTTPServer(handler, a.Log)
	return a.run(ctx, a.Config.Address, s.Serve, func(ctx context.Context) error { return shutdownHTTP(ctx, s) })
}

// ServeGRPC serves what register adds, with the middleware and the faults.
func (a *App) ServeGRPC(ctx context.Context, register func(*grpc.Server)) error {
	mw, err := grpcmw.NewServer(grpcmw.WithRegisterer(a.Registry))
	if err != nil {
		return err
	}
	s := grpc.NewServer(append(mw.Options(), grpc.ChainUnaryInterceptor(a.Faults.Unary))...)
	register(s)
	mw.Init(s)
	return a.run(ctx, a.Config.Address, s.Serve, func(ctx context.Context) error {
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.GracefulStop() }()
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			s.Stop()
			<-stopped
			return fmt.Errorf("calls still running after the time to shut down: %w", ctx.Err())
		}
	})
}

// ServeAdmin serves the admin port alone, for a process that only makes
// requests, while work runs.
func (a *App) ServeAdmin(ctx context.Context, work func(context.Context) error) error {
	stop := make(chan struct{})
	return a.run(ctx, "", func(net.Listener) error { defer close(stop); return work(ctx) }, func(context.Context) error { <-stop; return nil })
}

// run opens the ports, serves until ctx ends or a server fails, and shuts down:
// not ready, wait, finish requests, flush spans. Without an address there is
// only the admin port.
func (a *App) run(ctx context.Context, address string, serve func(net.Listener) error, stop func(context.Context) error) error {
	var lc net.ListenConfig
	adminLis, err := lc.Listen(ctx, "tcp", a.Config.AdminAddress)
	if err != nil {
		return errors.Join(fmt.Errorf("opening the admin port: %w", err), a.flush(ctx))
	}
	var lis net.Listener
	if address != "" {
		if lis, err = lc.Listen(ctx, "tcp", address); err != nil {
			return errors.Join(fmt.Errorf("opening the service's port: %w", err), adminLis.Close(), a.flush(ctx))
		}
	}
	admin := newHTTPServer(a.admin(), a.Log)
	failed := make(chan error, 2)
	go func() { failed <- notClosed(serve(lis)) }()
	go func() { failed <- notClosed(admin.Serve(adminLis)) }()
	a.ready.Store(true)
	if lis != nil {
		address = lis.Addr().String() // with the port that :0 became
	}
	a.Log.InfoContext(ctx, "serving", "address", address, "admin", adminLis.Addr().String())

	running := 2
	var errs error
	select {
	case <-ctx.Done():
	case err := <-failed:
		errs, running = errors.Join(errs, err), running-1
	}
	a.ready.Store(false)
	if ctx.Err() != nil {
		time.Sleep(a.Config.ShutdownDelay)
	}
	// The time to shut down begins when ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Config.ShutdownTimeout)
	defer cancel()
	errs = errors.Join(errs, stop(ctx), shutdownHTTP(ctx, admin))
	for range running {
		errs = errors.Join(errs, <-failed)
	}
	a.Log.InfoContext(ctx, "stopped")
	return errors.Join(errs, a.flush(ctx))
}

func (a *App) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return a.tracing.Shutdown(ctx)
}

// admin serves what no user of the service should see.
func (a *App) admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{
		Registry: a.Registry, EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelError),
	}))
	mux.Handle("/admin/fault", a.Faults)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.ready.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
		}
	})
	return mux
}

func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// shutdownHTTP lets requests finish, and cuts them off when ctx ends.
func shutdownHTTP(ctx context.Context, s *http.Server) error {
	if err := s.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests still running after the time to shut down: %w", err), s.Close())
	}
	return nil
}

// notClosed drops the errors servers return after a shutdown.
func notClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}
