package trace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// Environment variables of the OpenTelemetry specification that say where spans go. The
// OTLP clients read the rest of OTEL_EXPORTER_OTLP_* themselves: headers, TLS, timeout.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
	portGRPC     = "4317"
)

// destination is where spans go.
type destination struct {
	// off says that they go nowhere.
	off bool
	// grpc says that the protocol is OTLP/gRPC; otherwise it is OTLP/HTTP.
	grpc bool
	// url is the endpoint of Config; empty when it comes from the environment.
	url string
}

// findDestination reads the endpoint of Config and, without one, the environment. An
// error names the setting and its rule.
func findDestination(endpoint string, get func(string) string) (destination, error) {
	value := func(name string) string { return strings.TrimSpace(get(name)) }
	if strings.EqualFold(value(envDisabled), "true") {
		return destination{off: true}, nil
	}
	if endpoint == "" {
		switch exporter := value(envExporter); exporter {
		case "", "otlp":
		case "none":
			return destination{off: true}, nil
		default:
			return destination{}, fmt.Errorf("%s: unknown exporter %q: must be otlp or none", envExporter, exporter)
		}
	}
	d := destination{url: endpoint}
	from, found := "the OTLP endpoint", endpoint
	for _, name := range []string{envTracesEndpoint, envEndpoint} {
		if found == "" {
			from, found = name, value(name)
		}
	}
	if found == "" {
		return destination{off: true}, nil
	}
	u, err := checkEndpoint(found)
	if err != nil {
		return destination{}, fmt.Errorf("%s: %w", from, err)
	}
	protocol := value(envTracesProtocol)
	if protocol == "" {
		protocol = value(envProtocol)
	}
	switch protocol {
	case "":
		// 4317 is registered for OTLP/gRPC; the specification's default is HTTP.
		d.grpc = u.Port() == portGRPC
	case protocolGRPC:
		d.grpc = true
	case protocolHTTP:
	default:
		return destination{}, fmt.Errorf("%s: unknown protocol %q: must be %s or %s", envProtocol, protocol, protocolGRPC, protocolHTTP)
	}
	if d.url != "" && !d.grpc && strings.Trim(u.Path, "/") == "" {
		d.url = u.JoinPath("v1", "traces").String()
	}
	return d, nil
}

// checkEndpoint refuses what the OTLP clients would log and ignore.
func checkEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		// The error of Parse quotes the URL, which may hold a password.
		return nil, errors.New("must be a URL such as http://collector:4317")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("endpoint %q must start with http:// or https://", u.Redacted())
	case u.Hostname() == "":
		return nil, fmt.Errorf("endpoint %q has no host", u.Redacted())
	}
	return u, nil
}

// client makes the OTLP client. It does not retry; [Recorder] does.
func (d destination) client() otlptrace.Client {
	if d.grpc {
		options := []otlptracegrpc.Option{otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{})}
		if d.url != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(d.url))
		}
		return otlptracegrpc.NewClient(options...)
	}
	options := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})}
	if d.url != "" {
		options = append(options, otlptracehttp.WithEndpointURL(d.url))
	}
	return otlptracehttp.NewClient(options...)
}

// serviceName is service.name unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say it.
const serviceName = "canary-controller"

// ofProcess are resource attributes, or with a dot at the end groups of them, that tell
// one process from another. With them, the copies of a span that two leaders sent would
// not be equal. The OpenTelemetry operator puts some into OTEL_RESOURCE_ATTRIBUTES of
// every pod.
var ofProcess = []string{
	"service.instance.", "service.version", "host.", "process.", "container.", "telemetry.",
	"k8s.pod.", "k8s.container.", "k8s.node.", "k8s.replicaset.",
}

// newResource describes the service by what every replica of it has in common.
func newResource(ctx context.Context) (*resourcepb.Resource, error) {
	// An error tells of what was left out.
	env, err := resource.New(ctx, resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	found := map[string]string{"service.name": serviceName}
	for _, kv := range env.Attributes() {
		if !isOfProcess(string(kv.Key)) && kv.Value.Type() == attribute.STRING {
			found[string(kv.Key)] = kv.Value.AsString()
		}
	}
	r := &resourcepb.Resource{}
	for key, value := range found {
		r.Attributes = append(r.Attributes, text(key, value))
	}
	slices.SortFunc(r.Attributes, func(a, b *commonpb.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	return r, nil
}

func isOfProcess(key string) bool {
	return slices.ContainsFunc(ofProcess, func(of string) bool {
		return key == of || strings.HasSuffix(of, ".") && strings.HasPrefix(key, of)
	})
}

// environment is os.Getenv, for tests to put another in its place.
var environment = os.Getenv
