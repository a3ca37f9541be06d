package propagation

import "go.opentelemetry.io/otel/trace"

// ExtractMetadata is [Extract] for gRPC: md is a metadata.MD, whose keys are in
// lower case and whose "-bin" values are bytes.
func ExtractMetadata(md map[string][]string, cfg *Config) State {
	cfg = cfg.orDefault()
	return ExtractMetadataWith(md, cfg, cfg.trust.Decide(Peer{Metadata: md}))
}

// ExtractMetadataWith is [ExtractWith] for gRPC.
func ExtractMetadataWith(md map[string][]string, cfg *Config, t Trust) State {
	cfg = cfg.orDefault()
	src := metadataSource(md)
	s := cfg.extractFrom(&src, t)
	cfg.resolveRequestID(&s, &src, t)
	return s
}

// ExtractMetadataLink is [ExtractLink] for gRPC.
func ExtractMetadataLink(md map[string][]string, cfg *Config) trace.SpanContext {
	src := metadataSource(md)
	return cfg.orDefault().link(&src)
}

// InjectMetadata is [Inject] for gRPC: md is a metadata.MD about to be sent,
// not shared with anything else. Values that metadata cannot carry, which are
// those beyond printable ASCII, are dropped. gRPC itself ignores some names,
// user-agent among them.
func InjectMetadata(s State, md map[string][]string, cfg *Config) {
	if md == nil {
		return
	}
	w := writer{m: md, names: &lowerNames, config: cfg.orDefault()}
	w.write(&s)
}
