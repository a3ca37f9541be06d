package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

const (
	// stopGrace is how long a component may take to end after SIGTERM.
	stopGrace = 10 * time.Second
	// A component that ends by itself is started again after restartDelay, as
	// a static pod would be; one that ends maxRestarts times within
	// restartWindow brings the lab down.
	restartDelay  = time.Second
	restartWindow = time.Minute
	maxRestarts   = 5
)

// component keeps one server running.
type component struct {
	name    string
	args    []string
	logFile string
	spawn   *process.Spawner
	log     *slog.Logger

	mu       sync.Mutex
	proc     *process.Process
	stopping bool
	watch    sync.WaitGroup
}

func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return fmt.Errorf("%s is stopping", c.name)
	}
	return c.startLocked()
}

func (c *component) startLocked() error {
	program, args, err := programOf(c.name, os.Getenv(assetsVariable))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer out.Close()
	cmd := exec.Command(program, append(args, c.args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	c.proc, err = c.spawn.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", c.name, err)
	}
	return nil
}

// assetsVariable names a directory with programs to run in place of the lab's own, as
// envtest has them.
const assetsVariable = "KUBEBUILDER_ASSETS"

// programOf returns the program of a component and its first arguments: the one of that
// name in assets, if there is one, else the lab itself.
func programOf(component, assets string) (program string, args []string, err error) {
	if assets != "" {
		program = filepath.Join(assets, component)
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return program, nil, nil
		}
	}
	if program, err = os.Executable(); err != nil {
		return "", nil, fmt.Errorf("finding the lab's own executable: %w", err)
	}
	return program, []string{component}, nil
}

// current is the running process.
func (c *component) current() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}

// supervise restarts the component whenever it ends by itself, until ctx ends
// or stop is called. failed is called once if it keeps ending.
func (c *component) supervise(ctx context.Context, failed func(error)) {
	c.watch.Go(func() {
		var ends []time.Time
		for {
			proc := c.current()
			select {
			case <-ctx.Done():
				return
			case <-proc.Done():
			}
			c.mu.Lock()
			replaced, stopping := c.proc != proc, c.stopping
			c.mu.Unlock()
			if stopping {
				return
			}
			if replaced {
				continue
			}
			now := time.Now()
			ends = append(ends, now)
			for now.Sub(ends[0]) > restartWindow {
				ends = ends[1:]
			}
			if len(ends) >= maxRestarts {
				failed(fmt.Errorf("%s ended %d times within %s, last: %w; see %s", c.name, len(ends), restartWindow, endError(proc), c.logFile))
				return
			}
			c.log.Warn("component ended and is started again", "component", c.name, "error", endError(proc), "log", c.logFile)
			select {
			case <-ctx.Done():
				return
			case <-time.After(restartDelay):
			}
			c.mu.Lock()
			var err error
			if !c.stopping && c.proc == proc {
				err = c.startLocked()
			}
			c.mu.Unlock()
			if err != nil {
				failed(err)
				return
			}
		}
	})
}

func endError(p *process.Process) error {
	if p.Err() == nil {
		return errors.New("exit status 0")
	}
	return p.Err()
}

// restart ends the running process and starts another one with the same
// arguments. With kill it is not given the chance to shut down in order.
func (c *component) restart(kill bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return fmt.Errorf("%s is stopping", c.name)
	}
	end(c.proc, kill)
	return c.startLocked()
}

// stop ends the component for good and waits for it and its supervisor.
func (c *component) stop() {
	c.mu.Lock()
	c.stopping = true
	proc := c.proc
	c.mu.Unlock()
	if proc != nil {
		end(proc, false)
	}
	c.watch.Wait()
}

func end(p *process.Process, kill bool) {
	if kill {
		p.Kill()
		<-p.Done()
		return
	}
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done():
	case <-time.After(stopGrace):
		p.Kill()
		<-p.Done()
	}
}
