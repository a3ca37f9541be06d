package trace

import (
	"fmt"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

// drive takes a Canary through a random course by the controller's own rules: it decides
// with rollout.Next, as the reconciler does, about Deployments that do what they are told
// sooner or later, while people change their minds and a gate its verdict.
type drive struct {
	t        *rapid.T
	plan     rollout.Plan
	live     map[string]*rollout.Workload
	now      time.Time
	releases int
	fromCI   bool
	flaky    int
	// stuck is for how many syncs nothing becomes available.
	stuck     int
	decisions int
	began     time.Time
}

func newDrive(t *rapid.T, kind v1alpha1.CanaryType) *drive {
	d := &drive{t: t, now: t0, fromCI: rapid.Bool().Draw(t, "from CI"), flaky: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "flaky")}
	d.stuck = rapid.SampledFrom([]int{0, 20}).Draw(t, "stuck")
	d.live = map[string]*rollout.Workload{}
	d.plan = rollout.Plan{
		ID: "v1-0", Type: v1alpha1.CanaryDeploy, NewName: "new-0", OldName: "old", Total: 4,
		Targets:  rollout.FormulaTargets(4, rapid.Int32Range(1, 4).Draw(t, "batches")),
		Pause:    rapid.SampledFrom([]v1alpha1.PauseType{v1alpha1.PauseNone, v1alpha1.PauseFirst, v1alpha1.PauseEach}).Draw(t, "pause"),
		Approved: 1, Gated: rapid.Bool().Draw(t, "gated"), ProgressDeadline: 10 * time.Minute,
	}
	d.live["old"] = &rollout.Workload{Exists: true, Settled: true, Current: true, Replicas: 4, Available: 4, Updated: 4}
	switch {
	case kind == v1alpha1.NormalDeploy:
		d.plan.Type, d.plan.OldName, d.plan.Targets, d.plan.Gated = kind, "", []int32{4}, false
	case d.chance(4, "no old version"):
		d.plan.OldName = ""
	}
	return d
}

// chance is true in one of n cases.
func (d *drive) chance(n int, what string) bool { return rapid.IntRange(1, n).Draw(d.t, what) == n }

// happen lets something happen to the world.
func (d *drive) happen() {
	d.now = d.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 5, 30, 120, 400}).Draw(d.t, "passes")) * time.Second)
	p := &d.plan
	switch {
	case d.chance(5, "approve"):
		p.Approved++
	case d.chance(25, "pause"):
		p.Paused = !p.Paused
	case d.chance(20, "roll back") && p.Type == v1alpha1.CanaryDeploy && p.OldName != "":
		p.Type = v1alpha1.CanaryRollback
	case d.chance(40, "go on") && p.Type == v1alpha1.CanaryRollback:
		p.Type = v1alpha1.CanaryDeploy
	case d.chance(40, "another release"):
		d.releases++
		p.ID, p.NewName = fmt.Sprint("v1-", d.releases), fmt.Sprint("new-", d.releases)
		if p.Type == v1alpha1.CanaryRollback {
			p.Type = v1alpha1.CanaryDeploy
		}
	case d.chance(25, "retry") && d.now.Sub(d.began) >= time.Second:
		// Within the second of its start a retry would be the same attempt again.
		p.Retry += "x"
	case d.chance(25, "autoscaler"):
		p.Total = rapid.Int32Range(1, 6).Draw(d.t, "total")
		if p.Type == v1alpha1.NormalDeploy {
			p.Targets = []int32{p.Total}
		} else {
			p.Targets = rollout.FormulaTargets(p.Total, int32(len(p.Targets)))
		}
	}
	d.stuck--
	for name, w := range d.live {
		w.Settled, w.Current = true, true
		w.Available = min(w.Available, w.Replicas)
		if d.stuck > 0 && name != "old" {
			w.Available = 0
		} else if !d.chance(1+d.flaky, "becomes available") {
			w.Available = rapid.Int32Range(0, w.Replicas).Draw(d.t, "available")
		} else {
			w.Available = w.Replicas
		}
		w.Updated = w.Available
	}
}

