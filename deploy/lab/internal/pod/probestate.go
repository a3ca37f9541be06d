package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// probeKind is which of a container's three probes one is.
type probeKind int

const (
	startupProbe probeKind = iota
	livenessProbe
	readinessProbe
)

func (k probeKind) String() string {
	return [...]string{"Startup", "Liveness", "Readiness"}[k]
}

// quickProbe is the first pause of a probe that has not succeeded yet. It
// doubles up to the probe's period.
const quickProbe = 50 * time.Millisecond

// probeState is what has been seen of one probe.
type probeState struct {
	// passed: it has succeeded once.
	passed               bool
	successes, failures  int32
	lastCounted          time.Time
	quick                time.Duration
	result, hasBeenKnown bool
}

// verdict is what a probe's result means for its container.
type verdict int

const (
	unchanged verdict = iota
	healthy
	unhealthy
)

func period(spec *corev1.Probe) time.Duration {
	return time.Duration(max(spec.PeriodSeconds, 1)) * time.Second
}

// observe takes in one result and returns the new state, what it means, and
// whether it counts: between two periods a container that has not been well
// yet is looked at more often than its probe says, so that it is ready as soon
// as it can be, and failures then are nobody's business.
func (s probeState) observe(kind probeKind, spec *corev1.Probe, ok bool, now time.Time) (probeState, verdict, bool) {
	counts := ok || s.passed || kind == livenessProbe || s.lastCounted.IsZero() || now.Sub(s.lastCounted) >= period(spec)
	if !counts {
		return s, unchanged, false
	}
	s.lastCounted = now
	if ok {
		s.passed = true
		s.failures = 0
		s.successes++
		if s.successes >= max(spec.SuccessThreshold, 1) && !(s.hasBeenKnown && s.result) {
			s.result, s.hasBeenKnown = true, true
			return s, healthy, true
		}
		return s, unchanged, true
	}
	s.successes = 0
	s.failures++
	if s.failures >= max(spec.FailureThreshold, 1) && !(s.hasBeenKnown && !s.result && kind == readinessProbe) {
		s.result, s.hasBeenKnown = false, true
		return s, unhealthy, true
	}
	return s, unchanged, true
}

// pause is the time until the next look.
func (s probeState) pause(kind probeKind, spec *corev1.Probe) (probeState, time.Duration) {
	if s.passed || kind == livenessProbe {
		return s, period(spec)
	}
	s.quick = min(max(2*s.quick, quickProbe), period(spec))
	return s, s.quick
}
