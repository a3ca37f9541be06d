package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// delete begins to stop the pod. A second call may only shorten the grace.
func (p *podRun) delete(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	grace := p.grace()
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	} else if pod.DeletionTimestamp == nil {
		// The API server does not know the pod any more.
		grace = 0
	}
	p.pod = pod
	if p.finished || p.abandoned {
		return
	}
	if deadline := time.Now().Add(grace); !p.stopping || deadline.Before(p.deadline) {
		p.deadline = deadline
		first := !p.stopping
		p.stopping = true
		p.stopAll(grace, first)
	}
	p.step()
}

// stopAll stops what runs: the main containers first, the sidecars when those
// have ended (stepStopping does that), within the pod's one grace period.
func (p *podRun) stopAll(grace time.Duration, announce bool) {
	for _, c := range p.all() {
		if c.phase != running || c.sidecar {
			continue
		}
		if announce {
			p.event(corev1.EventTypeNormal, "Killing", "Stopping container %s", c.spec.Name)
		}
		p.halt(c, grace)
	}
}

// halt ends one run of a container.
func (p *podRun) halt(c *container, grace time.Duration) {
	if c.probes != nil {
		c.probes.stop()
	}
	c.ready = false
	if c.inst != nil {
		c.inst.stop(grace)
	}
}

// abandon kills everything at the end of the lab. The API server keeps the pod.
func (p *podRun) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned = true
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, c := range p.all() {
		if c.phase == running {
			p.halt(c, 0)
		}
	}
}

// endAll stops what still runs of a pod that is over.
func (p *podRun) endAll() {
	for _, c := range p.all() {
		if c.phase == running {
			p.halt(c, p.grace())
		}
	}
}

// stepStopping waits for the ends of the containers of a pod that is deleted.
func (p *podRun) stepStopping(now time.Time) time.Time {
	mains, sidecars := false, false
	for _, c := range p.all() {
		switch {
		case c.phase != running && c.phase != starting:
		case c.sidecar:
			sidecars = true
		default:
			mains = true
		}
	}
	if sidecars && !mains {
		for i := len(p.inits) - 1; i >= 0; i-- {
			if c := p.inits[i]; c.sidecar && c.phase == running {
				p.halt(c, max(p.deadline.Sub(now), 0))
			}
		}
	}
	if mains || sidecars {
		if now.Before(p.deadline) {
			return p.deadline
		}
		for _, c := range p.all() {
			if c.phase == running {
				p.halt(c, 0)
			}
		}
		return time.Time{}
	}
	p.finish()
	return time.Time{}
}

// finish removes a pod whose containers have all ended.
func (p *podRun) finish() {
	if p.terminal == "" {
		p.terminal = corev1.PodSucceeded
		for _, c := range p.mains {
			if !c.succeeded() {
				p.terminal = corev1.PodFailed
			}
		}
	}
	p.finished = true
	if p.timer != nil {
		p.timer.Stop()
	}
	close(p.stopped)
	p.releaseAddress()
	p.compute(time.Now())
	pod := p.pod.DeepCopy()
	p.status.DeepCopyInto(&pod.Status)
	p.e.goRun(func(ctx context.Context) {
		p.e.removeFiles(p)
		// Before the API server forgets it: another pod may then take the name.
		p.e.forget(p)
		p.e.removeFromAPI(ctx, pod)
	})
}

func (p *podRun) releaseAddress() {
	if !p.pod.Spec.HostNetwork {
		p.e.addresses.put(p.ip)
	}
}

// removeFromAPI reports a deleted pod's end and removes it. Whether somebody
// waits for the last status shows in the finalizers and the restart policy:
// a Job does, a ReplicaSet does not.
func (e *Engine) removeFromAPI(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		return
	}
	api := e.cfg.Client.CoreV1().Pods(pod.Namespace)
	if len(pod.Finalizers) > 0 || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		last := pod.DeepCopy()
		last.ResourceVersion = ""
		if _, err := api.UpdateStatus(ctx, last, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			e.cfg.Log.Warn("reporting the end of a pod", "pod", name(pod), "error", err)
		}
	}
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		err := api.Delete(ctx, pod.Name, *options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
			e.cfg.Log.Warn("removing a pod that has ended; trying again", "pod", name(pod), "error", err)
		}
	}
}
