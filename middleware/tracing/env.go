package tracing

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment variables of the OpenTelemetry specification that Setup reads
// itself. The SDK reads OTEL_BSP_*, OTEL_SPAN_*_LIMIT, OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES, the OTLP exporters the rest of
// OTEL_EXPORTER_OTLP_*.
const (
	envDisabled           = "OTEL_SDK_DISABLED"
	envPropagators        = "OTEL_PROPAGATORS"
	envExporter           = "OTEL_TRACES_EXPORTER"
	envSampler            = "OTEL_TRACES_SAMPLER"
	envSamplerArg         = "OTEL_TRACES_SAMPLER_ARG"
	envOTLPProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envOTLPTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envOTLPEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envOTLPTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envJaegerProtocol     = "OTEL_EXPORTER_JAEGER_PROTOCOL"
	envJaegerHost         = "OTEL_EXPORTER_JAEGER_AGENT_HOST"
	envJaegerPort         = "OTEL_EXPORTER_JAEGER_AGENT_PORT"
)

// Values of the protocol variables.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
	protocolUDP  = "udp/thrift.compact"
)

// Values of OTEL_TRACES_EXPORTER.
const (
	exporterOTLP    = "otlp"
	exporterJaeger  = "jaeger"
	exporterConsole = "console"
	exporterNone    = "none"
)

// environment is what the variables say, checked.
type environment struct {
	disabled     bool
	propagators  []string
	exporters    []string
	otlpProtocol string
	jaegerAgent  string // host:port; "" without either variable
	sampler      samplerSpec
}

// samplerSpec is a sampler of OTEL_TRACES_SAMPLER with its argument read.
type samplerSpec struct {
	parentBased bool
	root        string // always_on, always_off, traceidratio, jaeger_remote
	ratio       float64
	remote      remoteSpec
}

// remoteSpec is the argument of jaeger_remote.
type remoteSpec struct {
	endpoint string
	interval time.Duration // zero: the library's default
	initial  float64       // rate until the first answer
}

