package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Names of spans; SpanBatch is followed by the batch's number.
const (
	SpanRollout  = "rollout"
	SpanBatch    = "batch"
	SpanApply    = "apply"
	SpanWait     = "wait available"
	SpanGate     = "gate"
	SpanRollback = "rollback"
)

// Names of the events of a gate span: one for each decision, and after it one for each of
// its checks.
const (
	EventDecision = "gate.decision"
	EventCheck    = "gate.check"
)

// Attributes of every span.
const (
	AttrNamespace = "k8s.namespace.name"
	AttrCanary    = "canary.name"
	AttrUID       = "canary.uid"
	AttrRollout   = "canary.rollout.id"
)

// Attributes of some spans and events.
const (
	AttrOutcome       = "canary.rollout.outcome"
	AttrBatches       = "canary.rollout.batches"
	AttrReason        = "canary.rollback.reason"
	AttrNew           = "canary.deployment.new"
	AttrOld           = "canary.deployment.old"
	AttrBatch         = "canary.batch"
	AttrTarget        = "canary.batch.target"
	AttrResult        = "canary.batch.result"
	AttrPaused        = "canary.batch.paused_seconds"
	AttrVerdict       = "canary.gate.verdict"
	AttrAction        = "canary.gate.action"
	AttrEvidence      = "canary.gate.evidence"
	AttrDecisions     = "canary.gate.decisions"
	AttrFailedChecks  = "canary.gate.failed_checks"
	AttrNumber        = "canary.gate.decision"
	AttrCheck         = "canary.gate.check"
	AttrCheckValue    = "canary.gate.check.value"
	AttrCheckLimit    = "canary.gate.check.limit"
	AttrCheckNewBad   = "canary.gate.check.new.bad"
	AttrCheckNewTotal = "canary.gate.check.new.total"
	AttrCheckOldBad   = "canary.gate.check.old.bad"
	AttrCheckOldTotal = "canary.gate.check.old.total"
)

// maxLinks bounds the links of a span; a decision has few exemplars.
const maxLinks = 10

// Flags of a span: sampled, and what is known of whether its parent is in another
// process; SpanFlags of opentelemetry-proto, trace.proto.
const (
	flagSampled      = 0x1
	flagKnowsRemote  = 0x100
	flagRemoteParent = 0x200
)

// Spans returns every span of c's rollout that has ended by what status says, those
// inside before what they are in. It returns none for a rollout without a trace id. Each
// span is the same, byte for byte, in every later status of the rollout, or no more in it:
// a gate span needs its decisions, of which status keeps the latest.
//
// The result shares nothing with c.
func Spans(c *v1alpha1.Canary) []*tracepb.Span {
	return Ended(nil, c)
}

// Ended returns the spans that ended by what changed from before to after, two statuses of
// one Canary; before may be nil. An attempt that was under way in before and that another
// has replaced in after ends when the other began.
func Ended(before, after *v1alpha1.Canary) []*tracepb.Span {
	told := map[span]bool{}
	if was, traced := newAttempt(before, nil); traced {
		for _, p := range was.ended() {
			told[span{was.id(), p}] = true
		}
	}
	var list []*tracepb.Span
	for _, c := range courses(before, after) {
		for _, p := range c.ended() {
			if !told[span{c.id(), p}] {
				list = append(list, c.span(p))
			}
		}
	}
	return list
}

// courses returns the attempt that after is about, behind the one of before if that was
// replaced.
func courses(before, after *v1alpha1.Canary) []attempt {
	var list []attempt
	if before != nil && after.Status.Rollout != nil {
		next := after.Status.Rollout
		if left, traced := newAttempt(before, &next.StartedAt); traced && !sameAttempt(before.Status.Rollout, next) {
			list = append(list, left)
		}
	}
	if a, traced := newAttempt(after, nil); traced {
		list = append(list, a)
	}
	return list
}

