package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestProbeState(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const every = 10 * time.Second
	type look struct {
		after time.Duration
		ok    bool
		want  verdict
	}
	for _, tc := range []struct {
		name  string
		kind  probeKind
		spec  corev1.Probe
		looks []look
	}{
		{"ready at the first success", readinessProbe, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1},
			[]look{{0, false, unchanged}, {50 * time.Millisecond, true, healthy}, {every, true, unchanged}}},
		{"unready after three failures in a row only", readinessProbe, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1},
			[]look{{0, true, healthy}, {every, false, unchanged}, {every, false, unchanged}, {every, true, unchanged},
				{every, false, unchanged}, {every, false, unchanged}, {every, false, unhealthy}, {every, false, unchanged}, {every, true, healthy}}},
		{"success threshold", readinessProbe, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 1, SuccessThreshold: 2},
			[]look{{0, true, unchanged}, {every, true, healthy}, {every, false, unhealthy}, {every, true, unchanged}, {every, true, healthy}}},
		{"quick looks do not use up a startup probe's failures", startupProbe, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 2, SuccessThreshold: 1},
			[]look{{0, false, unchanged}, {time.Second, false, unchanged}, {time.Second, false, unchanged}, {8 * time.Second, false, unhealthy}}},
		{"every failure of a liveness probe counts", livenessProbe, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 2, SuccessThreshold: 1},
			[]look{{0, false, unchanged}, {every, false, unhealthy}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s probeState
			now := start
			for i, l := range tc.looks {
				now = now.Add(l.after)
				var got verdict
				s, got, _ = s.observe(tc.kind, &tc.spec, l.ok, now)
				if got != l.want {
					t.Fatalf("look %d: verdict %d, want %d (state %+v)", i, got, l.want, s)
				}
			}
		})
	}
}

// However the results come, a readiness probe's verdicts alternate, and each
// needs its threshold of results in a row.
func TestProbeVerdictsAlternate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := &corev1.Probe{
			PeriodSeconds:    1,
			FailureThreshold: rapid.Int32Range(1, 4).Draw(t, "failures"),
			SuccessThreshold: rapid.Int32Range(1, 4).Draw(t, "successes"),
		}
		var s probeState
		now := time.Unix(0, 0)
		last, run, previous := unchanged, int32(0), false
		for i, ok := range rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "results") {
			now = now.Add(time.Second)
			if i == 0 || ok != previous {
				run = 0
			}
			previous = ok
			run++
			var v verdict
			s, v, _ = s.observe(readinessProbe, spec, ok, now)
			switch {
			case v == unchanged:
				continue
			case v == last:
				t.Fatalf("result %d: verdict %d twice", i, v)
			case v == healthy && (!ok || run < spec.SuccessThreshold), v == unhealthy && (ok || run < spec.FailureThreshold):
				t.Fatalf("result %d: verdict %d after %d results in a row", i, v, run)
			}
			last = v
		}
	})
}

func TestProbePause(t *testing.T) {
	spec := &corev1.Probe{PeriodSeconds: 1}
	var s probeState
	var got []time.Duration
	for range 7 {
		var d time.Duration
		s, d = s.pause(readinessProbe, spec)
		got = append(got, d)
	}
	want := []time.Duration{50, 100, 200, 400, 800, 1000, 1000}
	for i := range want {
		if got[i] != want[i]*time.Millisecond {
			t.Fatalf("pauses %v, want %v ms", got, want)
		}
	}
	s.passed = true
	if _, d := s.pause(readinessProbe, spec); d != time.Second {
		t.Errorf("pause once passed: %s, want the period", d)
	}
	if _, d := (probeState{}).pause(livenessProbe, spec); d != time.Second {
		t.Errorf("pause of a liveness probe: %s, want the period", d)
	}
}
