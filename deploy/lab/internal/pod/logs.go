package pod

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"k8s.io/apimachinery/pkg/types"
)

// LogFiles are the log files of a container's runs in its directory, the
// oldest first.
func LogFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	runs := map[int]string{}
	last := -1
	for _, e := range entries {
		if run, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".log")); err == nil {
			runs[run] = filepath.Join(dir, e.Name())
			last = max(last, run)
		}
	}
	var files []string
	for run := range last + 1 {
		if file, ok := runs[run]; ok {
			files = append(files, file)
		}
	}
	return files, nil
}

// PickLog is the file of the latest run, or of the one before it.
func PickLog(dir, container string, previous bool) (string, error) {
	files, err := LogFiles(dir)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	n := len(files) - 1
	if previous {
		n--
	}
	if n < 0 && previous {
		return "", fmt.Errorf("previous terminated container %q not found", container)
	}
	if n < 0 {
		return "", fmt.Errorf("container %q has not started", container)
	}
	return files[n], nil
}

// ContainerLogs is a container's output, for the kubelet API.
func (e *Engine) ContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	p := e.named(types.NamespacedName{Namespace: namespace, Name: podName})
	if p == nil {
		return nil, errdefs.NotFoundf("pod %s/%s is not known", namespace, podName)
	}
	c, hollow := p.container(containerName)
	if c == nil {
		return nil, errdefs.NotFoundf("pod %s/%s has no container %q", namespace, podName, containerName)
	}
	if hollow {
		return io.NopCloser(strings.NewReader("")), nil
	}
	path, err := PickLog(filepath.Join(LogDir(e.cfg.Logs, p.name, p.uid), containerName), containerName, opts.Previous)
	if err != nil {
		return nil, errdefs.AsNotFound(err)
	}
	o := LogOptions{
		Tail: opts.Tail, LimitBytes: opts.LimitBytes, Since: opts.SinceTime,
		Timestamps: opts.Timestamps, Follow: opts.Follow && !opts.Previous,
	}
	if opts.Tail == 0 {
		// virtual-kubelet does not tell no limit from none wanted.
		o.Tail = -1
	}
	if opts.SinceSeconds > 0 {
		o.Since = time.Now().Add(-time.Duration(opts.SinceSeconds) * time.Second)
	}
	run := p.runOf(c)
	o.Ended = func() bool { return run == nil || ctx.Err() != nil || e.ctx.Err() != nil || p.runOf(c) != run }
	reader, writer := io.Pipe()
	e.goRun(func(context.Context) { _ = writer.CloseWithError(CopyLog(ctx, path, writer, o)) })
	return reader, nil
}

func (p *podRun) container(name string) (c *container, hollow bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all() {
		if c.spec.Name == name {
			_, hollow := c.inst.(*hollowRun)
			return c, hollow
		}
	}
	return nil, false
}

// runOf identifies the container's running run; it changes when the run ends.
func (p *podRun) runOf(c *container) instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.inst
}
