package pod

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podRun is one pod. Every event (an exit, a probe, a timer, an update) takes
// the lock, changes the state and calls step, which starts what is due, sets
// one timer for the next thing to come and publishes the status if it changed.
type podRun struct {
	e    *Engine
	name types.NamespacedName
	uid  types.UID
	ip   string

	// stopped is closed when nothing of the pod runs any more after delete.
	stopped chan struct{}

	mu       sync.Mutex
	pod      *corev1.Pod
	started  time.Time
	inits    []*container
	mains    []*container
	terminal corev1.PodPhase
	reason   string
	message  string
	status   corev1.PodStatus
	timer    *time.Timer
	disk     disk

	stopping  bool
	deadline  time.Time // when what is left is killed
	finished  bool
	abandoned bool
}

func newPodRun(e *Engine, pod *corev1.Pod, ip string) *podRun {
	p := &podRun{
		e: e, name: name(pod), uid: pod.UID, ip: ip,
		stopped: make(chan struct{}),
		pod:     pod,
		started: time.Now().Truncate(time.Second),
		status:  pod.Status,
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		p.inits = append(p.inits, &container{spec: c, init: true, sidecar: sidecar, run: -1, reason: "PodInitializing"})
	}
	reason := "ContainerCreating"
	if len(p.inits) > 0 {
		reason = "PodInitializing"
	}
	for i := range pod.Spec.Containers {
		p.mains = append(p.mains, &container{spec: &pod.Spec.Containers[i], run: -1, reason: reason})
	}
	return p
}

func (p *podRun) all() []*container { return append(append([]*container{}, p.inits...), p.mains...) }

func (p *podRun) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step()
}

// current is a copy of the pod with its status as it is now.
func (p *podRun) current() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.pod.DeepCopy()
	p.status.DeepCopyInto(&pod.Status)
	return pod
}

// update takes in a new specification: a container whose image changed is
// stopped and runs again with the new one.
func (p *podRun) update(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pod = pod
	replace := func(cs []*container, specs []corev1.Container) {
		for i := range min(len(cs), len(specs)) {
			c := cs[i]
			changed := c.spec.Image != specs[i].Image
			c.spec = &specs[i]
			if !changed {
				continue
			}
			c.pulls, c.restarts, c.pulled = backoff{}, backoff{}, time.Time{}
			if c.phase == running {
				c.restart = true
				p.event(corev1.EventTypeNormal, "Killing", "Container %s definition changed, will be restarted", c.spec.Name)
				p.halt(c, p.grace())
			}
		}
	}
	replace(p.inits, pod.Spec.InitContainers)
	replace(p.mains, pod.Spec.Containers)
	p.step()
}

// grace is the pod's own termination grace period.
func (p *podRun) grace() time.Duration {
	if s := p.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// wake calls step at the given time at the latest.
func (p *podRun) wake(at time.Time) {
	d := max(time.Until(at), 0)
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.step()
	})
}

// step starts what is due and publishes the status. The lock is held.
func (p *podRun) step() {
	if p.abandoned || p.finished {
		return
	}
	now := time.Now()
	var next time.Time
	if p.stopping {
		next = p.stepStopping(now)
	} else if p.terminal == "" {
		next = p.stepRunning(now)
	}
	p.publish(now)
	if !next.IsZero() {
		p.wake(next)
	}
}

