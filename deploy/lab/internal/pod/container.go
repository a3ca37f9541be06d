package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// phase is where a container is.
type phase int

const (
	// waiting: not started yet, or between two runs.
	waiting phase = iota
	// starting: being prepared outside the pod's lock.
	starting
	running
	terminated
)

// container is what is known about one container of a pod. Its pod's lock
// guards it.
type container struct {
	spec *corev1.Container
	// init: runs before the main containers. With sidecar it goes on running.
	init, sidecar bool

	phase    phase
	reason   string // why it waits
	message  string
	id       string
	imageID  string
	run      int // how many times it was started, less one: the restart count
	begun    time.Time
	ended    time.Time
	last     *corev1.ContainerStateTerminated // the run before the current state
	final    *corev1.ContainerStateTerminated // the current state, if terminated
	restarts backoff
	pulls    backoff
	pulled   time.Time // when the last pull failed
	pullErr  string

	started bool // passed its startup probe, or has none
	ready   bool
	// restart asks for another run whatever the exit code and the policy say:
	// a liveness probe failed or the image changed.
	restart bool
	inst    instance
	probes  *probes
}

// instance is one run of a container.
type instance interface {
	// stop asks the run to end and sees to it that it does: within grace,
	// then by force. It does not wait, and may be called again with a shorter
	// grace.
	stop(grace time.Duration)
}

// exit is how a run ended.
type exit struct {
	code, signal int
	reason       string
	message      string
	at           time.Time
}

// shouldRun reports whether a terminated container is to run again under the
// pod's restart policy.
func (c *container) shouldRun(policy corev1.RestartPolicy) bool {
	if c.restart || c.sidecar {
		return true
	}
	if c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyNever {
		return false
	}
	failed := c.final == nil || c.final.ExitCode != 0
	switch {
	case c.init:
		return failed && policy != corev1.RestartPolicyNever
	case policy == corev1.RestartPolicyAlways:
		return true
	case policy == corev1.RestartPolicyOnFailure:
		return failed
	default:
		return false
	}
}

// succeeded reports whether the container ended well.
func (c *container) succeeded() bool {
	return c.phase == terminated && c.final != nil && c.final.ExitCode == 0
}
