package gate

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestDue(t *testing.T) {
	jitter := spread(situation, 30*time.Second)
	if jitter < 0 || jitter >= 30*time.Second {
		t.Fatalf("spread is %v", jitter)
	}
	late := situation
	late.Batch = 2
	tests := []struct {
		name   string
		spec   v1alpha1.Gate
		status *v1alpha1.GateStatus
		s      Situation
		now    time.Time
		want   time.Duration
	}{
		{"the first one", v1alpha1.Gate{}, nil, situation, t0, 30*time.Second + jitter},
		{"the first one, later", v1alpha1.Gate{}, nil, situation, after(10), 20*time.Second + jitter},
		{"the first one, overdue", v1alpha1.Gate{}, nil, situation, after(60), 0},
		{"begun but not evaluated", v1alpha1.Gate{}, &v1alpha1.GateStatus{Batch: 1, WindowStart: metav1.Time{Time: t0}}, situation, t0, 30*time.Second + jitter},
		{"of another batch", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 0), late, t0, 30*time.Second + spread(late, 30*time.Second)},
		{"an interval after the last one", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 60), situation, after(75), 15 * time.Second},
		{"overdue, as after a restart", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 60), situation, after(500), 0},
		{"the deadline is looked at", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictNoData, 1790), situation, after(1795), 5 * time.Second},
		{"but not judged twice for it", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictNoData, 1790), situation, after(1800), 20 * time.Second},
		{"paused after the deadline", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictNoData, 1820), situation, after(1830), 20 * time.Second},
		{"a deadline before the first one", v1alpha1.Gate{HoldDeadline: &metav1.Duration{Duration: 10 * time.Second}}, nil, situation, after(4), 6 * time.Second},
		{"and at it", v1alpha1.Gate{HoldDeadline: &metav1.Duration{Duration: 10 * time.Second}}, nil, situation, after(10), 0},
		{"evaluated by a clock ahead", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 600), situation, after(60), 0},
		{"and just ahead", v1alpha1.Gate{}, evaluated(v1alpha1.VerdictPass, 61), situation, after(60), 31 * time.Second},
		{"another interval", v1alpha1.Gate{Interval: &metav1.Duration{Duration: time.Minute}}, evaluated(v1alpha1.VerdictPass, 60), situation, after(61), 59 * time.Second},
	}
	for _, test := range tests {
		if got := Due(&test.spec, test.status, test.s, test.now); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// A controller that wakes when Due says, evaluates when it is 0, and is replaced at any
// time, evaluates once an interval.
func TestDueKeepsTheRhythm(t *testing.T) {
	spec := proportionGate()
	var st *v1alpha1.GateStatus
	var at []time.Duration
	for now := t0; now.Before(after(600)); {
		if wait := Due(spec, st, situation, now); wait > 0 {
			now = now.Add(min(wait, 7*time.Second)) // It is woken for other things too.
			continue
		}
		st = Evaluate(spec, st, situation, Gathered{}, now)
		at = append(at, now.Sub(t0))
	}
	if len(at) < 19 || st.Evaluations != int32(len(at)) {
		t.Fatalf("%d evaluations in 600 s, %d in status", len(at), st.Evaluations)
	}
	for i := 1; i < len(at); i++ {
		if gap := at[i] - at[i-1]; gap < 29*time.Second || gap > 31*time.Second {
			t.Errorf("evaluations at %v and %v", at[i-1], at[i])
		}
	}
}

// A thousand Canaries whose batches become available together are evaluated evenly: of 30
// seconds none has more than twice its share.
func TestDueIsSpread(t *testing.T) {
	bySecond := map[int]int{}
	for i := range 1000 {
		s := situation
		s.Canary = fmt.Sprintf("canary-%d", i)
		wait := Due(&v1alpha1.Gate{}, nil, s, t0)
		if wait != Due(&v1alpha1.Gate{}, nil, s, t0) || wait < 30*time.Second || wait >= time.Minute {
			t.Fatalf("%s waits %v", s.Canary, wait)
		}
		bySecond[int(wait.Seconds())]++
	}
	for second, n := range bySecond {
		if n > 2*1000/30 {
			t.Errorf("%d of 1000 in second %d", n, second)
		}
	}
	if len(bySecond) != 30 {
		t.Errorf("only %d seconds are used", len(bySecond))
	}
}
