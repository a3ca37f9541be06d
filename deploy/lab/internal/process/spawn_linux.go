package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// MarkerEnv is set in the environment of every process a lab starts, with the
// lab's directory as its value. Descendants inherit it, so that a process that
// outlived its lab is recognised by [Sweep].
const MarkerEnv = "CANARY_LAB_DIR"

// Spawner starts processes that die with this one, and records them.
//
// It is safe for concurrent use. A Spawner lives as long as the program: the
// kernel sends the parent-death signal when the thread that forked ends, so
// forking is done on one thread that is never given back.
type Spawner struct {
	dir     string
	records string
	once    sync.Once
	work    chan func()
}

// NewSpawner returns a Spawner for the lab in dir.
func NewSpawner(dir string) (*Spawner, error) {
	records := filepath.Join(dir, recordsDir)
	if err := os.MkdirAll(records, 0o700); err != nil {
		return nil, fmt.Errorf("creating the process record directory: %w", err)
	}
	return &Spawner{dir: dir, records: records, work: make(chan func())}, nil
}

// Process is a started process, in a process group of its own.
type Process struct {
	Pid    int
	cmd    *exec.Cmd
	record string
	done   chan struct{}
	err    error
}

// Start starts cmd in its own process group, to be killed by the kernel when
// this program dies, whatever it dies of. The environment gets [MarkerEnv].
func (s *Spawner) Start(cmd *exec.Cmd) (*Process, error) {
	s.once.Do(func() { go s.thread() })
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, MarkerEnv+"="+s.dir)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, err
	}
	p := &Process{Pid: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	p.record = filepath.Join(s.records, strconv.Itoa(p.Pid))
	recordErr := writeRecord(p.record, p.Pid)
	go func() {
		p.err = cmd.Wait()
		// What the process left behind in its group goes with it, as the
		// members of a container's cgroup do.
		_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
		_ = os.Remove(p.record)
		close(p.done)
	}()
	if recordErr != nil {
		p.Signal(syscall.SIGKILL)
		<-p.done
		return nil, fmt.Errorf("recording process %d: %w", p.Pid, recordErr)
	}
	return p, nil
}

func (s *Spawner) thread() {
	runtime.LockOSThread()
	for f := range s.work {
		f()
	}
}

// Signal signals the process alone, not its group. A process that has ended is
// not an error.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill kills the process and its group.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	}
}

// Done is closed when the process has been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is the result of waiting, valid after Done.
func (p *Process) Err() error { return p.err }

// Exit returns the exit code as a container runtime gives it: 128 plus the
// signal's number for a process that a signal ended. Valid after Done.
func (p *Process) Exit() (code int, signal int) {
	if p.err == nil {
		return 0, 0
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), int(ws.Signal())
		}
		return exit.ExitCode(), 0
	}
	return 255, 0
}