// span makes the span of a piece that has ended.
func (a attempt) span(p piece) *tracepb.Span {
	c, r := a.canary, a.rollout()
	s := &tracepb.Span{
		TraceId: a.trace, SpanId: spanID(a.trace, c.UID, r, p.path()), Name: p.name(),
		Kind: tracepb.Span_SPAN_KIND_INTERNAL, Flags: flagSampled | flagKnowsRemote, Status: &tracepb.Status{},
		Attributes: []*commonpb.KeyValue{
			text(AttrNamespace, c.Namespace), text(AttrCanary, c.Name), text(AttrUID, string(c.UID)), text(AttrRollout, r.ID),
		},
	}
	if above, ok := p.parent(); ok {
		s.ParentSpanId = spanID(a.trace, c.UID, r, above.path())
	} else if len(a.parent) > 0 {
		s.ParentSpanId = a.parent
		s.Flags |= flagRemoteParent
	}
	switch p.kind {
	case kindRollout:
		a.fillRollout(s)
	case kindRollback:
		a.fillRollback(s)
	default:
		add(s, number(AttrBatch, int64(p.batch)))
		a.fillBatch(s, p)
	}
	return s
}

func (a attempt) fillRollout(s *tracepb.Span) {
	r, ended := a.rollout(), a.first()
	during(s, &r.StartedAt, ended.at)
	add(s, text(AttrOutcome, ended.result))
	status := &a.canary.Status
	if _, of, ok := strings.Cut(status.Batch, "/"); ok {
		if batches, err := strconv.ParseInt(of, 10, 32); err == nil {
			add(s, number(AttrBatches, batches))
		}
	}
	if status.New != nil {
		add(s, text(AttrNew, status.New.Name))
	}
	if status.Old != nil {
		add(s, text(AttrOld, status.Old.Name))
	}
	if ended.result == string(v1alpha1.OutcomeRolledBack) {
		add(s, text(AttrReason, r.RollbackReason))
	}
	a.blame(s, ended.result, len(status.Batches))
}

func (a attempt) fillRollback(s *tracepb.Span) {
	r, ended := a.rollout(), a.back()
	during(s, r.RollbackStartedAt, ended.at)
	add(s, text(AttrReason, r.RollbackReason), text(AttrOutcome, ended.result))
}

func (a attempt) fillBatch(s *tracepb.Span, p piece) {
	status, b := a.canary.Status.Batches[p.batch-1], a.batch(p.batch)
	switch p.kind {
	case kindBatch:
		during(s, &status.StartedAt, b.end.at)
		add(s, text(AttrResult, b.end.result))
		if b.end.result != string(v1alpha1.OutcomeFailed) {
			// A NormalDeploy that failed goes on being applied, and its target follows an autoscaler.
			add(s, number(AttrTarget, int64(status.Target)))
		}
		a.blame(s, b.end.result, p.batch)
	case kindApply:
		if b.applied != nil {
			during(s, &status.StartedAt, b.applied)
			return
		}
		during(s, &status.StartedAt, b.end.at)
		a.cutShort(s, b, p.batch)
	case kindWait:
		from := &status.StartedAt
		if b.applied != nil {
			from = b.applied
		}
		if b.available != nil {
			during(s, from, b.available)
			add(s, number(AttrPaused, status.PausedSeconds))
			return
		}
		during(s, from, b.end.at)
		a.cutShort(s, b, p.batch)
	case kindGate:
		during(s, b.available, b.end.at)
		a.fillGate(s, p.batch, b.end)
	}
}

// cutShort says how a batch ended in which the span did not come to its own end.
func (a attempt) cutShort(s *tracepb.Span, b batch, n int) {
	add(s, text(AttrResult, b.end.result))
	a.blame(s, b.end.result, n)
}

// blame marks a span as failed by how the rollout or its batch n ended. What was
// superseded or deleted did not fail.
func (a attempt) blame(s *tracepb.Span, result string, n int) {
	switch result {
	case string(v1alpha1.OutcomeRolledBack):
		fail(s, "rolled back: "+a.rollout().RollbackReason)
	case string(v1alpha1.OutcomeFailed):
		if n > 0 && a.batch(n).available != nil {
			fail(s, fmt.Sprintf("the gate failed batch %d", n))
			return
		}
		fail(s, fmt.Sprintf("batch %d was not available in time", n))
	}
}

