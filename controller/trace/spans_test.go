package trace

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// canary of two batches, gated, that has just begun.
func canary() *v1alpha1.Canary {
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "reviews", UID: "uid-1"}}
	c.Status = v1alpha1.CanaryStatus{
		CurrentBatch: 1, Batch: "1/2",
		New:     &v1alpha1.WorkloadStatus{Name: "reviews-v2"},
		Old:     &v1alpha1.WorkloadStatus{Name: "reviews-v1"},
		Rollout: &v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: *at(0)},
		Batches: []v1alpha1.BatchStatus{{Target: 1, StartedAt: *at(0)}},
	}
	c.Status.Rollout.TraceID, _, _ = IDs(c.UID, c.Status.Rollout, "")
	return c
}

// The steps of a course.

func applied(s int) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { last(c).AppliedAt = at(s) }
}

func available(s int) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { last(c).AvailableAt = at(s) }
}

func decided(s int, action string, verdict v1alpha1.Verdict, evidence string, checks ...v1alpha1.DecisionCheck) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		last(c).Verdict = verdict
		if c.Status.Gate == nil {
			c.Status.Gate = &v1alpha1.GateStatus{}
		}
		g, n := c.Status.Gate, c.Status.CurrentBatch
		d := v1alpha1.GateDecision{Time: *at(s), Batch: n, Number: 1, Action: action, Verdict: verdict, Evidence: evidence, Checks: checks}
		if len(g.Decisions) > 0 && g.Decisions[len(g.Decisions)-1].Batch == n {
			d.Number = g.Decisions[len(g.Decisions)-1].Number + 1
		}
		if verdict == v1alpha1.VerdictFail {
			d.TraceIDs = []string{ciTrace, "no id", ciSpan}
		}
		g.Decisions = append(g.Decisions, d)
		g.Decisions = g.Decisions[max(0, len(g.Decisions)-keptDecisions):]
		g.Batch = n
	}
}

func finished(s int) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { last(c).FinishedAt = at(s) }
}

func nextBatch(s int) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		finished(s)(c)
		c.Status.CurrentBatch++
		c.Status.Batch = fmt.Sprintf("%d/2", c.Status.CurrentBatch)
		c.Status.Batches = append(c.Status.Batches, v1alpha1.BatchStatus{Target: 4, StartedAt: *at(s)})
	}
}

func over(s int, outcome v1alpha1.Outcome) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		r := c.Status.Rollout
		if r.Outcome != "" {
			r.EndedFirst = &v1alpha1.RolloutEnd{Outcome: r.Outcome, FinishedAt: *r.FinishedAt}
		}
		r.Outcome, r.FinishedAt = outcome, at(s)
	}
}

func goingBack(s int, reason string) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		r := c.Status.Rollout
		if r.Outcome != "" {
			r.EndedFirst = &v1alpha1.RolloutEnd{Outcome: r.Outcome, FinishedAt: *r.FinishedAt}
		}
		r.Outcome, r.FinishedAt, r.RollbackStartedAt, r.RollbackReason = "", nil, at(s), reason
	}
}

func replaced(s int) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		next := canary()
		next.Status.Rollout.ID, next.Status.Rollout.StartedAt = "v1-b", *at(s)
		next.Status.Rollout.TraceID, _, _ = IDs(c.UID, next.Status.Rollout, "")
		next.Status.Batches[0].StartedAt = *at(s)
		c.Status = next.Status
	}
}

func deleted(s int) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { c.DeletionTimestamp = at(s) }
}

func last(c *v1alpha1.Canary) *v1alpha1.BatchStatus {
	return &c.Status.Batches[len(c.Status.Batches)-1]
}

// course takes a Canary through steps and returns each of its states, the first included.
func course(steps ...func(*v1alpha1.Canary)) []*v1alpha1.Canary {
	states := []*v1alpha1.Canary{canary()}
	for _, step := range steps {
		next := states[len(states)-1].DeepCopy()
		step(next)
		states = append(states, next)
	}
	return states
}

