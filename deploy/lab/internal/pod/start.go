package pod

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/image"
)

// start finds the container's image and begins a run. It returns when to look
// again, if it could not.
func (p *podRun) start(c *container, now time.Time) time.Time {
	if d := c.pulls.waiting(c.pulled, now); d > 0 {
		p.pullBackoff(c)
		return now.Add(d)
	}
	table, err := image.Load(p.e.cfg.Images)
	var img image.Image
	if err == nil {
		img, err = table.Lookup(c.spec.Image)
	}
	if err != nil {
		return p.pullFailed(c, err, now)
	}
	c.pulls, c.pulled, c.pullErr = backoff{}, time.Time{}, ""
	c.imageID = "lab://" + img.Name
	if !img.Hollow {
		p.startProcess(c, img)
		return time.Time{}
	}
	b, err := behaviour(p.pod, c.spec, img.Env)
	if err != nil {
		c.reason, c.message = "CreateContainerConfigError", err.Error()
		p.event(corev1.EventTypeWarning, "Failed", "Error: %v", err)
		return now.Add(initialBackoff)
	}
	return p.startHollow(c, b, now)
}

// startHollow begins a run without a process.
func (p *podRun) startHollow(c *container, b hollowBehaviour, now time.Time) time.Time {
	p.running(c, now)
	c.started = true
	var inst *hollowRun
	inst = startHollow(b, func(x exit) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exited(c, inst, x)
	})
	c.inst = inst
	switch {
	case b.crash || b.neverReady:
	case b.readyDelay == 0:
		c.ready = true
	default:
		inst.after(b.readyDelay, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if c.inst == inst && !p.stopping {
				c.ready = true
				p.step()
			}
		})
	}
	return time.Time{}
}

// running marks the begin of a run.
func (p *podRun) running(c *container, now time.Time) {
	c.run++
	c.phase, c.reason, c.message = running, "", ""
	c.begun = now
	c.id = fmt.Sprintf("lab://%s/%s/%d", p.uid, c.spec.Name, c.run)
	c.started, c.ready = false, false
}

// pullFailed reports an image that cannot be had, as a kubelet does: once as
// the failure, from the next look on as the back-off.
func (p *podRun) pullFailed(c *container, err error, now time.Time) time.Time {
	name := c.spec.Image
	c.phase = waiting
	switch {
	case errors.Is(err, image.ErrName):
		c.reason = "InvalidImageName"
		c.message = fmt.Sprintf("Failed to apply default image tag %q: %v", name, err)
		p.event(corev1.EventTypeWarning, "InspectFailed", "%s", c.message)
		p.event(corev1.EventTypeWarning, "Failed", "Error: InvalidImageName")
		return now.Add(initialBackoff)
	case c.spec.ImagePullPolicy == corev1.PullNever && errors.Is(err, image.ErrNotFound):
		c.reason = "ErrImageNeverPull"
		c.message = fmt.Sprintf("Container image %q is not present with pull policy of Never", name)
		p.event(corev1.EventTypeWarning, "ErrImageNeverPull", "%s", c.message)
		p.event(corev1.EventTypeWarning, "Failed", "Error: ErrImageNeverPull")
		return now.Add(initialBackoff)
	}
	p.event(corev1.EventTypeNormal, "Pulling", "Pulling image %q", name)
	c.pullErr = fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %v", name, name, err)
	c.reason, c.message = "ErrImagePull", c.pullErr
	p.event(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", name, c.pullErr)
	p.event(corev1.EventTypeWarning, "Failed", "Error: ErrImagePull")
	c.pulls = c.pulls.next(now, now, p.e.cfg.MaxBackoff)
	c.pulled = now
	// The failure itself shows for a moment before the back-off does.
	return now.Add(min(pullErrorShown, c.pulls.delay/2))
}

// pullErrorShown is how long ErrImagePull shows before ImagePullBackOff.
const pullErrorShown = time.Second

func (p *podRun) pullBackoff(c *container) {
	if c.reason == "ImagePullBackOff" {
		return
	}
	c.phase, c.reason = waiting, "ImagePullBackOff"
	c.message = fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.spec.Image, c.pullErr)
	p.event(corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", c.spec.Image)
	p.event(corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff")
}