// judge is a gate that says anything, and notes in status what it says, under the rules of
// package gate: only about a batch that status says to be available and unfinished.
func (d *drive) judge(status *v1alpha1.CanaryStatus) (rollout.Evidence, *v1alpha1.GateStatus) {
	if !d.plan.Gated {
		return rollout.NoGate, nil
	}
	held := rollout.Evidence{Action: rollout.GateHold, Message: "not yet"}
	r, n := status.Rollout, int(status.CurrentBatch)
	if r == nil || r.ID != d.plan.ID || r.Outcome != "" || r.RollbackStartedAt != nil || d.plan.Type != v1alpha1.CanaryDeploy ||
		status.Batches[n-1].AvailableAt == nil || status.Batches[n-1].FinishedAt != nil {
		return held, status.Gate
	}
	e := rapid.SampledFrom([]rollout.Evidence{
		{Verdict: pass, Action: rollout.GatePromote, Message: "fine"},
		{Verdict: pass, Action: rollout.GatePromote, Message: "fine"},
		{Verdict: noData, Action: rollout.GateHold, Message: "no \xff requests"},
		{Verdict: v1alpha1.VerdictError, Action: rollout.GateHold, Message: "no answer"},
		{Verdict: noData, Action: rollout.GatePause, Message: "held for long"},
		{Verdict: pass, Action: rollout.GateHold, Message: "too long ago"},
		{Verdict: harm, Action: rollout.GatePause, Message: "bad"},
		{Verdict: harm, Action: rollout.GateRollback, Message: "bad"},
	}).Draw(d.t, "evidence")
	c := v1alpha1.Canary{Status: *status.DeepCopy()}
	var lastly v1alpha1.GateDecision
	if g := status.Gate; g != nil && len(g.Decisions) > 0 {
		lastly = g.Decisions[len(g.Decisions)-1]
	}
	if lastly.Batch != status.CurrentBatch || lastly.Verdict != e.Verdict || lastly.Action != string(e.Action) {
		d.decisions++
		decided(int(d.now.Sub(t0)/time.Second), string(e.Action), e.Verdict, fmt.Sprint(e.Message, d.decisions),
			v1alpha1.DecisionCheck{Name: "errors", Verdict: e.Verdict, Value: fmt.Sprint(d.decisions)})(&c)
	}
	return e, c.Status.Gate
}

// sync decides once, carries the decision out and returns the status.
func (d *drive) sync(c *v1alpha1.Canary) *v1alpha1.CanaryStatus {
	get := func(name string) rollout.Workload {
		if w := d.live[name]; w != nil {
			return *w
		}
		return rollout.Workload{}
	}
	seen := rollout.Observed{New: get(d.plan.NewName), Old: get(d.plan.OldName), Retiring: map[string]rollout.Workload{}}
	for name := range d.live {
		if name != d.plan.NewName && name != d.plan.OldName {
			seen.Retiring[name] = get(name)
		}
	}
	evidence, gate := d.judge(&c.Status)
	next := rollout.Next(d.plan, seen, rollout.StateOf(&c.Status), evidence, d.now)
	if r := next.State.Rollout; r != nil && !sameAttempt(r, c.Status.Rollout) {
		traceparent := ""
		if d.fromCI {
			traceparent = ciParent
		}
		d.began = d.now
		r.TraceID, r.ParentSpanID, _ = IDs(c.UID, r, traceparent)
		gate = nil
	}
	next.Gate = gate
	for name, action := range next.Actions {
		w := d.live[name]
		switch {
		case action.Verb == rollout.Delete:
			delete(d.live, name)
			continue
		case w == nil:
			w = &rollout.Workload{Exists: true}
			d.live[name] = w
		}
		w.Replicas = action.Replicas
	}
	return rollout.Status(&c.Status, 1, d.plan, seen, next, d.now)
}

// TestAnyCourse holds, over random courses, what the package promises: every span is told
// once by Ended, is the same in every later status that has it, and has its parent there.
func TestAnyCourse(t *testing.T) {
	ends := map[string]int{}
	for _, kind := range []v1alpha1.CanaryType{v1alpha1.CanaryDeploy, v1alpha1.NormalDeploy} {
		rapid.Check(t, func(t *rapid.T) { checkCourse(t, newDrive(t, kind), ends) })
	}
	for _, want := range []string{SpanRollout, "batch 1", "batch 3", SpanApply, SpanWait, SpanGate, SpanRollback, "Completed", "RolledBack", "Failed", resultSuperseded,
		"Completed then RolledBack", "Failed then RolledBack", "Failed then Completed"} {
		if ends[want] == 0 {
			t.Errorf("no course came to %s: %v", want, ends)
		}
	}
}