// stepRunning brings the containers along and returns when to look again.
func (p *podRun) stepRunning(now time.Time) time.Time {
	var next time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if d := p.pod.Spec.ActiveDeadlineSeconds; d != nil {
		end := p.started.Add(time.Duration(*d) * time.Second)
		if !now.Before(end) {
			p.terminal, p.reason = corev1.PodFailed, "DeadlineExceeded"
			p.message = "Pod was active on the node longer than the specified deadline"
			p.endAll()
			return time.Time{}
		}
		soonest(end)
	}
	for _, c := range p.inits {
		if c.succeeded() && !c.sidecar {
			continue
		}
		soonest(p.ensure(c, now))
		if c.sidecar && c.started {
			continue
		}
		if c.phase == terminated && !c.shouldRun(p.pod.Spec.RestartPolicy) {
			p.terminal = corev1.PodFailed
			p.endAll()
		}
		return next
	}
	over, failed := true, false
	for _, c := range p.mains {
		soonest(p.ensure(c, now))
		ended := c.phase == terminated && !c.shouldRun(p.pod.Spec.RestartPolicy)
		over = over && ended
		failed = failed || ended && !c.succeeded()
	}
	if over && len(p.mains) > 0 {
		p.terminal = corev1.PodSucceeded
		if failed {
			p.terminal = corev1.PodFailed
		}
		p.endAll()
		return time.Time{}
	}
	return next
}

// ensure starts the container if it is to run and does not, and returns when
// to look again.
func (p *podRun) ensure(c *container, now time.Time) time.Time {
	switch c.phase {
	case starting, running:
		return time.Time{}
	case terminated:
		if !c.shouldRun(p.pod.Spec.RestartPolicy) {
			return time.Time{}
		}
		if d := c.restarts.waiting(c.ended, now); d > 0 {
			p.crashLoop(c)
			return now.Add(d)
		}
		c.restarts = c.restarts.next(c.ended, now, p.e.cfg.MaxBackoff)
		c.restart = false
		c.last, c.final = c.final, nil
		c.phase = waiting
		c.reason, c.message = "ContainerCreating", ""
	case waiting:
		if c.reason == reasonCrashLoop {
			if d := c.restarts.waiting(c.ended, now); d > 0 {
				return now.Add(d)
			}
			c.restarts = c.restarts.next(c.ended, now, p.e.cfg.MaxBackoff)
		}
	}
	return p.start(c, now)
}

const reasonCrashLoop = "CrashLoopBackOff"

// crashLoop shows a terminated container as waiting for its next run.
func (p *podRun) crashLoop(c *container) {
	c.last, c.final = c.final, nil
	c.phase, c.reason = waiting, reasonCrashLoop
	c.message = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		c.restarts.delay, c.spec.Name, p.name.Name, p.name.Namespace, p.uid)
	p.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)",
		c.spec.Name, p.name.Name, p.name.Namespace, p.uid)
}

// exited records the end of a run. The lock is held.
func (p *podRun) exited(c *container, inst instance, x exit) {
	if c.inst != inst {
		return
	}
	p.terminate(c, x)
	p.step()
}

func (p *podRun) terminate(c *container, x exit) {
	if c.probes != nil {
		c.probes.stop()
		c.probes = nil
	}
	c.inst = nil
	c.phase, c.ended = terminated, x.at
	c.ready, c.started = false, false
	if x.reason == "" {
		x.reason = "Completed"
		if x.code != 0 {
			x.reason = "Error"
		}
	}
	c.final = &corev1.ContainerStateTerminated{
		ExitCode: int32(x.code), Signal: int32(x.signal), Reason: x.reason, Message: x.message,
		StartedAt: metav1.NewTime(c.begun), FinishedAt: metav1.NewTime(x.at), ContainerID: c.id,
	}
}

// compute makes the status anew and reports whether it changed.
func (p *podRun) compute(now time.Time) bool {
	next := view{
		pod: p.pod, hostIP: p.e.cfg.Host, podIP: p.ip, started: p.started,
		inits: p.inits, mains: p.mains,
		terminal: p.terminal, reason: p.reason, message: p.message,
		previous: p.status, now: now,
	}.status()
	changed := !apiequality.Semantic.DeepEqual(next, p.status)
	p.status = next
	return changed
}

func (p *podRun) publish(now time.Time) {
	if !p.compute(now) || p.finished {
		return
	}
	pod := p.pod.DeepCopy()
	p.status.DeepCopyInto(&pod.Status)
	p.e.publish(pod)
}

func (p *podRun) event(kind, reason, format string, args ...any) {
	p.e.cfg.Recorder.Eventf(p.pod, kind, reason, format, args...)
}
