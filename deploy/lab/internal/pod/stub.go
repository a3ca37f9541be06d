package pod

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/image"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

type probes struct{}

func (*probes) stop() {}

func (p *podRun) mounted(now time.Time, soonest func(time.Time)) bool { return true }
func (p *podRun) startProcess(c *container, img image.Image)          {}

func (e *Engine) ContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	return nil, errors.New("no logs")
}
