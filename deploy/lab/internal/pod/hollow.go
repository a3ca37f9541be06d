package pod

import (
	"sync"
	"time"
)

// Environment variables of a container, or annotations of its pod under
// AnnotationPrefix in lower case with dashes (lab.canarycontroller.tech.com/
// hollow-crash), that say what a hollow container does. The variable wins.
const (
	AnnotationPrefix = "lab.canarycontroller.tech.com/"
	// envCrash: end at once with exit code 1.
	envCrash = "HOLLOW_CRASH"
	// envNeverReady: run and never become ready.
	envNeverReady = "HOLLOW_NEVER_READY"
	// envReadyDelay: become ready after this long (a Go duration).
	envReadyDelay = "HOLLOW_READY_DELAY"
	// envRun: end after this long (a Go duration).
	envRun = "HOLLOW_RUN"
	// envExit: the exit code at the end of envRun.
	envExit = "HOLLOW_EXIT"
	// envStopDelay: how long the container takes to end when told to.
	envStopDelay = "HOLLOW_STOP_DELAY"
)

// hollowRun is a run of a container without a process: timers only.
type hollowRun struct {
	mu     sync.Mutex
	over   bool
	delay  time.Duration
	end    *time.Timer
	ended  func(exit)
	ending bool
}

// startHollow begins a run. ended is called once, from another goroutine.
func startHollow(b hollowBehaviour, ended func(exit)) *hollowRun {
	h := &hollowRun{delay: b.stopDelay, ended: ended}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case b.crash:
		h.end = time.AfterFunc(0, func() { h.finish(exit{code: 1}) })
	case b.ends:
		h.end = time.AfterFunc(b.run, func() { h.finish(exit{code: b.exit}) })
	}
	return h
}

func (h *hollowRun) finish(e exit) {
	h.mu.Lock()
	over := h.over
	h.over = true
	h.mu.Unlock()
	if over {
		return
	}
	e.at = time.Now()
	// Without the lock: ended takes the pod's, under which stop is called.
	h.ended(e)
}

func (h *hollowRun) stop(grace time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.ending && grace > 0 {
		return
	}
	if h.end != nil {
		h.end.Stop()
	}
	h.ending = true
	e := exit{code: 0}
	if h.delay > grace {
		e = exit{code: 137, signal: 9}
	}
	h.end = time.AfterFunc(min(h.delay, grace), func() { h.finish(e) })
}

// after calls f unless the run has ended by then.
func (h *hollowRun) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		h.mu.Lock()
		over := h.over || h.ending
		h.mu.Unlock()
		if !over {
			f()
		}
	})
}
