package pod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/image"
)

const (
	serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// retryPeriod is the pause before a container whose volumes or
	// configuration could not be had is tried again.
	retryPeriod = 2 * time.Second
)

// stage says at which step a start failed.
type stage int

const (
	stageVolumes stage = iota
	stageConfig
	stageStart
)

// startError is why a container could not be started.
type startError struct {
	stage stage
	err   error
}

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// disk is a pod's volumes, made when its first process is to start and kept up
// to date from then on.
type disk struct {
	mu    sync.Mutex
	set   *volumeSet
	hosts map[string]string
}

// volumesOf makes the pod's volumes unless they are there.
func (e *Engine) volumesOf(ctx context.Context, p *podRun, pod *corev1.Pod) (map[string]string, error) {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.disk.hosts != nil {
		return p.disk.hosts, nil
	}
	if p.disk.set == nil {
		p.disk.set = &volumeSet{e: e, pod: pod, ip: p.ip, dir: filepath.Join(e.podDir(p.uid), "volumes"), tokens: map[string]token{}}
	}
	hosts, err := p.disk.set.write(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	p.disk.hosts = hosts
	if p.disk.set.refreshable() {
		e.goRun(func(ctx context.Context) { e.refreshVolumes(ctx, p) })
	}
	return hosts, nil
}

// refreshVolumes keeps a pod's volumes up to date until the pod ends.
func (e *Engine) refreshVolumes(ctx context.Context, p *podRun) {
	ticker := time.NewTicker(refreshPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case now := <-ticker.C:
			p.mu.Lock()
			over := p.terminal != ""
			p.mu.Unlock()
			if over {
				return
			}
			p.disk.mu.Lock()
			_, err := p.disk.set.write(ctx, now)
			p.disk.mu.Unlock()
			if err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("updating a pod's volumes", "pod", p.name, "error", err)
			}
		}
	}
}

// prepare makes everything a container's process needs.
func (e *Engine) prepare(ctx context.Context, p *podRun, pod *corev1.Pod, c *corev1.Container, img image.Image, run int) (*plan, *startError) {
	hosts, err := e.volumesOf(ctx, p, pod)
	if err != nil {
		return nil, &startError{stageVolumes, err}
	}
	predefined := map[string]string{
		"PATH": searchPath(), "HOSTNAME": p.name.Name,
		"POD_IP": p.ip, "POD_NAME": p.name.Name, "POD_NAMESPACE": p.name.Namespace,
	}
	env, err := environment(pod, p.ip, e.cfg.Host, c, img.Env, predefined, namespaced{ctx, e.cfg.Client, pod.Namespace})
	if err != nil {
		return nil, &startError{stageConfig, err}
	}
	expand := func(s string) string { return expansion.Expand(s, expansion.MappingFuncFor(env)) }
	paths, err := mounts(c, hosts, expand)
	if err != nil {
		return nil, &startError{stageConfig, err}
	}
	dir := filepath.Join(e.podDir(p.uid), "containers", c.Name)
	pl := &plan{
		image: img, env: env, dir: dir, mounts: paths,
		terminationLog: filepath.Join(dir, "termination-log"),
		logs:           filepath.Join(LogDir(e.cfg.Logs, p.name, p.uid), c.Name, strconv.Itoa(run)+".log"),
	}
	if err := pl.makeFiles(c); err != nil {
		return nil, &startError{stageConfig, err}
	}
	if _, set := env["HOME"]; !set {
		env["HOME"] = dir
	}
	for _, m := range paths {
		if _, set := env["KUBECONFIG"]; m.path == serviceAccountPath && !set {
			file := filepath.Join(e.podDir(p.uid), "kubeconfig-"+c.Name)
			if err := writeKubeconfig(file, e.cfg.Server, e.cfg.CAFile, filepath.Join(m.host, "token"), pod.Namespace); err != nil {
				return nil, &startError{stageConfig, err}
			}
			env["KUBECONFIG"] = file
		}
	}
	if err := pl.finish(c); err != nil {
		return nil, &startError{stageStart, err}
	}
	return pl, nil
}

// makeFiles makes the container's directory and its termination message file.
func (p *plan) makeFiles(c *corev1.Container) error {
	for _, d := range []string{p.dir, filepath.Dir(p.logs)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(p.terminationLog, nil, 0o644); err != nil {
		return err
	}
	if c.TerminationMessagePath != "" {
		p.mounts = append(p.mounts, mount{path: c.TerminationMessagePath, host: p.terminationLog})
		sortMounts(p.mounts)
	}
	return nil
}

// writeKubeconfig writes the kubeconfig that stands for in-cluster
// configuration, whose fixed paths a process cannot have without root.
func writeKubeconfig(path, server, ca, tokenFile, namespace string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "pod", Namespace: namespace}
	config.CurrentContext = "lab"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the pod's kubeconfig: %w", err)
	}
	return nil
}
