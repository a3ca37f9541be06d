package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyPeriod is how often a starting server is asked whether it is ready.
const readyPeriod = 50 * time.Millisecond

// maxLogTail is how much of a server's log goes into an error.
const maxLogTail = 4 << 10

// Proc is a running server. Its methods are safe for concurrent use.
type Proc struct {
	// Name is the server's name, Log the file its output goes to.
	Name, Log string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
	// grace is how long it may take to end.
	grace time.Duration
	// cleanup runs once it has ended.
	cleanup func() error
	once    sync.Once
	stopErr error
}

// forking starts processes on one thread that never ends: the kernel sends
// the parent-death signal when the thread that forked does.
var forking = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go fork(work)
	return work
})

func fork(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// start runs a server whose output goes to the file log. It gets SIGTERM when
// this process dies, whatever it dies of.
func start(name, log string, cmd *exec.Cmd, grace time.Duration, cleanup func() error) (*Proc, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	result := make(chan error)
	forking() <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Proc{Name: name, Log: log, cmd: cmd, done: make(chan struct{}), grace: grace, cleanup: cleanup}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the server has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Pid is the server's process id.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Stop ends the server, waits for it and removes its temporary files. Further
// calls return the first one's result.
func (p *Proc) Stop() error {
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(p.grace):
			p.stopErr = fmt.Errorf("%s did not end within %s and was killed", p.Name, p.grace)
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
			<-p.done
		}
		if p.cleanup != nil {
			p.stopErr = errors.Join(p.stopErr, p.cleanup())
		}
	})
	return p.stopErr
}

// waitReady returns when check succeeds, the server ends or ctx does.
func (p *Proc) waitReady(ctx context.Context, check func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%w):\n%s", p.Name, p.ended(), p.logTail())
		default:
		}
		if pauseErr := pause(ctx, readyPeriod); pauseErr != nil {
			return fmt.Errorf("waiting for %s: %w (last: %w):\n%s", p.Name, pauseErr, err, p.logTail())
		}
	}
}

func (p *Proc) ended() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

func (p *Proc) logTail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-maxLogTail):]))
}

// get asks for a page and wants status 200.
func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}

// freeAddresses returns n addresses, host:port, that nothing listens on by
// TCP or UDP. The host is a loopback address picked at random, so that the
// ports stay free: nobody else is there.
func freeAddresses(n int) ([]string, error) {
	host := net.IPv4(127, byte(64+rand.N(64)), byte(rand.N(256)), byte(1+rand.N(254))).String()
	addresses := make([]string, 0, n)
	for range n {
		tcp, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer tcp.Close()
		port := tcp.Addr().(*net.TCPAddr).Port
		udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host), Port: port})
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer udp.Close()
		addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	return addresses, nil
}

// workDir is dir, made if it is missing, or a temporary directory; remove
// removes a temporary one.
func workDir(dir, name string) (path string, remove func() error, err error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", nil, err
		}
		return abs, nil, os.MkdirAll(abs, 0o755)
	}
	path, err = os.MkdirTemp("", "canary-"+name+"-")
	return path, func() error { return os.RemoveAll(path) }, err
}