// readEnvironment reads the variables through get. An error names the variable
// and its rule. An empty variable counts as unset, as the specification asks.
func readEnvironment(get func(string) string) (environment, error) {
	value := func(name string) string { return strings.TrimSpace(get(name)) }
	env := environment{
		// The specification: only "true", in any case, disables.
		disabled:     strings.EqualFold(value(envDisabled), "true"),
		propagators:  list(value(envPropagators)),
		exporters:    list(value(envExporter)),
		otlpProtocol: protocolHTTP,
	}
	if len(env.propagators) == 0 {
		env.propagators = defaultPropagators
	}
	if len(env.exporters) == 0 {
		env.exporters = []string{exporterOTLP}
	}
	for _, e := range env.exporters {
		switch e {
		case exporterOTLP, exporterJaeger, exporterConsole:
		case exporterNone:
			if len(env.exporters) > 1 {
				return env, fmt.Errorf("%s: \"none\" must stand alone", envExporter)
			}
		default:
			return env, fmt.Errorf("%s: unknown exporter %q: must be otlp, jaeger, console or none", envExporter, e)
		}
	}
	for _, name := range []string{envOTLPProtocol, envOTLPTracesProtocol} {
		switch p := value(name); p {
		case "":
		case protocolGRPC, protocolHTTP:
			env.otlpProtocol = p
		default:
			return env, fmt.Errorf("%s: unknown protocol %q: must be grpc or http/protobuf", name, p)
		}
	}
	for _, name := range []string{envOTLPEndpoint, envOTLPTracesEndpoint} {
		if e := value(name); e != "" {
			if err := checkEndpoint(e); err != nil {
				return env, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	var err error
	if env.jaegerAgent, err = jaegerAgent(value(envJaegerProtocol), value(envJaegerHost), value(envJaegerPort)); err != nil {
		return env, err
	}
	name := value(envSampler)
	if name == "" {
		name = "parentbased_always_on"
	}
	if env.sampler, err = parseSampler(name, value(envSamplerArg)); err != nil {
		return env, err
	}
	return env, nil
}

// list splits a comma-separated list and drops repetitions.
func list(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" && !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

// checkEndpoint refuses what the OTLP exporters would log and ignore.
func checkEndpoint(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("endpoint is no URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("endpoint %q: must start with http:// or https://", u.Redacted())
	case u.Host == "":
		return fmt.Errorf("endpoint %q: the host is missing", u.Redacted())
	}
	return nil
}

func jaegerAgent(protocol, host, port string) (string, error) {
	if protocol != "" && protocol != protocolUDP {
		return "", fmt.Errorf("%s: unknown protocol %q: must be %s; for a collector use the otlp exporter", envJaegerProtocol, protocol, protocolUDP)
	}
	if host == "" && port == "" {
		return "", nil
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6831"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%s: %q: must be a number from 1 to 65535", envJaegerPort, port)
	}
	return net.JoinHostPort(host, port), nil
}

// parseSampler reads a sampler's name and argument as OTEL_TRACES_SAMPLER and
// OTEL_TRACES_SAMPLER_ARG have them.
func parseSampler(name, arg string) (samplerSpec, error) {
	spec := samplerSpec{ratio: 1}
	spec.root, spec.parentBased = strings.CutPrefix(strings.ToLower(name), "parentbased_")
	switch spec.root {
	case "always_on", "always_off":
		return spec, nil
	case "traceidratio":
		if arg == "" {
			return spec, nil
		}
		ratio, err := parseRatio(arg)
		if err != nil {
			return spec, fmt.Errorf("%s: %w", envSamplerArg, err)
		}
		spec.ratio = ratio
		return spec, nil
	case "jaeger_remote":
		remote, err := parseRemote(arg)
		if err != nil {
			return spec, fmt.Errorf("%s: %w", envSamplerArg, err)
		}
		spec.remote = remote
		return spec, nil
	}
	return spec, fmt.Errorf("%s: unknown sampler %q: must be always_on, always_off, traceidratio or jaeger_remote, or one of them after parentbased_", envSampler, name)
}

func parseRatio(s string) (float64, error) {
	ratio, err := strconv.ParseFloat(s, 64)
	// The comparison is written so that NaN fails it.
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, fmt.Errorf("%q: must be a number from 0 to 1", s)
	}
	return ratio, nil
}

// parseRemote reads "endpoint=…,pollingIntervalMs=…,initialSamplingRate=…".
func parseRemote(arg string) (remoteSpec, error) {
	spec := remoteSpec{endpoint: defaultRemoteEndpoint, initial: defaultRemoteRate}
	for _, pair := range list(arg) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return spec, fmt.Errorf("%q: must be key=value", pair)
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "endpoint":
			if err := checkEndpoint(value); err != nil {
				return spec, err
			}
			spec.endpoint = value
		case "pollingIntervalMs":
			ms, err := strconv.ParseInt(value, 10, 32)
			if err != nil || ms <= 0 {
				return spec, fmt.Errorf("pollingIntervalMs %q: must be a positive number of milliseconds", value)
			}
			spec.interval = time.Duration(ms) * time.Millisecond
		case "initialSamplingRate":
			rate, err := parseRatio(value)
			if err != nil {
				return spec, fmt.Errorf("initialSamplingRate %w", err)
			}
			spec.initial = rate
		default:
			return spec, fmt.Errorf("unknown key %q: must be endpoint, pollingIntervalMs or initialSamplingRate", key)
		}
	}
	return spec, nil
}

const (
	// defaultRemoteEndpoint is where agents, and Jaeger's remote_sampling
	// extension, serve strategies.
	defaultRemoteEndpoint = "http://localhost:5778/sampling"
	// defaultRemoteRate is the rate until the first answer, as in Jaeger's
	// own clients.
	defaultRemoteRate = 0.001
)
