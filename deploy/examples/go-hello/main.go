package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// config is what the environment says.
type config struct {
	// version is what the service answers with: VERSION.
	version string
	// address is where it listens: POD_IP, or every address when that is unset,
	// and PORT, 8080 by default.
	address string
	// drain is how long it goes on serving after SIGTERM, until load balancers
	// have taken the pod out: DRAIN, a Go duration, 0 by default.
	drain time.Duration
}

// shutdownTimeout bounds the time that requests under way get at the end.
const shutdownTimeout = 10 * time.Second

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Getenv, log); err != nil {
		log.Error("go-hello failed", "error", err)
		os.Exit(1)
	}
}

// start reads the environment, listens and serves until ctx ends.
func start(ctx context.Context, getenv func(string) string, log *slog.Logger) error {
	c, err := readConfig(getenv)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	return serve(ctx, listener, c, log)
}

func readConfig(getenv func(string) string) (config, error) {
	c := config{version: getenv("VERSION")}
	if c.version == "" {
		return config{}, errors.New("VERSION: must be set to the version to answer with")
	}
	port := getenv("PORT")
	if port == "" {
		port = "8080"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return config{}, fmt.Errorf("PORT: %q is not a port number from 1 to 65535", port)
	}
	c.address = net.JoinHostPort(getenv("POD_IP"), port)
	if d := getenv("DRAIN"); d != "" {
		var err error
		if c.drain, err = time.ParseDuration(d); err != nil || c.drain < 0 {
			return config{}, fmt.Errorf("DRAIN: %q is not a duration such as 5s", d)
		}
	}
	return c, nil
}

// serve serves on listener until ctx ends and then stops gracefully: it turns
// unready, serves for the time of the drain, and lets requests under way finish.
func serve(ctx context.Context, listener net.Listener, c config, log *slog.Logger) error {
	// Requests outlive ctx, which ends before they are drained.
	server := &http.Server{Handler: handler(ctx, c.version), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Info("serving", "version", c.version, "address", listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	log.Info("stopping", "version", c.version, "drain", c.drain.String())
	drained := time.NewTimer(c.drain)
	defer drained.Stop()
	select {
	case <-drained.C:
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(shutdown)
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// handler answers / and /version with the version, /healthz while the process
// lives and /readyz until ctx ends.
func handler(ctx context.Context, version string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from go-hello %s\n", version)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"version": version})
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