// checkCourse takes a Canary through one course and counts in ends what it came to.
func checkCourse(t *rapid.T, d *drive, ends map[string]int) {
	c := canary()
	c.Status = v1alpha1.CanaryStatus{}
	content, told := map[string]string{}, map[string]bool{}
	var all []*tracepb.Span
	note := func(s *tracepb.Span) {
		id := string(s.TraceId) + string(s.SpanId)
		if known, ok := content[id]; ok && known != wire(t, s) {
			t.Fatalf("%s is told differently", line(s))
		}
		content[id] = wire(t, s)
	}
	for range rapid.IntRange(40, 90).Draw(t, "syncs") {
		d.happen()
		before := c
		after := before.DeepCopy()
		after.Status = *d.sync(before)
		for _, s := range Ended(before, after) {
			id := string(s.TraceId) + string(s.SpanId)
			if told[id] {
				t.Fatalf("%s is told twice", line(s))
			}
			told[id] = true
			all = append(all, s)
			note(s)
			if s.EndTimeUnixNano > uint64(d.now.UnixNano())+instantly {
				t.Fatalf("%s ends in the future", line(s))
			}
		}
		c = throughJSON(t, after)
		if r := c.Status.Rollout; r != nil && r.EndedFirst != nil && r.Outcome != "" {
			ends[fmt.Sprintf("%s then %s", r.EndedFirst.Outcome, r.Outcome)]++
		}
		has := map[string]bool{}
		for _, s := range Spans(c) {
			note(s)
			id := string(s.TraceId) + string(s.SpanId)
			has[id] = true
			if !told[id] {
				t.Fatalf("%s has not been told when it ended", line(s))
			}
		}
		if !sameAttempt(before.Status.Rollout, c.Status.Rollout) {
			continue
		}
		for _, s := range Spans(before) {
			if !has[string(s.TraceId)+string(s.SpanId)] && s.Name != SpanGate {
				t.Fatalf("%s is forgotten", line(s))
			}
		}
	}
	checkParents(t, all, c)
	for _, s := range all {
		ends[s.Name]++
		if s.Name == SpanRollout {
			ends[plain(s.Attributes)[AttrOutcome].(string)]++
		}
	}
}

// checkParents holds that each span is below another of its attempt, which lasts no less
// long; those at the top below nothing or the job's span. Only what the last attempt has
// not ended yet may be missing.
func checkParents(t *rapid.T, all []*tracepb.Span, c *v1alpha1.Canary) {
	byID, open := map[string]*tracepb.Span{}, map[string]bool{}
	for _, s := range all {
		byID[string(s.SpanId)] = s
	}
	if a, traced := newAttempt(c, nil); traced {
		for n := range len(c.Status.Batches) + 1 {
			p := piece{kind: kindRollout}
			if n > 0 {
				p = piece{kindBatch, n}
			}
			open[string(spanID(a.trace, c.UID, a.rollout(), p.path()))] = true
		}
	}
	for _, s := range all {
		parent := byID[string(s.ParentSpanId)]
		switch {
		case s.Name == SpanRollout:
			if len(s.ParentSpanId) > 0 && fmt.Sprintf("%x", s.ParentSpanId) != ciSpan {
				t.Fatalf("%s is below %x", line(s), s.ParentSpanId)
			}
		case parent == nil && open[string(s.ParentSpanId)]:
		case parent == nil || plain(parent.Attributes)[AttrRollout] != plain(s.Attributes)[AttrRollout]:
			t.Fatalf("%s has no parent", line(s))
		case s.StartTimeUnixNano < parent.StartTimeUnixNano:
			t.Fatalf("%s begins before %s", line(s), line(parent))
		case s.EndTimeUnixNano > parent.EndTimeUnixNano && s.Name != SpanRollback:
			t.Fatalf("%s ends after %s", line(s), line(parent))
		}
	}
}