// tell returns the spans of a course in the order in which they ended.
func tell(states []*v1alpha1.Canary) []*tracepb.Span {
	spans := Spans(states[0])
	for n := range states[1:] {
		spans = append(spans, Ended(states[n], states[n+1])...)
	}
	return spans
}

// line renders a span: name, times since the start, status, and what is special of it.
func line(s *tracepb.Span) string {
	since := func(nano uint64) int64 { return int64(nano/1e9) - t0.Unix() }
	text := fmt.Sprintf("%s %d-%d", s.Name, since(s.StartTimeUnixNano), since(s.EndTimeUnixNano))
	for _, kv := range s.Attributes {
		switch kv.Key {
		case AttrOutcome, AttrResult:
			text += " " + kv.Value.GetStringValue()
		}
	}
	if s.Status.Code == tracepb.Status_STATUS_CODE_ERROR {
		text += " !" + s.Status.Message
	}
	return text
}

const pass, harm, noData = v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictNoData

func TestSpansOfCourses(t *testing.T) {
	toBatch2 := []func(*v1alpha1.Canary){
		applied(2), available(10), decided(11, "Hold", noData, "no requests"), decided(40, "Promote", pass, "0 of 900"), nextBatch(41),
	}
	batch1 := []string{"apply 0-2", "wait available 2-10", "gate 10-41", "batch 1 0-41 Finished"}
	with := func(more ...func(*v1alpha1.Canary)) []func(*v1alpha1.Canary) {
		return append(slices.Clone(toBatch2), more...)
	}
	after := func(more ...string) []string { return append(slices.Clone(batch1), more...) }
	for _, test := range []struct {
		name  string
		steps []func(*v1alpha1.Canary)
		want  []string
	}{
		{name: "just begun"},
		{"completed", with(applied(43), available(50), decided(80, "Promote", pass, "fine"), finished(80), over(90, v1alpha1.OutcomeCompleted)), after(
			"apply 41-43", "wait available 43-50", "gate 50-80", "batch 2 41-80 Finished", "rollout 0-90 Completed")},
		{"without a gate", []func(*v1alpha1.Canary){applied(1), available(5), finished(60), over(61, v1alpha1.OutcomeCompleted)}, []string{
			"apply 0-1", "wait available 1-5", "batch 1 0-60 Finished", "rollout 0-61 Completed"}},
		{"the gate fails", with(applied(43), available(50), decided(60, "Hold", noData, "few"), decided(70, "Rollback", harm, "9 of 90 bad"),
			goingBack(70, "the gate failed batch 2"), over(100, v1alpha1.OutcomeRolledBack)), after(
			"apply 41-43", "wait available 43-50", "gate 50-70 !9 of 90 bad", "batch 2 41-70 RolledBack !rolled back: the gate failed batch 2",
			"rollback 70-100 RolledBack", "rollout 0-100 RolledBack !rolled back: the gate failed batch 2")},
		{"the gate fails without an old version", []func(*v1alpha1.Canary){applied(1), available(5), decided(9, "Rollback", harm, "bad"), over(9, v1alpha1.OutcomeFailed)}, []string{
			"apply 0-1", "wait available 1-5", "gate 5-9 !bad", "batch 1 0-9 Failed !the gate failed batch 1", "rollout 0-9 Failed !the gate failed batch 1"}},
		{"a failure that a person lets through", []func(*v1alpha1.Canary){applied(1), available(5), decided(9, "Pause", harm, "bad"), decided(30, "Override", harm, "let through"),
			finished(30), over(31, v1alpha1.OutcomeCompleted)}, []string{
			"apply 0-1", "wait available 1-5", "gate 5-30", "batch 1 0-30 Finished", "rollout 0-31 Completed"}},
		{"the deadline passes", []func(*v1alpha1.Canary){applied(3), over(600, v1alpha1.OutcomeFailed)}, []string{
			"apply 0-3", "wait available 3-600 Failed !batch 1 was not available in time",
			"batch 1 0-600 Failed !batch 1 was not available in time", "rollout 0-600 Failed !batch 1 was not available in time"}},
		{"the deadline passes before it is applied", []func(*v1alpha1.Canary){over(600, v1alpha1.OutcomeFailed)}, []string{
			"apply 0-600 Failed !batch 1 was not available in time",
			"batch 1 0-600 Failed !batch 1 was not available in time", "rollout 0-600 Failed !batch 1 was not available in time"}},
		{"failed, then rolled back", []func(*v1alpha1.Canary){applied(3), over(600, v1alpha1.OutcomeFailed), goingBack(700, "requested"), over(720, v1alpha1.OutcomeRolledBack)}, []string{
			"apply 0-3", "wait available 3-600 Failed !batch 1 was not available in time",
			"batch 1 0-600 Failed !batch 1 was not available in time", "rollout 0-600 Failed !batch 1 was not available in time",
			"rollback 700-720 RolledBack"}},
		{"completed, then rolled back", []func(*v1alpha1.Canary){applied(1), available(5), finished(5), over(9, v1alpha1.OutcomeCompleted),
			goingBack(900, "requested"), over(950, v1alpha1.OutcomeRolledBack)}, []string{
			"apply 0-1", "wait available 1-5", "batch 1 0-5 Finished", "rollout 0-9 Completed", "rollback 900-950 RolledBack"}},
		{"began as a rollback", []func(*v1alpha1.Canary){goingBack(0, "requested"), over(20, v1alpha1.OutcomeRolledBack)}, []string{
			"rollback 0-20 RolledBack", "rollout 0-20 RolledBack !rolled back: requested"}},
		{"rolled back before it is available", []func(*v1alpha1.Canary){applied(1), goingBack(4, "requested"), over(20, v1alpha1.OutcomeRolledBack)}, []string{
			"apply 0-1", "wait available 1-4 RolledBack !rolled back: requested", "batch 1 0-4 RolledBack !rolled back: requested",
			"rollback 4-20 RolledBack", "rollout 0-20 RolledBack !rolled back: requested"}},
		{"NormalDeploy available after its deadline", []func(*v1alpha1.Canary){applied(1), over(600, v1alpha1.OutcomeFailed),
			func(c *v1alpha1.Canary) { available(800)(c); finished(800)(c); over(800, v1alpha1.OutcomeCompleted)(c) }}, []string{
			"apply 0-1", "wait available 1-600 Failed !batch 1 was not available in time",
			"batch 1 0-600 Failed !batch 1 was not available in time", "rollout 0-600 Failed !batch 1 was not available in time"}},
		{"superseded", with(applied(43), replaced(60), applied(62)), after(
			"apply 41-43", "wait available 43-60 Superseded", "batch 2 41-60 Superseded", "rollout 0-60 Superseded", "apply 60-62")},
		{"superseded while going back", []func(*v1alpha1.Canary){applied(1), goingBack(4, "requested"), replaced(8)}, []string{
			"apply 0-1", "wait available 1-4 RolledBack !rolled back: requested", "batch 1 0-4 RolledBack !rolled back: requested",
			"rollback 4-8 Superseded", "rollout 0-8 Superseded"}},
		{"superseded after its end", []func(*v1alpha1.Canary){applied(1), available(5), finished(5), over(9, v1alpha1.OutcomeCompleted), replaced(50)}, []string{
			"apply 0-1", "wait available 1-5", "batch 1 0-5 Finished", "rollout 0-9 Completed"}},
		{"deleted", []func(*v1alpha1.Canary){applied(1), available(5), decided(6, "Hold", noData, "no requests"), deleted(30)}, []string{
			"apply 0-1", "wait available 1-5", "gate 5-30", "batch 1 0-30 Deleted", "rollout 0-30 Deleted"}},
		{"deleted after its end", []func(*v1alpha1.Canary){applied(1), available(5), finished(5), over(9, v1alpha1.OutcomeCompleted), deleted(30)}, []string{
			"apply 0-1", "wait available 1-5", "batch 1 0-5 Finished", "rollout 0-9 Completed"}},
		{"clocks that differ", []func(*v1alpha1.Canary){applied(2), available(1), finished(1), over(1, v1alpha1.OutcomeCompleted)}, []string{
			"apply 0-2", "wait available 2-2", "batch 1 0-1 Finished", "rollout 0-1 Completed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			states := course(test.steps...)
			spans := tell(states)
			var got []string
			for _, s := range spans {
				got = append(got, line(s))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("want, got:\n%s", diff)
			}
			checkTree(t, spans)
			checkStable(t, states)
		})
	}
}

