package trace

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func failedGate() []*v1alpha1.Canary {
	return course(applied(2), available(10),
		decided(20, "Hold", noData, "no requests"),
		decided(70, "Rollback", harm, "error-rate is 10%",
			v1alpha1.DecisionCheck{Name: "error-rate", Verdict: harm, Value: "10%", Limit: "1%", New: &v1alpha1.RequestCounts{Bad: 9, Total: 90}, Old: &v1alpha1.RequestCounts{Bad: 0, Total: 900}},
			v1alpha1.DecisionCheck{Name: "p99", Verdict: pass, Value: "0.2", Limit: "0.5"}),
		goingBack(70, "the gate failed batch 1"), over(100, v1alpha1.OutcomeRolledBack))
}

func TestContent(t *testing.T) {
	states := failedGate()
	c := states[len(states)-1]
	c.Status.Batches[0].PausedSeconds = 4
	spans := Spans(c)
	common := map[string]any{AttrNamespace: "prod", AttrCanary: "reviews", AttrUID: "uid-1", AttrRollout: "v1-a"}
	with := func(more map[string]any) map[string]any {
		for k, v := range common {
			more[k] = v
		}
		return more
	}
	for name, want := range map[string]map[string]any{
		SpanRollout:  {AttrOutcome: "RolledBack", AttrBatches: int64(2), AttrNew: "reviews-v2", AttrOld: "reviews-v1", AttrReason: "the gate failed batch 1"},
		"batch 1":    {AttrBatch: int64(1), AttrTarget: int64(1), AttrResult: "RolledBack"},
		SpanApply:    {AttrBatch: int64(1)},
		SpanWait:     {AttrBatch: int64(1), AttrPaused: int64(4)},
		SpanRollback: {AttrReason: "the gate failed batch 1", AttrOutcome: "RolledBack"},
		SpanGate: {AttrBatch: int64(1), AttrVerdict: "Fail", AttrAction: "Rollback", AttrEvidence: "error-rate is 10%",
			AttrDecisions: int64(2), AttrFailedChecks: []string{"error-rate"}},
	} {
		s := find(t, spans, name)
		if diff := cmp.Diff(with(want), plain(s.Attributes)); diff != "" {
			t.Errorf("%s: want, got:\n%s", name, diff)
		}
		if hex.EncodeToString(s.TraceId) != c.Status.Rollout.TraceID || s.Flags != 0x101 || s.Kind != tracepb.Span_SPAN_KIND_INTERNAL {
			t.Errorf("%s: trace %x, flags %x, kind %s", name, s.TraceId, s.Flags, s.Kind)
		}
	}

	gate := find(t, spans, SpanGate)
	var events []map[string]any
	for _, e := range gate.Events {
		event := plain(e.Attributes)
		event["event"], event["at"] = e.Name, int(e.TimeUnixNano/1e9)-int(t0.Unix())
		events = append(events, event)
	}
	if diff := cmp.Diff([]map[string]any{
		{"event": EventDecision, "at": 20, AttrNumber: int64(1), AttrAction: "Hold", AttrVerdict: "NoData", AttrEvidence: "no requests"},
		{"event": EventDecision, "at": 70, AttrNumber: int64(2), AttrAction: "Rollback", AttrVerdict: "Fail", AttrEvidence: "error-rate is 10%"},
		{"event": EventCheck, "at": 70, AttrNumber: int64(2), AttrCheck: "error-rate", AttrVerdict: "Fail", AttrCheckValue: "10%", AttrCheckLimit: "1%",
			AttrCheckNewBad: int64(9), AttrCheckNewTotal: int64(90), AttrCheckOldBad: int64(0), AttrCheckOldTotal: int64(900)},
		{"event": EventCheck, "at": 70, AttrNumber: int64(2), AttrCheck: "p99", AttrVerdict: "Pass", AttrCheckValue: "0.2", AttrCheckLimit: "0.5"},
	}, events); diff != "" {
		t.Errorf("events: want, got:\n%s", diff)
	}
	var links []string
	for _, l := range gate.Links {
		links = append(links, hex.EncodeToString(l.TraceId))
	}
	if diff := cmp.Diff([]string{ciTrace, strings.Repeat("0", 16) + ciSpan}, links); diff != "" {
		t.Errorf("links: want, got:\n%s", diff)
	}
}

