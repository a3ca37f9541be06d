package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

// Options say what lab to start.
type Options struct {
	// Dir holds everything of the lab. What an earlier lab left in it is
	// removed; a directory with anything else in it is refused.
	Dir string
	// Name is the cluster's name in kubeconfigs.
	Name string
	// Kubeconfig is where to write the administrator's kubeconfig besides
	// Dir. Empty: nowhere.
	Kubeconfig string
	// Address and Port are where the API server listens; by default the first
	// address of the lab's own loopback range and a free port.
	Address string
	Port    int
	// AuditLog is the file for the API server's audit log. Empty: no audit.
	AuditLog string
	// NoFsync lets etcd skip fsync: much faster, and a lab's data need not
	// survive the machine.
	NoFsync bool
	// Verbosity is the components' log level (-v).
	Verbosity int
	Log       *slog.Logger
}

// Cluster is a running control plane.
type Cluster struct {
	opts       Options
	layout     *layout
	block      *block
	spawner    *process.Spawner
	components map[string]*component
	order      []string
	client     kubernetes.Interface
	restConfig *rest.Config

	failOnce sync.Once
	failed   chan struct{}
	err      error
	cancel   context.CancelFunc
}

// Up starts a control plane and returns when it serves. ctx bounds the start
// only; Stop ends the control plane.
func Up(ctx context.Context, opts Options) (_ *Cluster, err error) {
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, err
	}
	if err := prepareDir(opts.Dir, opts.Log); err != nil {
		return nil, err
	}
	b, err := claimBlock()
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, block: b, components: map[string]*component{}, failed: make(chan struct{}), cancel: func() {}}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if err := c.plan(); err != nil {
		return nil, err
	}
	if err := c.layout.write(opts.Name); err != nil {
		return nil, err
	}
	if opts.Kubeconfig != "" {
		if err := writeKubeconfig(opts.Kubeconfig, filepath.Join(opts.Dir, "pki"), "admin", opts.Name, c.layout.server()); err != nil {
			return nil, err
		}
	}
	if c.restConfig, err = clientcmd.BuildConfigFromFlags("", c.layout.kubeconfig("admin")); err != nil {
		return nil, err
	}
	c.restConfig.QPS = -1
	c.restConfig.UserAgent = "lab"
	if c.client, err = kubernetes.NewForConfig(c.restConfig); err != nil {
		return nil, err
	}
	return c, c.startAll(ctx)
}

func (c *Cluster) plan() error {
	l := &layout{
		dir:       c.opts.Dir,
		address:   c.block.address(),
		auditLog:  c.opts.AuditLog,
		noFsync:   c.opts.NoFsync,
		verbosity: c.opts.Verbosity,
	}
	if c.opts.Address != "" {
		l.address = c.opts.Address
	}
	if l.auditLog != "" {
		path, err := filepath.Abs(l.auditLog)
		if err != nil {
			return err
		}
		l.auditLog = path
	}
	ports, err := freePorts(l.address, 7)
	if err != nil {
		return err
	}
	l.etcdPort, l.etcdPeerPort, l.apiPort, l.managerPort = ports[0], ports[1], ports[2], ports[3]
	l.schedulerPort, l.kubeletPort, l.controlPort = ports[4], ports[5], ports[6]
	if c.opts.Port != 0 {
		l.apiPort = c.opts.Port
		probe, err := net.Listen("tcp", l.at(l.apiPort))
		if err != nil {
			return fmt.Errorf("--port %d: %w", l.apiPort, err)
		}
		_ = probe.Close()
	}
	c.layout = l
	if c.spawner, err = process.NewSpawner(l.dir); err != nil {
		return err
	}
	for name, args := range map[string][]string{
		Etcd:              l.etcdArgs(),
		APIServer:         l.apiServerArgs(),
		ControllerManager: l.controllerManagerArgs(),
		Scheduler:         l.schedulerArgs(),
	} {
		c.components[name] = &component{name: name, args: args, logFile: l.logFile(name), spawn: c.spawner, log: c.opts.Log}
	}
	return nil
}

