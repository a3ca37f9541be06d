// Command bookinfo is the demonstration application: four small services on
// this repository's middleware, and a load generator, in one binary.
//
//	bookinfo productpage    DETAILS, REVIEWS say where those are
//	bookinfo details
//	bookinfo reviews        VERSION=v1|v2|v3|v4; RATINGS says where ratings is
//	bookinfo ratings        over gRPC
//	bookinfo load -url http://productpage:9080/productpage -rate 20
//
// Where another service is: host:port by DNS, a comma-separated list, or
// file:PATH with one host:port a line. OUTLIER_POLICY names a file with a
// DestinationRule's trafficPolicy for productpage's calls.
//
// Every process serves ADDR (or POD_IP and PORT, 9080) and an admin port,
// ADMIN_ADDR (or POD_IP and ADMIN_PORT, 9090): /metrics, /healthz, /readyz and
// /admin/fault. Faults come from FAULT_LATENCY, FAULT_LATENCY_PERCENT,
// FAULT_ERROR_PERCENT and FAULT_ERROR_STATUS, or by
//
//	curl -X PUT -d '{"errorPercent":20,"errorStatus":503,"latency":"300ms"}' http://host:9090/admin/fault
//
// Spans are exported when OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT
// is set. SIGTERM and SIGINT shut down: SHUTDOWN_DELAY not ready but serving,
// then SHUTDOWN_TIMEOUT for requests under way, then spans are flushed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/server"
	"github.com/canarycontroller/canary-controller/middleware"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bookinfo:", err)
		stop()
		os.Exit(1)
	}
}

// commands by name.
var commands = map[string]func(context.Context, *process) error{
	"productpage": productpage,
	"details":     details,
	"reviews":     reviews,
	"ratings":     ratings,
	"load":        generate,
}

const usage = "usage: bookinfo productpage|details|reviews|ratings|load [flags]"

// process is what every command works with.
type process struct {
	*server.App
	args []string
	env  func(string) string
	out  io.Writer
}

func run(ctx context.Context, args []string, env func(string) string, out, logs io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
	c, err := server.ConfigFromEnv(args[0], env)
	if err != nil {
		return err
	}
	log := slog.New(middleware.NewLogHandler(slog.NewJSONHandler(logs, nil))).With("service", c.Name, "version", c.Version)
	app, err := server.New(ctx, c, log)
	if err != nil {
		return err
	}
	return command(ctx, &process{App: app, args: args[1:], env: env, out: out})
}
