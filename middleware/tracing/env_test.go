package tracing

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReadEnvironment(t *testing.T) {
	unset := environment{
		propagators: defaultPropagators, exporters: []string{"otlp"}, otlpProtocol: "http/protobuf",
		sampler: samplerSpec{parentBased: true, root: "always_on", ratio: 1},
	}
	with := func(change func(*environment)) environment {
		env := unset
		change(&env)
		return env
	}
	for _, tc := range []struct {
		name string
		vars map[string]string
		want environment
	}{
		{"nothing", nil, unset},
		{"empty counts as unset", map[string]string{envSampler: "", envExporter: " ", envPropagators: ","}, unset},
		{"disabled", map[string]string{envDisabled: "True"}, with(func(e *environment) { e.disabled = true })},
		{"only true disables", map[string]string{envDisabled: "1"}, unset},
		{"lists", map[string]string{envPropagators: "b3, tracecontext,b3", envExporter: "otlp,jaeger"}, with(func(e *environment) {
			e.propagators, e.exporters = []string{"b3", "tracecontext"}, []string{"otlp", "jaeger"}
		})},
		{"protocol of traces wins", map[string]string{envOTLPProtocol: "http/protobuf", envOTLPTracesProtocol: "grpc"}, with(func(e *environment) { e.otlpProtocol = "grpc" })},
		{"agent host", map[string]string{envJaegerHost: "agent.tracing"}, with(func(e *environment) { e.jaegerAgent = "agent.tracing:6831" })},
		{"agent port", map[string]string{envJaegerPort: "16831", envJaegerProtocol: "udp/thrift.compact"}, with(func(e *environment) { e.jaegerAgent = "localhost:16831" })},
		{"agent IPv6", map[string]string{envJaegerHost: "::1"}, with(func(e *environment) { e.jaegerAgent = "[::1]:6831" })},
		{"ratio", map[string]string{envSampler: "traceidratio", envSamplerArg: "0.25"}, with(func(e *environment) { e.sampler = samplerSpec{root: "traceidratio", ratio: 0.25} })},
		{"remote", map[string]string{envSampler: "parentbased_jaeger_remote", envSamplerArg: "endpoint=http://jaeger:5778/sampling, pollingIntervalMs=5000,initialSamplingRate=0.25"}, with(func(e *environment) {
			e.sampler = samplerSpec{parentBased: true, root: "jaeger_remote", ratio: 1, remote: remoteSpec{"http://jaeger:5778/sampling", 5 * time.Second, 0.25}}
		})},
	} {
		got, err := readEnvironment(func(name string) string { return tc.vars[name] })
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v %v\nwant %+v", tc.name, got, err, tc.want)
		}
	}
}

func TestReadEnvironmentErrorsNameTheVariableAndTheRule(t *testing.T) {
	for _, tc := range []struct {
		vars map[string]string
		want []string
	}{
		{map[string]string{envExporter: "zipkin"}, []string{envExporter, `"zipkin"`, "must be otlp, jaeger, console or none"}},
		{map[string]string{envExporter: "none,otlp"}, []string{envExporter, "must stand alone"}},
		{map[string]string{envOTLPProtocol: "http/json"}, []string{envOTLPProtocol, `"http/json"`, "must be grpc or http/protobuf"}},
		{map[string]string{envOTLPEndpoint: "collector:4317"}, []string{envOTLPEndpoint, "must start with http:// or https://"}},
		{map[string]string{envOTLPTracesEndpoint: "http://"}, []string{envOTLPTracesEndpoint, "the host is missing"}},
		{map[string]string{envJaegerPort: "http"}, []string{envJaegerPort, `"http"`, "1 to 65535"}},
		{map[string]string{envJaegerProtocol: "http/thrift.binary"}, []string{envJaegerProtocol, "udp/thrift.compact"}},
		{map[string]string{envSampler: "sometimes"}, []string{envSampler, `"sometimes"`, "parentbased_"}},
		{map[string]string{envSampler: "traceidratio", envSamplerArg: "1.5"}, []string{envSamplerArg, `"1.5"`, "from 0 to 1"}},
		{map[string]string{envSampler: "traceidratio", envSamplerArg: "NaN"}, []string{envSamplerArg, "from 0 to 1"}},
		{map[string]string{envSampler: "jaeger_remote", envSamplerArg: "endpoint"}, []string{envSamplerArg, "key=value"}},
		{map[string]string{envSampler: "jaeger_remote", envSamplerArg: "pollingIntervalMs=0"}, []string{envSamplerArg, "positive number of milliseconds"}},
		{map[string]string{envSampler: "jaeger_remote", envSamplerArg: "color=blue"}, []string{envSamplerArg, `"color"`}},
	} {
		_, err := readEnvironment(func(name string) string { return tc.vars[name] })
		if err == nil {
			t.Errorf("%v: no error", tc.vars)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: error %q lacks %q", tc.vars, err, part)
			}
		}
	}
}

func FuzzParseSampler(f *testing.F) {
	f.Add("parentbased_traceidratio", "0.5")
	f.Add("jaeger_remote", "endpoint=http://x:5778,pollingIntervalMs=1,initialSamplingRate=1")
	f.Fuzz(func(t *testing.T, name, arg string) {
		spec, err := parseSampler(name, arg)
		if err != nil {
			return
		}
		if !(spec.ratio >= 0 && spec.ratio <= 1 && spec.remote.initial >= 0 && spec.remote.initial <= 1 && spec.remote.interval >= 0) {
			t.Errorf("parseSampler(%q, %q) accepted %+v", name, arg, spec)
		}
	})
}
