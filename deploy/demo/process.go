package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end in order.
const stopGrace = 20 * time.Second

// process is a server that the demo started, in a process group of its own: a
// Ctrl-C reaches the demo alone, which then stops everything in order.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	// stopping says that its end is wanted.
	stopping atomic.Bool
}

// start runs program until stop. Its output goes to a file in dir, its standard
// output also to out if that is not nil, which is closed at the end.
func start(dir, name string, out io.WriteCloser, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	// A process that is started again goes on in the same file.
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if out != nil {
		p.cmd.Stdout = io.MultiWriter(log, out)
	}
	// A grandchild that keeps the output open must not keep Wait from returning.
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = processAttributes()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), log.Close())
	}
	go func() {
		defer close(p.done)
		p.err = errors.Join(p.cmd.Wait(), log.Close())
		if out != nil {
			_ = out.Close() // nobody reads on
		}
	}()
	return p, nil
}

// stop asks the process to end, makes it end if it does not, and returns when
// neither it nor its process group is there any more.
func (p *process) stop(ctx context.Context) error {
	p.stopping.Store(true)
	pid := p.cmd.Process.Pid
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	var err error
	select {
	case <-p.done:
	case <-grace.C:
		err = fmt.Errorf("%s did not stop within %s and was killed", p.name, stopGrace)
	case <-ctx.Done():
		err = fmt.Errorf("%s did not stop in time and was killed", p.name)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL) // what it left in its group
	<-p.done
	return err
}

// tail is the end of the process's log.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error() + "\n"
	}
	return lastLines(text, lines)
}

func lastLines(text []byte, n int) string {
	text = bytes.TrimRight(text, "\n")
	at := len(text)
	for range n {
		i := bytes.LastIndexByte(text[:at], '\n')
		if i < 0 {
			return string(text) + "\n"
		}
		at = i
	}
	return string(text[at+1:]) + "\n"
}
