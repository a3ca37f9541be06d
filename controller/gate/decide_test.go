package gate

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// evaluated is a status of the tests' batch, evaluated that many seconds into its window.
func evaluated(verdict v1alpha1.Verdict, seconds int) *v1alpha1.GateStatus {
	return &v1alpha1.GateStatus{
		Batch: 1, WindowStart: metav1.Time{Time: t0}, Verdict: verdict, Message: "why", Evaluations: 1,
		EvaluatedAt: &metav1.Time{Time: after(seconds)},
	}
}

func TestDecide(t *testing.T) {
	rollback := v1alpha1.Gate{OnFail: v1alpha1.GateRollback, OnHold: v1alpha1.GateRollback}
	pause := v1alpha1.Gate{OnFail: v1alpha1.GatePause, OnHold: v1alpha1.GatePause}
	paused := func(s *v1alpha1.GateStatus) *v1alpha1.GateStatus {
		s.PausedAt = &metav1.Time{Time: after(50)}
		return s
	}
	other := evaluated(v1alpha1.VerdictPass, 60)
	other.Batch = 2
	tests := []struct {
		name     string
		spec     v1alpha1.Gate
		status   *v1alpha1.GateStatus
		override bool
		seconds  int
		want     Outcome
		pausedAt int
	}{
		{"nothing evaluated", v1alpha1.Gate{}, nil, false, 10, Outcome{v1alpha1.VerdictNoData, Hold, "not evaluated yet", 1790 * time.Second}, 0},
		{"another batch evaluated", v1alpha1.Gate{}, other, false, 60, Outcome{v1alpha1.VerdictNoData, Hold, "not evaluated yet", 1740 * time.Second}, 0},
		{"pass", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 60), false, 61, Outcome{v1alpha1.VerdictPass, Promote, "why", 1800 * time.Second}, 0},
		{"pass, three intervals ago", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 60), false, 150, Outcome{v1alpha1.VerdictPass, Promote, "why", 1800 * time.Second}, 0},
		{"pass, longer ago", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 60), false, 151, Outcome{v1alpha1.VerdictPass, Hold, "must be evaluated again, as the last time is too long ago; why", 1800 * time.Second}, 0},
		{"pass after the deadline", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 1801), false, 1801, Outcome{v1alpha1.VerdictPass, Promote, "why", 1800 * time.Second}, 0},
		{"pass of long ago", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 60), false, 1800, Outcome{v1alpha1.VerdictPass, Hold, "must be evaluated again, as the last time is too long ago; why", 1800 * time.Second}, 0},
		{"pass by a clock ahead", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 600), false, 61, Outcome{v1alpha1.VerdictPass, Hold, "must be evaluated again, as the last time is too long ago; why", 1800 * time.Second}, 0},
		{"no data long ago", rollback, evaluated(v1alpha1.VerdictNoData, 60), false, 4000, Outcome{v1alpha1.VerdictNoData, Hold, "why", 0}, 0},
		{"fail", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictFail, 60), false, 61, Outcome{v1alpha1.VerdictFail, Rollback, "why", 1739 * time.Second}, 0},
		{"fail, long ago", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictFail, 60), false, 1000, Outcome{v1alpha1.VerdictFail, Rollback, "why", 800 * time.Second}, 0},
		{"fail, to pause", pause, evaluated(v1alpha1.VerdictFail, 60), false, 61, Outcome{v1alpha1.VerdictFail, Pause, "why", 1739 * time.Second}, 61},
		{"no data", rollback, evaluated(v1alpha1.VerdictNoData, 60), false, 1799, Outcome{v1alpha1.VerdictNoData, Hold, "why", time.Second}, 0},
		{"error", rollback, evaluated(v1alpha1.VerdictError, 60), false, 1799, Outcome{v1alpha1.VerdictError, Hold, "why", time.Second}, 0},
		{"no data at the deadline", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictNoData, 1790), false, 1800, Outcome{v1alpha1.VerdictNoData, Pause, "no verdict within 30m0s; why", 0}, 1800},
		{"error at the deadline, to roll back", rollback, evaluated(v1alpha1.VerdictError, 1790), false, 1800, Outcome{v1alpha1.VerdictError, Rollback, "no verdict within 30m0s; why", 0}, 0},
		{"no answer for minutes at the deadline", rollback, evaluated(v1alpha1.VerdictError, 1600), false, 1900, Outcome{v1alpha1.VerdictError, Rollback, "no verdict within 30m0s; why", 0}, 0},
		{"no look for longer", rollback, evaluated(v1alpha1.VerdictError, 1600), false, 1901, Outcome{v1alpha1.VerdictError, Hold, "why", 0}, 0},
		{"never evaluated at the deadline", rollback, nil, false, 2000, Outcome{v1alpha1.VerdictNoData, Hold, "not evaluated yet", 0}, 0},
		{"health does not end a pause", v1alpha1.Gate{}, paused(evaluated(v1alpha1.VerdictPass, 60)), false, 61, Outcome{v1alpha1.VerdictPass, Pause, "waiting for a person since 2026-11-30T08:00:50Z; why", 1800 * time.Second}, 50},
		{"nor does lack of data at the deadline", rollback, paused(evaluated(v1alpha1.VerdictNoData, 60)), false, 1800, Outcome{v1alpha1.VerdictNoData, Pause, "waiting for a person since 2026-11-30T08:00:50Z; why", 0}, 50},
		{"but harm does", rollback, paused(evaluated(v1alpha1.VerdictFail, 60)), false, 61, Outcome{v1alpha1.VerdictFail, Rollback, "why", 1739 * time.Second}, 50},
		{"unless it only pauses", pause, paused(evaluated(v1alpha1.VerdictFail, 60)), false, 61, Outcome{v1alpha1.VerdictFail, Pause, "why", 1739 * time.Second}, 50},
		{"a person ends a pause", v1alpha1.Gate{}, paused(evaluated(v1alpha1.VerdictNoData, 60)), true, 61, Outcome{v1alpha1.VerdictNoData, Override, "a person let the batch through; why", 1739 * time.Second}, 50},
		{"and overrules harm", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictFail, 60), true, 61, Outcome{v1alpha1.VerdictFail, Override, "a person let the batch through; why", 1739 * time.Second}, 0},
		{"a deadline of its own", v1alpha1.Gate{HoldDeadline: &metav1.Duration{Duration: time.Minute}}, evaluated(v1alpha1.VerdictNoData, 59), false, 60, Outcome{v1alpha1.VerdictNoData, Pause, "no verdict within 1m0s; why", 0}, 60},
	}
	for _, test := range tests {
		o, got := Decide(&test.spec, test.status, situation, test.override, after(test.seconds))
		if o != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", test.name, o, test.want)
		}
		if test.pausedAt == 0 && got.PausedAt != nil || test.pausedAt > 0 && (got.PausedAt == nil || !got.PausedAt.Time.Equal(after(test.pausedAt))) {
			t.Errorf("%s: paused at %v", test.name, got.PausedAt)
		}
		want := v1alpha1.GateDecision{Time: metav1.Time{Time: after(test.seconds)}, Batch: 1, Verdict: test.want.Verdict, Action: string(test.want.Action), Evidence: test.want.Message, Number: 1}
		if test.want.Message == "not evaluated yet" {
			if len(got.Decisions) != 0 {
				t.Errorf("%s: decisions %+v before there was anything to decide", test.name, got.Decisions)
			}
		} else if len(got.Decisions) != 1 || !reflect.DeepEqual(got.Decisions[0], want) {
			t.Errorf("%s: decisions %+v, want %+v", test.name, got.Decisions, want)
		}
	}
}

