package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
)

// The kubelet's own probers. They are safe for concurrent use.
var (
	httpProber = httpprobe.New(false)
	tcpProber  = tcpprobe.New()
	grpcProber = grpcprobe.New()
)

// probe looks at a container once and says whether it is well, and if not why.
func (e *Engine) probe(ctx context.Context, p *podRun, c *corev1.Container, pl *plan, spec *corev1.Probe) (bool, string) {
	timeout := time.Duration(max(spec.TimeoutSeconds, 1)) * time.Second
	var result probe.Result
	var message string
	var err error
	switch {
	case spec.HTTPGet != nil:
		result, message, err = probeHTTP(c, spec.HTTPGet, p.ip, timeout)
	case spec.TCPSocket != nil:
		var port int
		if port, err = probe.ResolveContainerPort(spec.TCPSocket.Port, c); err == nil {
			result, message, err = tcpProber.Probe(hostOr(spec.TCPSocket.Host, p.ip), port, timeout)
		}
	case spec.GRPC != nil:
		service := ""
		if spec.GRPC.Service != nil {
			service = *spec.GRPC.Service
		}
		result, message, err = grpcProber.Probe(p.ip, service, int(spec.GRPC.Port), timeout, grpcprobe.ProbeOptions{})
	case spec.Exec != nil:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		message, err = e.execute(ctx, pl, spec.Exec.Command)
		result = probe.Success
	default:
		return true, ""
	}
	if err != nil {
		return false, strings.TrimSpace(err.Error() + " " + message)
	}
	return result == probe.Success || result == probe.Warning, message
}

func hostOr(host, ip string) string {
	if host != "" {
		return host
	}
	return ip
}

func probeHTTP(c *corev1.Container, action *corev1.HTTPGetAction, ip string, timeout time.Duration) (probe.Result, string, error) {
	request, err := httpprobe.NewRequestForHTTPGetAction(action, c, ip, "probe")
	if err != nil {
		return probe.Unknown, "", err
	}
	return httpProber.Probe(request, timeout)
}

// handle runs a lifecycle hook.
func (e *Engine) handle(ctx context.Context, p *podRun, c *corev1.Container, pl *plan, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		output, err := e.execute(ctx, pl, h.Exec.Command)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	case h.HTTPGet != nil:
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(30 * time.Second)
		}
		result, message, err := probeHTTP(c, h.HTTPGet, p.ip, time.Until(deadline))
		if err == nil && result != probe.Success {
			err = errors.New(message)
		}
		return err
	case h.TCPSocket != nil:
		port, err := probe.ResolveContainerPort(h.TCPSocket.Port, c)
		if err != nil {
			return err
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(hostOr(h.TCPSocket.Host, p.ip), strconv.Itoa(port)))
		if err != nil {
			return err
		}
		return conn.Close()
	case h.Sleep != nil:
		select {
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
		return nil
	default:
		return nil
	}
}

// maxExecOutput is how much output of a command is kept for a message.
const maxExecOutput = 10 << 10

// execute runs a command beside a container's process, with its environment
// and paths. The command and what it started are killed when ctx ends.
func (e *Engine) execute(ctx context.Context, pl *plan, command []string) (string, error) {
	program, err := resolve(command[0], pl.image, pl.mounts)
	if err != nil {
		return "", err
	}
	args := make([]string, 0, len(command)-1)
	for _, a := range command[1:] {
		args = append(args, rewrite(a, pl.mounts))
	}
	cmd := exec.Command(program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env, cmd.Dir = pl.environ(), pl.dir
	cmd.WaitDelay = outputDelay
	proc, err := e.cfg.Spawner.Start(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()
		<-proc.Done()
		return "", fmt.Errorf("command %q timed out", strings.Join(command, " "))
	}
	output := out.String()
	output = output[:min(len(output), maxExecOutput)]
	if code, _ := proc.Exit(); code != 0 {
		return output, fmt.Errorf("command %q exited with %d", strings.Join(command, " "), code)
	}
	return output, nil
}