// checkTree holds that every span's parent is there, that times are in order, and that
// each trace has one span at the top and no span twice.
func checkTree(t *testing.T, spans []*tracepb.Span) {
	t.Helper()
	ended := map[string]bool{}
	byID := map[string]*tracepb.Span{}
	for _, s := range spans {
		id := string(s.SpanId)
		if byID[id] != nil {
			t.Errorf("%s was told twice", line(s))
		}
		byID[id] = s
		if s.Name == SpanRollout {
			ended[string(s.TraceId)] = true
		}
		if s.EndTimeUnixNano <= s.StartTimeUnixNano {
			t.Errorf("%s does not end after it began", line(s))
		}
	}
	for _, s := range spans {
		parent := byID[string(s.ParentSpanId)]
		switch {
		case !ended[string(s.TraceId)]:
		case s.Name == SpanRollout:
			if len(s.ParentSpanId) > 0 && hex.EncodeToString(s.ParentSpanId) != ciSpan {
				t.Errorf("%s is below %x", line(s), s.ParentSpanId)
			}
		case parent == nil || string(parent.TraceId) != string(s.TraceId):
			t.Errorf("%s has no parent", line(s))
		case parent.StartTimeUnixNano > s.StartTimeUnixNano:
			t.Errorf("%s begins before %s", line(s), line(parent))
		case (s.Name == SpanRollback || s.Name == SpanGate || s.Name == SpanApply || s.Name == SpanWait) == strings.HasPrefix(s.Name, SpanBatch):
			t.Errorf("%s is of no known kind", line(s))
		}
	}
}