func (a attempt) fillGate(s *tracepb.Span, n int, ended end) {
	decisions, _ := a.decisions(n)
	last := decisions[len(decisions)-1]
	verdict := a.canary.Status.Batches[n-1].Verdict
	if verdict == "" {
		verdict = last.Verdict
	}
	add(s, text(AttrVerdict, string(verdict)), text(AttrAction, last.Action), text(AttrEvidence, last.Evidence),
		number(AttrDecisions, int64(max(int(last.Number), len(decisions)))))
	var failed []string
	for _, d := range decisions {
		at := nanos(&d.Time)
		s.Events = append(s.Events, &tracepb.Span_Event{TimeUnixNano: at, Name: EventDecision, Attributes: []*commonpb.KeyValue{
			number(AttrNumber, int64(d.Number)), text(AttrAction, d.Action), text(AttrVerdict, string(d.Verdict)), text(AttrEvidence, d.Evidence),
		}})
		for _, check := range d.Checks {
			s.Events = append(s.Events, &tracepb.Span_Event{TimeUnixNano: at, Name: EventCheck, Attributes: checkAttributes(d, check)})
			if check.Verdict == v1alpha1.VerdictFail && !slices.Contains(failed, check.Name) {
				failed = append(failed, check.Name)
			}
		}
		if d.Verdict == v1alpha1.VerdictFail {
			addLinks(s, d.TraceIDs)
		}
	}
	if len(failed) > 0 {
		add(s, texts(AttrFailedChecks, failed))
	}
	if last.Verdict == v1alpha1.VerdictFail && ended.result != resultFinished {
		fail(s, last.Evidence)
	}
}

func checkAttributes(d v1alpha1.GateDecision, check v1alpha1.DecisionCheck) []*commonpb.KeyValue {
	list := []*commonpb.KeyValue{
		number(AttrNumber, int64(d.Number)), text(AttrCheck, check.Name), text(AttrVerdict, string(check.Verdict)),
	}
	if check.Value != "" {
		list = append(list, text(AttrCheckValue, check.Value))
	}
	if check.Limit != "" {
		list = append(list, text(AttrCheckLimit, check.Limit))
	}
	if check.New != nil {
		list = append(list, number(AttrCheckNewBad, check.New.Bad), number(AttrCheckNewTotal, check.New.Total))
	}
	if check.Old != nil {
		list = append(list, number(AttrCheckOldBad, check.Old.Bad), number(AttrCheckOldTotal, check.Old.Total))
	}
	return list
}

// addLinks links to traces of bad requests. Exemplars say the trace and not which of its
// spans, so that the links have no span id.
func addLinks(s *tracepb.Span, traceIDs []string) {
	for _, id := range traceIDs {
		trace, ok := decodeTraceID(id)
		known := slices.ContainsFunc(s.Links, func(l *tracepb.Span_Link) bool { return slices.Equal(l.TraceId, trace) })
		if ok && !known && len(s.Links) < maxLinks {
			s.Links = append(s.Links, &tracepb.Span_Link{TraceId: trace})
		}
	}
}

// instantly is what every span lasts longer than status says, so that one that began and
// ended in the same second lasts at all: Jaeger mends spans of no duration when it takes or
// reads them, some copies of a span and not others, and then shows them all. As every span
// has it, one still lies within the one above.
const instantly = 1000

// during sets the times. Two controllers' clocks may differ; a span never ends before it begins.
func during(s *tracepb.Span, from, to *metav1.Time) {
	s.StartTimeUnixNano, s.EndTimeUnixNano = nanos(from), max(nanos(from), nanos(to))+instantly
}

// nanos has the resolution of a status, so that a time is the same before and after it
// went through the API server.
func nanos(t *metav1.Time) uint64 { return uint64(max(0, t.Unix())) * 1e9 }

func fail(s *tracepb.Span, message string) {
	s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: stored(message)}
}

func add(s *tracepb.Span, attributes ...*commonpb.KeyValue) {
	s.Attributes = append(s.Attributes, attributes...)
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: textValue(value)}
}

func texts(key string, list []string) *commonpb.KeyValue {
	array := &commonpb.ArrayValue{}
	for _, value := range list {
		array.Values = append(array.Values, textValue(value))
	}
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: array}}}
}

func textValue(value string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: stored(value)}}
}

func number(key string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

// stored is a string as it comes back from the API server: JSON has each byte that is not
// UTF-8 replaced.
func stored(value string) string { return string([]rune(value)) }