func TestContinuesTheTraceOfCI(t *testing.T) {
	c := course(applied(1), available(2), finished(3), over(4, v1alpha1.OutcomeCompleted))[4]
	c.Status.Rollout.TraceID, c.Status.Rollout.ParentSpanID, _ = IDs(c.UID, c.Status.Rollout, ciParent)
	spans := Spans(c)
	top := find(t, spans, SpanRollout)
	if hex.EncodeToString(top.TraceId) != ciTrace || hex.EncodeToString(top.ParentSpanId) != ciSpan || top.Flags != 0x301 {
		t.Errorf("rollout is in %x below %x with flags %x", top.TraceId, top.ParentSpanId, top.Flags)
	}
	checkTree(t, spans)
}

func TestNothingIsTracedWithoutAnID(t *testing.T) {
	c := course(applied(1), available(2), finished(3), over(4, v1alpha1.OutcomeCompleted))[4]
	for _, id := range []string{"", "abc", strings.Repeat("0", 32), ciSpan} {
		c.Status.Rollout.TraceID = id
		if spans := Spans(c); len(spans) != 0 {
			t.Errorf("trace id %q: %d spans", id, len(spans))
		}
	}
	c.Status.Rollout = nil
	if spans := append(Spans(c), Spans(nil)...); len(spans) != 0 {
		t.Errorf("without a rollout: %d spans", len(spans))
	}
	if spans := Ended(canary(), c); len(spans) != 0 {
		t.Errorf("a status that lost its rollout: %d spans", len(spans))
	}
}

// TestGateSpanNeedsAllItsDecisions holds that a gate span does not come out with fewer
// decisions than it was told with once.
func TestGateSpanNeedsAllItsDecisions(t *testing.T) {
	for _, decisions := range []int{1, 10, 29, 30, 31, 45} {
		t.Run(fmt.Sprint(decisions), func(t *testing.T) {
			steps := []func(*v1alpha1.Canary){applied(1), available(2)}
			for i := range decisions {
				verdict := []v1alpha1.Verdict{noData, pass}[i%2]
				steps = append(steps, decided(3+i, "Hold", verdict, fmt.Sprint("decision ", i+1)))
			}
			steps = append(steps, nextBatch(100), applied(101), available(102))
			for i := range 31 {
				steps = append(steps, decided(103+i, "Hold", noData, fmt.Sprint("decision ", i+1)))
			}
			states := course(steps...)
			checkStable(t, states)
			gate := find(t, tell(states), SpanGate)
			if len(gate.Events) != min(decisions, keptDecisions) || plain(gate.Attributes)[AttrDecisions] != int64(decisions) {
				t.Errorf("told with %d events and %v decisions", len(gate.Events), plain(gate.Attributes)[AttrDecisions])
			}
			for _, s := range Spans(states[len(states)-1]) {
				if s.Name == SpanGate {
					t.Errorf("still told when its decisions are gone: %v", s)
				}
			}
		})
	}
}

// TestTextIsAsItComesBack holds that bytes which are not UTF-8 are told as the API server
// keeps them.
func TestTextIsAsItComesBack(t *testing.T) {
	checkStable(t, course(applied(1), available(2), decided(3, "Rollback", harm, "\xff\xfe: no \xc3 text"),
		goingBack(3, "bad \xff\xff"), over(9, v1alpha1.OutcomeRolledBack)))
}

func TestSpansShareNothingWithTheCanary(t *testing.T) {
	states := failedGate()
	c := states[len(states)-1]
	before := c.DeepCopy()
	for _, s := range Spans(c) {
		for i := range s.TraceId {
			s.TraceId[i] = 0
		}
		s.Name, s.Attributes, s.Events = "", nil, nil
	}
	if diff := cmp.Diff(before, c); diff != "" {
		t.Error(diff)
	}
}
