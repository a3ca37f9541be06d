package pod

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/image"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

// exitStartFailed is the exit code containerd gives a container whose process
// could not be started.
const exitStartFailed = 128

// outputDelay is how long output is awaited from what a process left behind
// after its own end.
const outputDelay = 500 * time.Millisecond

// processRun is a run of a container as a process.
type processRun struct {
	proc *process.Process
	// before runs ahead of SIGTERM: the preStop hook, or nothing.
	before func(grace time.Duration)

	mu    sync.Mutex
	asked bool
	kill  *time.Timer
}

func (r *processRun) stop(grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if grace <= 0 {
		r.proc.Kill()
		return
	}
	if r.kill != nil {
		r.kill.Stop()
	}
	r.kill = time.AfterFunc(grace, r.proc.Kill)
	if r.asked {
		return
	}
	r.asked = true
	if r.before == nil {
		r.proc.Signal(syscall.SIGTERM)
		return
	}
	r.before(grace)
}

// wait returns how the process ended.
func (r *processRun) wait() exit {
	<-r.proc.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kill != nil {
		r.kill.Stop()
	}
	code, signal := r.proc.Exit()
	return exit{code: code, signal: signal, at: time.Now()}
}

// startProcess prepares and starts a container's process outside the pod's
// lock, which is held on entry.
func (p *podRun) startProcess(c *container, img image.Image) {
	c.phase = starting
	pod, spec, run := p.pod, c.spec, c.run+1
	p.event(corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", spec.Image)
	p.e.goRun(func(ctx context.Context) {
		pl, failed := p.e.prepare(ctx, p, pod, spec, img, run)
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.abandoned || p.stopping || p.terminal != "":
			c.phase = waiting
			p.step()
		case failed != nil && failed.stage != stageStart:
			p.notConfigured(c, failed)
		case failed != nil:
			p.notStarted(c, failed)
			p.step()
		default:
			p.launch(c, pl)
			p.step()
		}
	})
}

// notConfigured reports a container that lacks something it refers to.
func (p *podRun) notConfigured(c *container, failed *startError) {
	c.phase = waiting
	if failed.stage == stageVolumes {
		c.reason, c.message = "ContainerCreating", ""
		p.event(corev1.EventTypeWarning, "FailedMount", "%v", failed)
	} else {
		c.reason, c.message = "CreateContainerConfigError", failed.Error()
		p.event(corev1.EventTypeWarning, "Failed", "Error: %v", failed)
	}
	p.publish(time.Now())
	p.wake(time.Now().Add(retryPeriod))
}

// notStarted records a run that ended before it began.
func (p *podRun) notStarted(c *container, err error) {
	now := time.Now()
	p.running(c, now)
	p.event(corev1.EventTypeWarning, "Failed", "Error: failed to create containerd task: %v", err)
	p.terminate(c, exit{code: exitStartFailed, reason: "StartError", message: "failed to create containerd task: " + err.Error(), at: now})
}

// launch starts the process of a prepared container. The lock is held.
func (p *podRun) launch(c *container, pl *plan) {
	out, err := newLogFile(pl.logs)
	if err != nil {
		p.notStarted(c, err)
		return
	}
	cmd := exec.Command(pl.command[0], pl.command[1:]...)
	cmd.Env = pl.environ()
	cmd.Dir = pl.dir
	stdout, stderr := out.stream("stdout"), out.stream("stderr")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = outputDelay
	proc, err := p.e.cfg.Spawner.Start(cmd)
	if err != nil {
		out.close()
		p.notStarted(c, err)
		return
	}
	p.running(c, time.Now())
	_ = os.Remove(filepath.Join(filepath.Dir(pl.logs), strconv.Itoa(c.run-2)+".log"))
	p.event(corev1.EventTypeNormal, "Created", "Container created")
	p.event(corev1.EventTypeNormal, "Started", "Container started")
	r := &processRun{proc: proc}
	if spec := c.spec; spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
		r.before = func(grace time.Duration) { p.preStop(spec, pl, r, grace) }
	}
	c.inst = r
	// The caller is a goroutine the engine waits for, so that this is not too
	// late to add one.
	p.e.wg.Go(func() {
		x := r.wait()
		stdout.flush()
		stderr.flush()
		out.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		x.message = terminationMessage(c.spec, pl, x)
		p.exited(c, r, x)
	})
	if h := c.spec.Lifecycle; h != nil && h.PostStart != nil {
		p.postStart(c, r, pl, h.PostStart)
	}
	c.probes = newProbes(p, c, pl)
	c.started, c.ready = c.probes.initial()
	c.probes.begin()
}

// preStop runs the hook and then asks the process to end. The engine's Close
// does not wait for the hook: it kills the process with grace 0.
func (p *podRun) preStop(spec *corev1.Container, pl *plan, r *processRun, grace time.Duration) {
	p.e.goRun(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if err := p.e.handle(ctx, p, spec, pl, spec.Lifecycle.PreStop); err != nil && ctx.Err() == nil {
			p.mu.Lock()
			p.event(corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
			p.mu.Unlock()
		}
		r.proc.Signal(syscall.SIGTERM)
	})
}

// postStart runs the hook beside the process and ends the process if it fails.
func (p *podRun) postStart(c *container, r *processRun, pl *plan, h *corev1.LifecycleHandler) {
	spec := c.spec
	p.e.goRun(func(ctx context.Context) {
		err := p.e.handle(ctx, p, spec, pl, h)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.inst != r {
			return
		}
		p.event(corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: %v", err)
		p.halt(c, p.grace())
	})
}

// Limits of a termination message, as a kubelet has them.
const (
	maxTerminationMessage = 4096
	maxFallbackMessage    = 2048
	maxFallbackLines      = 80
)

// terminationMessage is what the container left in its termination message
// file or, where it asks for it and failed, the end of its log.
func terminationMessage(spec *corev1.Container, pl *plan, x exit) string {
	text, err := os.ReadFile(pl.terminationLog)
	if err == nil && len(text) > 0 {
		return string(text[:min(len(text), maxTerminationMessage)])
	}
	if x.code == 0 || spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	lines, err := tailLines(pl.logs, maxFallbackLines)
	if err != nil {
		return fmt.Sprintf("reading the log: %v", err)
	}
	message := strings.Join(lines, "")
	return message[max(0, len(message)-maxFallbackMessage):]
}
