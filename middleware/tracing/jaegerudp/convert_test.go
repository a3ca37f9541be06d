package jaegerudp

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/uber/jaeger-client-go/thrift-gen/jaeger"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// values flattens tags for comparison.
func values(tags []*jaeger.Tag) map[string]any {
	out := make(map[string]any, len(tags))
	for _, t := range tags {
		switch t.VType {
		case jaeger.TagType_STRING:
			out[t.Key] = t.GetVStr()
		case jaeger.TagType_BOOL:
			out[t.Key] = t.GetVBool()
		case jaeger.TagType_LONG:
			out[t.Key] = t.GetVLong()
		case jaeger.TagType_DOUBLE:
			out[t.Key] = t.GetVDouble()
		case jaeger.TagType_BINARY:
			out[t.Key] = string(t.GetVBinary())
		}
	}
	return out
}

func diff(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestSpanOf(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	traceID := trace.TraceID{0x80, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}
	start := time.Unix(1700000000, 123456789)
	span := spanOf(tracetest.SpanStub{
		Name:        "GET /reviews/\xff",
		SpanKind:    trace.SpanKindServer,
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: trace.SpanID{7: 5}, TraceFlags: trace.FlagsSampled, TraceState: state}),
		Parent:      trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: trace.SpanID{7: 4}, Remote: true}),
		StartTime:   start,
		EndTime:     start.Add(1500 * time.Microsecond),
		Attributes: []attribute.KeyValue{
			attribute.String("s", "text"), attribute.Bool("b", true), attribute.Int("i", -7), attribute.Float64("f", 1.5),
			attribute.StringSlice("ss", []string{"a", "b"}), attribute.IntSlice("is", []int{1, 2}),
			attribute.Bool(string(DebugAttribute), true),
		},
		Events: []sdktrace.Event{{Name: "exception", Time: start.Add(time.Millisecond), DroppedAttributeCount: 1, Attributes: []attribute.KeyValue{
			attribute.String("exception.type", "x"), attribute.String("event", "hidden"),
		}}},
		Links:                []sdktrace.Link{{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 3}, SpanID: trace.SpanID{7: 9}})}},
		Status:               sdktrace.Status{Code: codes.Error, Description: "boom"},
		DroppedAttributes:    2,
		DroppedLinks:         1,
		InstrumentationScope: instrumentation.Scope{Name: "lib", Version: "v1"},
	}.Snapshot())

	if span.TraceIdHigh != -1<<63+1 || span.TraceIdLow != -2 || span.SpanId != 5 || span.ParentSpanId != 4 {
		t.Errorf("ids: %d %d %d parent %d", span.TraceIdHigh, span.TraceIdLow, span.SpanId, span.ParentSpanId)
	}
	if span.OperationName != "GET /reviews/\uFFFD" {
		t.Errorf("operation %q", span.OperationName)
	}
	if span.StartTime != 1700000000123456 || span.Duration != 1500 {
		t.Errorf("start %d duration %d, want microseconds", span.StartTime, span.Duration)
	}
	if span.Flags != 3 {
		t.Errorf("flags %d, want sampled and debug", span.Flags)
	}
	diff(t, "tags", values(span.Tags), map[string]any{
		"s": "text", "b": true, "i": -7, "f": 1.5, "ss": `["a","b"]`, "is": "[1,2]", "b3.debug": true,
		"span.kind": "server", "otel.scope.name": "lib", "otel.scope.version": "v1",
		"error": true, "otel.status_code": "ERROR", "otel.status_description": "boom",
		"w3c.tracestate": "vendor=1", "otel.dropped_attributes_count": 2, "otel.dropped_links_count": 1,
	})
	if len(span.Logs) != 1 || span.Logs[0].Timestamp != 1700000000124456 {
		t.Fatalf("logs %+v", span.Logs)
	}
	diff(t, "log", values(span.Logs[0].Fields), map[string]any{"event": "exception", "exception.type": "x", "otel.dropped_attributes_count": 1})
	if len(span.References) != 1 || span.References[0].RefType != jaeger.SpanRefType_FOLLOWS_FROM ||
		span.References[0].TraceIdLow != 3 || span.References[0].SpanId != 9 {
		t.Errorf("references %+v", span.References)
	}
}

func TestSpanOfARootThatNeverEndedRight(t *testing.T) {
	start := time.Unix(10, 0)
	span := spanOf(tracetest.SpanStub{Name: "root", StartTime: start, EndTime: start.Add(-time.Second), Status: sdktrace.Status{Code: codes.Ok}}.Snapshot())
	if span.Duration != 0 || span.ParentSpanId != 0 || span.Flags != 0 {
		t.Errorf("duration %d parent %d flags %d, want zeroes", span.Duration, span.ParentSpanId, span.Flags)
	}
	if got := values(span.Tags)["otel.status_code"]; got != "OK" {
		t.Errorf("status %v", got)
	}
}

func TestProcessOf(t *testing.T) {
	p := processOf(resource.NewSchemaless(attribute.String("service.name", "reviews"), attribute.String("service.version", "v2"), attribute.Int("process.pid", 7)))
	if p.ServiceName != "reviews" {
		t.Errorf("service %q", p.ServiceName)
	}
	diff(t, "tags", values(p.Tags), map[string]any{"service.version": "v2", "process.pid": 7})
	if p := processOf(resource.Empty()); p.ServiceName != "unknown_service" {
		t.Errorf("service of an empty resource: %q", p.ServiceName)
	}
}
