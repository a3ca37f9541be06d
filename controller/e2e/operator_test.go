//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
)

// operator is a running canary-controller.
type operator struct {
	cmd     *exec.Cmd
	log     *os.File
	health  string
	metrics string
	done    chan struct{}
	err     error
}

// startOperator runs the operator; it is killed when the test process dies.
func (c *cluster) startOperator(args ...string) (*operator, error) {
	log, err := os.CreateTemp(env.dir, "operator-*.log")
	if err != nil {
		return nil, err
	}
	op := &operator{log: log, health: freeAddress(), metrics: freeAddress(), done: make(chan struct{})}
	op.cmd = exec.Command(env.binary, append([]string{
		"--kubeconfig", c.kubeconfig, "--health-address", op.health, "--metrics-address", op.metrics, "--v", "2",
	}, args...)...)
	op.cmd.Stdout, op.cmd.Stderr = log, log
	op.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := op.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the operator: %w", err)
	}
	go func() {
		op.err = op.cmd.Wait()
		close(op.done)
	}()
	return op, nil
}

func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// operate starts an operator for one test and stops it at the end of the test.
func (s *space) operate(args ...string) *operator {
	s.Helper()
	op, err := s.startOperator(args...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		op.stop()
		if s.Failed() {
			s.Logf("operator log:\n%s", op.output())
		}
	})
	return op
}

func (o *operator) ready() error {
	response, err := http.Get("http://" + o.health + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("readyz: %s: %s", response.Status, body)
	}
	return nil
}

func (o *operator) output() string {
	text, _ := os.ReadFile(o.log.Name())
	return string(text)
}

// signal sends a signal and waits for the end, returning the exit code.
func (o *operator) signal(sig os.Signal) int {
	_ = o.cmd.Process.Signal(sig)
	<-o.done
	return o.cmd.ProcessState.ExitCode()
}

func (o *operator) stop() {
	select {
	case <-o.done:
	default:
		o.signal(syscall.SIGTERM)
	}
	o.log.Close()
}
