package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// JaegerOptions say what Jaeger to start.
type JaegerOptions struct {
	// Options say where the program comes from.
	Options
	// Dir holds its configuration and log. Default: a temporary directory,
	// removed by Stop.
	Dir string
	// QueryAddress is where the query API and the pages are, host:port.
	// Default: a free one.
	QueryAddress string
	// MaxTraces is how many traces are kept. Default: 100000.
	MaxTraces int
}

// JaegerServer is a running Jaeger with its traces in memory.
type JaegerServer struct {
	*Proc
	// QueryURL is the address of the query API and the pages, such as
	// QueryURL/api/services.
	QueryURL string
	// OTLPGRPC (host:port) and OTLPHTTP (URL without a path) take OTLP,
	// UDPCompact (host:port) the agent protocol: compact Thrift over UDP.
	OTLPGRPC, OTLPHTTP, UDPCompact string
	// CollectorURL takes Thrift over HTTP at its path /api/traces.
	CollectorURL string
}

// Jaeger 2 is an OpenTelemetry collector; every address it would listen on by
// default has to be named.
const jaegerConfig = `service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces:
      receivers: [otlp, jaeger]
      exporters: [jaeger_storage_exporter]
  telemetry:
    resource: {service.name: jaeger}
    metrics: {level: none}
    logs: {level: info}
extensions:
  healthcheckv2:
    use_v2: true
    http: {endpoint: %q}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: %q}
    grpc: {endpoint: %q}
  jaeger_storage:
    backends:
      memory: {memory: {max_traces: %d}}
receivers:
  otlp:
    protocols:
      grpc: {endpoint: %q}
      http: {endpoint: %q}
  jaeger:
    protocols:
      thrift_http: {endpoint: %q}
      thrift_compact: {endpoint: %q}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// StartJaeger starts a Jaeger and returns when it is ready. ctx bounds the
// start only; Stop ends it.
func StartJaeger(ctx context.Context, opts JaegerOptions) (_ *JaegerServer, err error) {
	program, err := Ensure(ctx, Jaeger, opts.Options)
	if err != nil {
		return nil, err
	}
	dir, remove, err := workDir(opts.Dir, Jaeger.Name)
	if err != nil {
		return nil, fmt.Errorf("starting jaeger: %w", err)
	}
	defer func() {
		if err != nil && remove != nil {
			_ = remove()
		}
	}()
	free, err := freeAddresses(7)
	if err != nil {
		return nil, err
	}
	health, query, queryGRPC, otlpGRPC, otlpHTTP, thriftHTTP, compact := free[0], free[1], free[2], free[3], free[4], free[5], free[6]
	if opts.QueryAddress != "" {
		query = opts.QueryAddress
	}
	traces := opts.MaxTraces
	if traces <= 0 {
		traces = 100_000
	}
	config := filepath.Join(dir, "jaeger.yaml")
	text := fmt.Sprintf(jaegerConfig, health, query, queryGRPC, traces, otlpGRPC, otlpHTTP, thriftHTTP, compact)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("starting jaeger: %w", err)
	}
	j := &JaegerServer{
		QueryURL: "http://" + query, OTLPGRPC: otlpGRPC, OTLPHTTP: "http://" + otlpHTTP,
		UDPCompact: compact, CollectorURL: "http://" + thriftHTTP,
	}
	cmd := exec.Command(program, "--config="+config)
	// It would trace itself to where nobody listens, and keep trying when it is to end.
	cmd.Env = append(os.Environ(), "OTEL_TRACES_SAMPLER=always_off")
	j.Proc, err = start(Jaeger.Name, filepath.Join(dir, "jaeger.log"), cmd, 30*time.Second, remove)
	if err != nil {
		return nil, err
	}
	err = j.waitReady(ctx, func(ctx context.Context) error {
		if err := get(ctx, "http://"+health+"/status"); err != nil {
			return err
		}
		if err := get(ctx, j.QueryURL+"/api/services"); err != nil {
			return err
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", otlpGRPC)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		_ = j.Stop()
		return nil, err
	}
	return j, nil
}
