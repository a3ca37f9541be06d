package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// probes watches one run of a container. The pod's lock guards it.
type probes struct {
	p       *podRun
	c       *container
	plan    *plan
	loops   map[probeKind]*probeLoop
	stopped bool
}

type probeLoop struct {
	kind  probeKind
	spec  *corev1.Probe
	state probeState
	timer *time.Timer
}

func newProbes(p *podRun, c *container, pl *plan) *probes {
	s := &probes{p: p, c: c, plan: pl, loops: map[probeKind]*probeLoop{}}
	for kind, spec := range map[probeKind]*corev1.Probe{
		startupProbe: c.spec.StartupProbe, livenessProbe: c.spec.LivenessProbe, readinessProbe: c.spec.ReadinessProbe,
	} {
		if spec != nil {
			s.loops[kind] = &probeLoop{kind: kind, spec: spec}
		}
	}
	return s
}

// initial is what holds before any probe has run.
func (s *probes) initial() (started, ready bool) {
	started = s.loops[startupProbe] == nil
	return started, started && s.loops[readinessProbe] == nil
}

// begin starts the startup probe, or the others where there is none.
func (s *probes) begin() {
	if s.loops[startupProbe] != nil {
		s.schedule(s.loops[startupProbe], s.delay(startupProbe))
		return
	}
	s.beginOthers()
}

func (s *probes) beginOthers() {
	for _, kind := range []probeKind{livenessProbe, readinessProbe} {
		if s.loops[kind] != nil {
			s.schedule(s.loops[kind], s.delay(kind))
		}
	}
}

// delay is what is left of a probe's initial delay, which counts from the
// start of the container.
func (s *probes) delay(kind probeKind) time.Duration {
	initial := time.Duration(s.loops[kind].spec.InitialDelaySeconds) * time.Second
	return max(time.Until(s.c.begun.Add(initial)), 0)
}

func (s *probes) schedule(l *probeLoop, after time.Duration) {
	l.timer = time.AfterFunc(after, func() {
		s.p.e.goRun(func(ctx context.Context) {
			ok, message := s.p.e.probe(ctx, s.p, s.c.spec, s.plan, l.spec)
			s.p.mu.Lock()
			defer s.p.mu.Unlock()
			if !s.stopped && ctx.Err() == nil {
				s.observed(l, ok, message)
			}
		})
	})
}

// observed takes in a result. The lock is held.
func (s *probes) observed(l *probeLoop, ok bool, message string) {
	next, v, counts := l.state.observe(l.kind, l.spec, ok, time.Now())
	l.state = next
	if !ok && counts {
		s.p.event(corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", l.kind, message)
	}
	switch {
	case v == healthy && l.kind == startupProbe:
		s.c.started = true
		s.c.ready = s.loops[readinessProbe] == nil
		s.beginOthers()
		s.p.step()
		return
	case v == healthy && l.kind == readinessProbe, v == unhealthy && l.kind == readinessProbe:
		s.c.ready = v == healthy
		s.p.step()
	case v == unhealthy:
		s.p.unwell(s.c, l)
		return
	}
	var pause time.Duration
	l.state, pause = l.state.pause(l.kind, l.spec)
	s.schedule(l, pause)
}

// unwell ends a container that failed its startup or liveness probe.
func (p *podRun) unwell(c *container, l *probeLoop) {
	c.restart = p.pod.Spec.RestartPolicy != corev1.RestartPolicyNever || c.sidecar
	name := map[probeKind]string{startupProbe: "startup", livenessProbe: "liveness"}[l.kind]
	p.event(corev1.EventTypeNormal, "Killing", "Container %s failed %s probe, will be restarted", c.spec.Name, name)
	grace := p.grace()
	if s := l.spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	p.halt(c, grace)
	p.step()
}

// stop ends the watching. The lock is held.
func (s *probes) stop() {
	s.stopped = true
	for _, l := range s.loops {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
}
