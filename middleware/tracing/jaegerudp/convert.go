package jaegerudp

import (
	"encoding/binary"
	"strings"

	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// DebugAttribute is the span attribute that sets the debug bit of the Jaeger
// span flags. The sampler of middleware/tracing puts it on spans whose caller
// sent the B3 or Jaeger debug flag.
const DebugAttribute = attribute.Key("b3.debug")

// Bits of the flags field of a Jaeger span, from jaeger.thrift.
const (
	flagSampled = 1
	flagDebug   = 2
)

// Tag names of the OpenTelemetry specification, "OpenTelemetry to Jaeger
// Transformation" and "Mapping to non-OTLP formats".
const (
	tagError             = "error"
	tagSpanKind          = "span.kind"
	tagStatusCode        = "otel.status_code"
	tagStatusDescription = "otel.status_description"
	tagScopeName         = "otel.scope.name"
	tagScopeVersion      = "otel.scope.version"
	tagTraceState        = "w3c.tracestate"
	tagDroppedAttributes = "otel.dropped_attributes_count"
	tagDroppedEvents     = "otel.dropped_events_count"
	tagDroppedLinks      = "otel.dropped_links_count"
	tagEvent             = "event"

	serviceNameKey     = attribute.Key("service.name")
	unknownServiceName = "unknown_service"
)

// processOf maps a resource to the Jaeger process that reports the spans.
func processOf(r *resource.Resource) *jaeger.Process {
	p := &jaeger.Process{ServiceName: unknownServiceName}
	for iter := r.Iter(); iter.Next(); {
		kv := iter.Attribute()
		if kv.Key == serviceNameKey {
			if name := valid(kv.Value.String()); name != "" {
				p.ServiceName = name
			}
			continue
		}
		p.Tags = append(p.Tags, tagOf(kv))
	}
	return p
}

// spanOf maps a finished span to its Jaeger form, after the "OpenTelemetry to
// Jaeger Transformation" of the OpenTelemetry specification: ids big-endian in
// two's complement, times in microseconds, events as logs, links as
// FOLLOWS_FROM references, status and kind as tags.
func spanOf(s sdktrace.ReadOnlySpan) *jaeger.Span {
	sc := s.SpanContext()
	high, low := traceIDOf(sc.TraceID())
	span := &jaeger.Span{
		TraceIdHigh:   high,
		TraceIdLow:    low,
		SpanId:        spanIDOf(sc.SpanID()),
		OperationName: valid(s.Name()),
		StartTime:     s.StartTime().UnixMicro(),
		Duration:      max(0, s.EndTime().Sub(s.StartTime()).Microseconds()),
		Tags:          spanTags(s),
		Logs:          logsOf(s.Events()),
		References:    referencesOf(s.Links()),
	}
	if parent := s.Parent(); parent.HasSpanID() {
		span.ParentSpanId = spanIDOf(parent.SpanID())
	}
	if sc.IsSampled() {
		span.Flags |= flagSampled
	}
	for _, kv := range s.Attributes() {
		if kv.Key == DebugAttribute && kv.Value.AsBool() {
			span.Flags |= flagDebug
		}
	}
	return span
}

func spanTags(s sdktrace.ReadOnlySpan) []*jaeger.Tag {
	attrs := s.Attributes()
	tags := make([]*jaeger.Tag, 0, len(attrs)+8)
	for _, kv := range attrs {
		tags = append(tags, tagOf(kv))
	}
	if kind := s.SpanKind(); kind != trace.SpanKindUnspecified {
		tags = append(tags, stringTag(tagSpanKind, kind.String()))
	}
	if scope := s.InstrumentationScope(); scope.Name != "" {
		tags = append(tags, stringTag(tagScopeName, scope.Name))
		if scope.Version != "" {
			tags = append(tags, stringTag(tagScopeVersion, scope.Version))
		}
	}
	switch status := s.Status(); status.Code {
	case codes.Error:
		tags = append(tags, boolTag(tagError, true), stringTag(tagStatusCode, "ERROR"))
		if status.Description != "" {
			tags = append(tags, stringTag(tagStatusDescription, status.Description))
		}
	case codes.Ok:
		tags = append(tags, stringTag(tagStatusCode, "OK"))
	case codes.Unset:
	}
	if ts := s.SpanContext().TraceState(); ts.Len() > 0 {
		tags = append(tags, stringTag(tagTraceState, ts.String()))
	}
	tags = appendCount(tags, tagDroppedAttributes, s.DroppedAttributes())
	tags = appendCount(tags, tagDroppedEvents, s.DroppedEvents())
	return appendCount(tags, tagDroppedLinks, s.DroppedLinks())
}

func logsOf(events []sdktrace.Event) []*jaeger.Log {
	if len(events) == 0 {
		return nil
	}
	logs := make([]*jaeger.Log, 0, len(events))
	for _, e := range events {
		fields := make([]*jaeger.Tag, 0, len(e.Attributes)+2)
		fields = append(fields, stringTag(tagEvent, e.Name))
		for _, kv := range e.Attributes {
			// The name of the event owns this key; an attribute of the same
			// name would hide it in Jaeger's pages.
			if kv.Key != tagEvent {
				fields = append(fields, tagOf(kv))
			}
		}
		fields = appendCount(fields, tagDroppedAttributes, e.DroppedAttributeCount)
		logs = append(logs, &jaeger.Log{Timestamp: e.Time.UnixMicro(), Fields: fields})
	}
	return logs
}

func referencesOf(links []sdktrace.Link) []*jaeger.SpanRef {
	if len(links) == 0 {
		return nil
	}
	refs := make([]*jaeger.SpanRef, 0, len(links))
	for _, l := range links {
		high, low := traceIDOf(l.SpanContext.TraceID())
		refs = append(refs, &jaeger.SpanRef{
			RefType:     jaeger.SpanRefType_FOLLOWS_FROM,
			TraceIdHigh: high,
			TraceIdLow:  low,
			SpanId:      spanIDOf(l.SpanContext.SpanID()),
		})
	}
	return refs
}

func tagOf(kv attribute.KeyValue) *jaeger.Tag {
	key := valid(string(kv.Key))
	switch kv.Value.Type() {
	case attribute.BOOL:
		return boolTag(key, kv.Value.AsBool())
	case attribute.INT64:
		return longTag(key, kv.Value.AsInt64())
	case attribute.FLOAT64:
		v := kv.Value.AsFloat64()
		return &jaeger.Tag{Key: key, VType: jaeger.TagType_DOUBLE, VDouble: &v}
	case attribute.BYTESLICE:
		return &jaeger.Tag{Key: key, VType: jaeger.TagType_BINARY, VBinary: kv.Value.AsByteSlice()}
	default:
		// Arrays and maps become JSON text, as the transformation asks.
		return stringTag(key, kv.Value.String())
	}
}

func stringTag(key, value string) *jaeger.Tag {
	value = valid(value)
	return &jaeger.Tag{Key: key, VType: jaeger.TagType_STRING, VStr: &value}
}

func boolTag(key string, value bool) *jaeger.Tag {
	return &jaeger.Tag{Key: key, VType: jaeger.TagType_BOOL, VBool: &value}
}

func longTag(key string, value int64) *jaeger.Tag {
	return &jaeger.Tag{Key: key, VType: jaeger.TagType_LONG, VLong: &value}
}

// appendCount adds a counter tag; a zero says nothing and is left out.
func appendCount(tags []*jaeger.Tag, key string, n int) []*jaeger.Tag {
	if n == 0 {
		return tags
	}
	return append(tags, longTag(key, int64(n)))
}

// valid replaces invalid UTF-8. Jaeger re-encodes spans as protobuf, where one
// invalid byte makes the whole batch unreadable.
func valid(s string) string {
	return strings.ToValidUTF8(s, "\uFFFD")
}

func traceIDOf(id trace.TraceID) (high, low int64) {
	return int64(binary.BigEndian.Uint64(id[:8])), int64(binary.BigEndian.Uint64(id[8:])) //nolint:gosec // two's complement is the wire form
}

func spanIDOf(id trace.SpanID) int64 {
	return int64(binary.BigEndian.Uint64(id[:])) //nolint:gosec // two's complement is the wire form
}
