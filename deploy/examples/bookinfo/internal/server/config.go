package server

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/fault"
)

// Config is what the environment says to every service.
type Config struct {
	Name            string
	Version         string // VERSION
	Address         string // ADDR, else POD_IP and PORT (9080)
	AdminAddress    string // ADMIN_ADDR, else POD_IP and ADMIN_PORT (9090)
	Faults          fault.Settings
	ShutdownDelay   time.Duration // SHUTDOWN_DELAY: not ready, still serving
	ShutdownTimeout time.Duration // SHUTDOWN_TIMEOUT: for requests in flight
	Exports         bool          // an exporter is configured
	ServiceName     string        // OTEL_SERVICE_NAME, else Name
}

// ConfigFromEnv reads the variables of a service; an error names the variable.
func ConfigFromEnv(name string, get func(string) string) (Config, error) {
	c := Config{Name: name, Version: or(get("VERSION"), "v1"), ServiceName: or(get("OTEL_SERVICE_NAME"), name)}
	var err error
	if c.Address, err = address(get, "ADDR", "PORT", "9080"); err != nil {
		return c, err
	}
	if c.AdminAddress, err = address(get, "ADMIN_ADDR", "ADMIN_PORT", "9090"); err != nil {
		return c, err
	}
	if c.ShutdownDelay, err = duration(get, "SHUTDOWN_DELAY", 0); err != nil {
		return c, err
	}
	if c.ShutdownTimeout, err = duration(get, "SHUTDOWN_TIMEOUT", 10*time.Second); err != nil {
		return c, err
	}
	if c.Faults, err = fault.FromEnv(get); err != nil {
		return c, err
	}
	// Without a word about exporters none is meant: OTLP to localhost, the
	// OpenTelemetry default, would only fill the log.
	c.Exports = get("OTEL_TRACES_EXPORTER") != "" || get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	return c, nil
}

// address is a whole host:port, or the pod's address and a port.
func address(get func(string) string, whole, port, fallback string) (string, error) {
	if a := get(whole); a != "" {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return "", fmt.Errorf("%s %q: must be host:port: %w", whole, a, err)
		}
		return a, nil
	}
	p := or(get(port), fallback)
	if _, err := strconv.ParseUint(p, 10, 16); err != nil {
		return "", fmt.Errorf("%s %q: must be a port number", port, p)
	}
	return net.JoinHostPort(get("POD_IP"), p), nil
}

func duration(get func(string) string, name string, fallback time.Duration) (time.Duration, error) {
	v := get(name)
	if v == "" {
		return fallback, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s %q: must be a duration such as 5s, not negative", name, v)
	}
	return d, nil
}

func or(v, fallback string) string {
	if v == "" {
		return fallback
	}
	return v
}