// checkStable holds that a span is the same in every state that has it, also after the
// states went through the API server, and that only gate spans are ever forgotten.
func checkStable(t *testing.T, states []*v1alpha1.Canary) {
	t.Helper()
	content := map[string]string{}
	for n, state := range states {
		in := map[string]bool{}
		for _, c := range []*v1alpha1.Canary{state, throughJSON(t, state)} {
			for _, s := range Spans(c) {
				id, bytes := string(s.SpanId), wire(t, s)
				if known, ok := content[id]; ok && known != bytes {
					t.Errorf("state %d tells %s differently", n, line(s))
				}
				content[id], in[id] = bytes, true
			}
		}
		if n == 0 || !sameAttempt(states[n-1].Status.Rollout, state.Status.Rollout) {
			continue
		}
		for _, s := range Spans(states[n-1]) {
			if !in[string(s.SpanId)] && s.Name != SpanGate {
				t.Errorf("state %d has forgotten %s", n, line(s))
			}
		}
	}
}

// tester is a testing.T or a rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
}

func throughJSON(t tester, c *v1alpha1.Canary) *v1alpha1.Canary {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.Canary
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return &back
}

func wire(t tester, s *tracepb.Span) string {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// plain renders attributes as a map.
func plain(list []*commonpb.KeyValue) map[string]any {
	out := map[string]any{}
	for _, kv := range list {
		switch value := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			out[kv.Key] = value.StringValue
		case *commonpb.AnyValue_IntValue:
			out[kv.Key] = value.IntValue
		case *commonpb.AnyValue_ArrayValue:
			var items []string
			for _, item := range value.ArrayValue.Values {
				items = append(items, item.GetStringValue())
			}
			out[kv.Key] = items
		}
	}
	return out
}

func find(t *testing.T, spans []*tracepb.Span, name string) *tracepb.Span {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no span %s", name)
	return nil
}