// startAll starts the components in the order they need each other. The API
// server retries until etcd answers, so that both can start at once.
func (c *Cluster) startAll(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	start := func(names ...string) error {
		for _, name := range names {
			c.opts.Log.Info("starting", "component", name)
			if err := c.components[name].start(); err != nil {
				return err
			}
			c.order = append(c.order, name)
			c.components[name].supervise(run, c.fail)
		}
		return nil
	}
	if err := start(Etcd, APIServer); err != nil {
		return err
	}
	if err := c.waitServing(ctx); err != nil {
		return err
	}
	return start(ControllerManager, Scheduler)
}

// waitServing returns when the API server is ready.
func (c *Cluster) waitServing(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server (see %s): %w", c.layout.logFile(APIServer), errors.Join(context.Cause(ctx), err))
		case <-c.failed:
			return c.err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) fail(err error) {
	c.failOnce.Do(func() {
		c.err = err
		close(c.failed)
	})
}

// Failed is closed when a component cannot be kept running; Err then says why.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Err is valid after Failed is closed.
func (c *Cluster) Err() error { return c.err }

// Restart restarts one component and, if it is the API server, waits until it
// serves again. With kill it gets SIGKILL.
func (c *Cluster) Restart(ctx context.Context, name string, kill bool) error {
	comp, ok := c.components[name]
	if !ok {
		return fmt.Errorf("there is no component %q", name)
	}
	if err := comp.restart(kill); err != nil {
		return err
	}
	if name == APIServer || name == Etcd {
		return c.waitServing(ctx)
	}
	return nil
}

// Stop ends every component, in the reverse order of their start, waits for
// them, kills what pods left running in sessions of their own, and gives the
// lab's addresses back. It may be called once.
func (c *Cluster) Stop() {
	for i := len(c.order) - 1; i >= 0; i-- {
		c.components[c.order[i]].stop()
	}
	c.cancel()
	if _, err := process.Sweep(c.opts.Dir); err != nil {
		c.opts.Log.Error("stopping what pods left running", "error", err)
	}
	c.block.release()
}

// Kubeconfig is the file with the administrator's credentials.
func (c *Cluster) Kubeconfig() string { return c.layout.kubeconfig("admin") }

// KubeletKubeconfig is the file with the nodes' credentials.
func (c *Cluster) KubeletKubeconfig() string { return c.layout.kubeconfig("kubelet") }

// Client is the administrator's client.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Spawner starts processes of this lab.
func (c *Cluster) Spawner() *process.Spawner { return c.spawner }

// Server is the API server's URL.
func (c *Cluster) Server() string { return c.layout.server() }

// Address is the control plane's address; KubeletPort and ControlPort are the
// ports reserved on it for the nodes and for the lab's own control API.
func (c *Cluster) Address() string { return c.layout.address }

// KubeletPort is the port reserved for the kubelet API.
func (c *Cluster) KubeletPort() int { return c.layout.kubeletPort }

// ControlPort is the port reserved for the lab's own control API.
func (c *Cluster) ControlPort() int { return c.layout.controlPort }

// PKI is the path of a file of the lab's key store.
func (c *Cluster) PKI(file string) string { return c.layout.pki(file) }

// prepareDir makes dir an empty directory for a new lab.
func prepareDir(dir string, log *slog.Logger) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		state, err := ReadState(dir)
		if err != nil {
			return fmt.Errorf("%s is neither empty nor a lab's directory: %w", dir, err)
		}
		if state.Supervisor.Alive() {
			return fmt.Errorf("a lab is running in %s already (process %d); stop it with: lab down --dir %s", dir, state.Supervisor.Pid, dir)
		}
		if err := Clean(dir, log); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self, err := process.Self()
	if err != nil {
		return err
	}
	return State{Supervisor: self}.Write(dir)
}

// Clean kills what a lab that is no longer running left behind in the process
// table and removes its files from dir.
func Clean(dir string, log *slog.Logger) error {
	if err := Sweep(dir, log); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == stateFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Sweep kills what the lab in dir left behind in the process table.
func Sweep(dir string, log *slog.Logger) error {
	n, err := process.Sweep(dir)
	if n > 0 {
		log.Info("killed processes of a lab that did not stop in order", "processes", n, "dir", dir)
	}
	return err
}

// Range is the lab's own range of loopback addresses.
func (c *Cluster) Range() netip.Prefix { return c.block.prefix }

// KubernetesVersion is the version of the servers in this binary.
func KubernetesVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}
	return "v0.0.0"
}