// Decisions are noted at changes of verdict or action only, across batches, and the oldest go.
func TestDecisionsAreChanges(t *testing.T) {
	spec := &v1alpha1.Gate{}
	s, st := situation, (*v1alpha1.GateStatus)(nil)
	look := func(verdict v1alpha1.Verdict, message string, seconds int) {
		if verdict != "" {
			next := evaluated(verdict, seconds)
			next.Batch, next.WindowStart, next.Message = s.Batch, metav1.Time{Time: s.WindowStart}, message
			next.Decisions, next.PausedAt = st.DeepCopy().Decisions, st.PausedAt
			st = next
		}
		_, st = Decide(spec, st, s, false, after(seconds))
	}
	look("", "", 5)
	look("", "", 10)
	look(v1alpha1.VerdictNoData, "few", 30)
	look(v1alpha1.VerdictError, "refused", 60)
	look(v1alpha1.VerdictError, "refused again", 90)
	look(v1alpha1.VerdictNoData, "few", 120)
	look(v1alpha1.VerdictPass, "good", 150)
	look(v1alpha1.VerdictPass, "still good", 180)
	s.Batch, s.WindowStart, s.OldReplicas = 2, after(200), 0
	look("", "", 210)
	look(v1alpha1.VerdictFail, "bad", 240)
	look(v1alpha1.VerdictFail, "worse", 270)
	var got string
	for _, d := range st.Decisions {
		got += fmt.Sprintf("%d %d.%d %s %s: %s\n", int(d.Time.Sub(t0).Seconds()), d.Batch, d.Number, d.Verdict, d.Action, d.Evidence)
	}
	want := `30 1.1 NoData Hold: few
60 1.2 Error Hold: refused
120 1.3 NoData Hold: few
150 1.4 Pass Promote: good
240 2.1 Fail Rollback: bad
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for i := range 20 {
		look(v1alpha1.VerdictNoData, fmt.Sprint(i), 300+60*i)
		look(v1alpha1.VerdictError, fmt.Sprint(i), 330+60*i)
	}
	if st.Decisions[29].Number != 41 {
		t.Errorf("the last decision about the batch has number %d", st.Decisions[29].Number)
	}
	if len(st.Decisions) != 30 || st.Decisions[0].Evidence != "5" || st.Decisions[29].Evidence != "19" {
		t.Errorf("%d decisions, from %q to %q", len(st.Decisions), st.Decisions[0].Evidence, st.Decisions[len(st.Decisions)-1].Evidence)
	}
}

// A decision that does more than hold keeps what the checks had found, and of harm the
// traces of bad requests.
func TestDecisionsKeepTheirEvidence(t *testing.T) {
	st := evaluated(v1alpha1.VerdictFail, 60)
	bad, usual := of(9, 90), of(0, 900)
	st.Checks = []v1alpha1.CheckStatus{
		{Name: "errors", Verdict: v1alpha1.VerdictFail, Value: "10%", Limit: "1%", New: &bad, Old: &usual, TraceIDs: []string{"c", "a", "b"}},
		{Name: "p99", Verdict: v1alpha1.VerdictPass, Value: "0.2", Limit: "max 0.5", TraceIDs: []string{"d"}},
		{Name: "slow", Verdict: v1alpha1.VerdictFail, TraceIDs: []string{"a"}},
	}
	spec := &v1alpha1.Gate{}
	for i := range st.Checks {
		spec.Checks = append(spec.Checks, threshold(st.Checks[i].Name, "1"))
		st.Checks[i].Kind = v1alpha1.CheckThreshold
		st.Checks[i].SpecHash = specHash(defaulted(spec), spec.Checks[i])
	}
	_, got := Decide(spec, st, situation, false, after(60))
	want := []v1alpha1.DecisionCheck{
		{Name: "errors", Verdict: v1alpha1.VerdictFail, Value: "10%", Limit: "1%", New: &bad, Old: &usual},
		{Name: "p99", Verdict: v1alpha1.VerdictPass, Value: "0.2", Limit: "max 0.5"},
		{Name: "slow", Verdict: v1alpha1.VerdictFail},
	}
	if d := got.Decisions[0]; !reflect.DeepEqual(d.Checks, want) || !slices.Equal(d.TraceIDs, []string{"a", "b", "c"}) {
		t.Errorf("%+v, traces %q", d.Checks, d.TraceIDs)
	}
	st.Verdict = v1alpha1.VerdictNoData
	_, got = Decide(spec, st, situation, false, after(60))
	if d := got.Decisions[0]; d.Checks != nil || d.TraceIDs != nil {
		t.Errorf("a hold keeps %+v, traces %q", d.Checks, d.TraceIDs)
	}
}

// Nothing but a fresh Pass promotes, nothing but Fail rolls back where a hold only pauses,
// and deciding twice is deciding once.
func TestDecideNeedsEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := &v1alpha1.Gate{
			OnFail: rapid.SampledFrom([]v1alpha1.GateAction{"", v1alpha1.GatePause, v1alpha1.GateRollback}).Draw(t, "onFail"),
			OnHold: rapid.SampledFrom([]v1alpha1.GateAction{"", v1alpha1.GatePause, v1alpha1.GateRollback}).Draw(t, "onHold"),
		}
		var st *v1alpha1.GateStatus
		if rapid.Bool().Draw(t, "evaluated") {
			st = evaluated(rapid.SampledFrom(append(v1alpha1.Verdicts(), "")).Draw(t, "verdict"), rapid.IntRange(0, 4000).Draw(t, "at"))
			if rapid.Bool().Draw(t, "paused") {
				st.PausedAt = &metav1.Time{Time: t0}
			}
		}
		now := after(rapid.IntRange(0, 4000).Draw(t, "now"))
		o, got := Decide(spec, st, situation, false, now)
		if o.Action == Promote && (st == nil || st.Verdict != v1alpha1.VerdictPass || st.PausedAt != nil || now.Sub(st.EvaluatedAt.Time) > 90*time.Second) {
			t.Fatalf("%+v promotes", st)
		}
		if o.Action == Rollback && spec.OnHold != v1alpha1.GateRollback && (st == nil || st.Verdict != v1alpha1.VerdictFail) {
			t.Fatalf("%+v rolls back", st)
		}
		again, same := Decide(spec, got, situation, false, now)
		if again.Action != o.Action || len(same.Decisions) != len(got.Decisions) {
			t.Fatalf("first %+v, then %+v", o, again)
		}
	})
}

// TestHoldCountsFromTheLastPass: a batch that had passed and waited for a person for hours
// has the whole deadline before it when its traffic ends.
func TestHoldCountsFromTheLastPass(t *testing.T) {
	spec := v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: "q", Max: "1", Passes: 1, Failures: 1}}}}
	look := func(before *v1alpha1.GateStatus, seconds int, sample Sample) *v1alpha1.GateStatus {
		return Evaluate(&spec, before, situation, Gathered{"p99": {{Value: sample}}}, after(seconds))
	}
	nothing := Sample{Verdict: v1alpha1.VerdictNoData, Problem: "empty"}
	s := look(nil, 60, nothing)
	if want := (metav1.Time{Time: t0}); !s.HeldSince.Equal(&want) {
		t.Errorf("held since %s, want the start of the window", s.HeldSince)
	}
	if s = look(s, 90, Sample{Value: 0.5}); s.HeldSince != nil {
		t.Errorf("held since %s although it passed", s.HeldSince)
	}
	s = look(look(s, 9000, nothing), 9030, nothing)
	if want := (metav1.Time{Time: after(9000)}); !s.HeldSince.Equal(&want) {
		t.Errorf("held since %s, want %s", s.HeldSince, want)
	}
	if o, _ := Decide(&spec, s, situation, false, after(9030)); o.Action != Hold || o.HoldLeft != 1770*time.Second {
		t.Errorf("%+v", o)
	}
}

// TestNoDeadlineWhileAPersonHolds: it counts from when the rollout is let go.
func TestNoDeadlineWhileAPersonHolds(t *testing.T) {
	spec := v1alpha1.Gate{OnHold: v1alpha1.GateRollback, Checks: []v1alpha1.GateCheck{{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: "q", Max: "1", Passes: 1, Failures: 1}}}}
	nothing := Gathered{"p99": {{Value: Sample{Verdict: v1alpha1.VerdictNoData, Problem: "empty"}}}}
	held := situation
	held.Held = true
	var s *v1alpha1.GateStatus
	for seconds := 60; seconds <= 7200; seconds += 30 {
		s = Evaluate(&spec, s, held, nothing, after(seconds))
		if o, _ := Decide(&spec, s, held, false, after(seconds)); o.Action != Hold {
			t.Fatalf("after %d s: %+v", seconds, o)
		}
	}
	if o, _ := Decide(&spec, s, situation, false, after(7210)); o.Action != Hold || o.HoldLeft != 1790*time.Second {
		t.Errorf("let go: %+v", o)
	}
	for seconds := 7230; seconds <= 9000; seconds += 30 {
		s = Evaluate(&spec, s, situation, nothing, after(seconds))
	}
	if o, _ := Decide(&spec, s, situation, false, after(9000)); o.Action != Rollback {
		t.Errorf("half an hour later: %+v", o)
	}
}
