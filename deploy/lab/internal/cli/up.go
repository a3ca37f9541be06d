package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/kubelet"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/pod"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

// startTimeout bounds the whole start.
const startTimeout = 2 * time.Minute

type upOptions struct {
	cluster    cluster.Options
	nodes      int
	images     string
	maxBackoff time.Duration
	detach     bool
}

func upCommand() *cobra.Command {
	o := &upOptions{}
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a lab and print its kubeconfig's path when it is ready",
		Long: `Start a lab: etcd, the API server, the controller manager, the scheduler and
the nodes. The kubeconfig's path goes to stdout when everything is ready,
progress to stderr. The lab runs until SIGINT or SIGTERM; with --detach it goes
on in the background until "lab down". Each start begins with an empty cluster.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.nodes < 1 {
				return fmt.Errorf("--nodes %d: at least one node is needed", o.nodes)
			}
			if p := o.cluster.Port; p < 0 || p > 65535 {
				return fmt.Errorf("--port %d: not a port", p)
			}
			if o.maxBackoff < time.Second {
				return fmt.Errorf("--max-restart-period %s: at least 1s, as for a kubelet", o.maxBackoff)
			}
			if o.detach {
				return detach(cmd, o)
			}
			return up(cmd.Context(), o)
		},
	}
	dirFlag(c, &o.cluster.Dir)
	f := c.Flags()
	f.StringVar(&o.cluster.Name, "name", "lab", "the cluster's name in the kubeconfig, and the prefix of its nodes' names")
	f.StringVar(&o.cluster.Kubeconfig, "kubeconfig", "", "also write the administrator's kubeconfig to this file")
	f.IntVar(&o.nodes, "nodes", 1, "number of nodes")
	f.StringVar(&o.cluster.Address, "address", "", "the control plane's address (default: the first of the lab's own loopback range)")
	f.IntVar(&o.cluster.Port, "port", 0, "the API server's port (0: a free one)")
	f.StringVar(&o.images, "images", "", "the image table, YAML or JSON, read anew at each start of a container (default: images.yaml in the lab's directory)")
	f.StringVar(&o.cluster.AuditLog, "audit-log", "", "write the API server's audit log (level Metadata, JSON lines) to this file")
	f.BoolVar(&o.cluster.NoFsync, "etcd-unsafe-no-fsync", true, "let etcd skip fsync")
	f.DurationVar(&o.maxBackoff, "max-restart-period", pod.DefaultMaxBackoff, "cap of the back-off between restarts of a container and between pulls of an image")
	f.IntVar(&o.cluster.Verbosity, "v", 0, "log level of the control plane")
	f.BoolVar(&o.detach, "detach", false, "return when the lab is ready and leave it running")
	return c
}

// lab is everything that runs.
type lab struct {
	cluster *cluster.Cluster
	kubelet *kubelet.Kubelet
	control *control
}

func (l *lab) stop() {
	if l.control != nil {
		l.control.stop()
	}
	if l.kubelet != nil {
		l.kubelet.Stop()
	}
	l.cluster.Stop()
}

// up runs a lab until ctx ends.
func up(ctx context.Context, o *upOptions) error {
	log := newLogger()
	o.cluster.Log = log
	begin := time.Now()
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	c, err := cluster.Up(starting, o.cluster)
	if err != nil {
		return err
	}
	l := &lab{cluster: c}
	defer l.stop()
	state, err := l.start(starting, o, log)
	if err != nil {
		return err
	}
	log.Info("ready", "server", state.Server, "nodes", o.nodes, "after", time.Since(begin).Round(10*time.Millisecond))
	fmt.Println(state.Kubeconfig)
	select {
	case <-ctx.Done():
		log.Info("stopping")
		return nil
	case <-l.control.down:
		log.Info("stopping")
		return nil
	case <-c.Failed():
		return c.Err()
	}
}

// start joins the nodes and waits until pods can be created.
func (l *lab) start(ctx context.Context, o *upOptions, log *slog.Logger) (cluster.State, error) {
	dir, err := filepath.Abs(o.cluster.Dir)
	if err != nil {
		return cluster.State{}, err
	}
	images := o.images
	if images == "" {
		images = filepath.Join(dir, "images.yaml")
	}
	if images, err = filepath.Abs(images); err != nil {
		return cluster.State{}, err
	}
	log.Info("starting", "component", "nodes", "nodes", o.nodes)
	l.kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Kubeconfig: l.cluster.KubeletKubeconfig(),
		Nodes:      o.nodes,
		NamePrefix: o.cluster.Name,
		Address:    l.cluster.Address(),
		Port:       l.cluster.KubeletPort(),
		Cert:       l.cluster.PKI("components.crt"),
		Key:        l.cluster.PKI("components.key"),
		CA:         l.cluster.PKI("ca.crt"),
		Version:    cluster.KubernetesVersion(),
		Log:        log,
		Pod: pod.Config{
			Spawner:    l.cluster.Spawner(),
			Dir:        filepath.Join(dir, "pods"),
			Logs:       PodLogs(dir),
			Images:     images,
			Addresses:  l.cluster.Range(),
			Reserved:   cluster.ReservedAddresses,
			Server:     l.cluster.Server(),
			CAFile:     l.cluster.PKI("ca.crt"),
			MaxBackoff: o.maxBackoff,
			Log:        log,
		},
	})
	if err != nil {
		return cluster.State{}, err
	}
	if err := waitServiceAccount(ctx, l.cluster); err != nil {
		return cluster.State{}, err
	}
	if l.control, err = serveControl(l.cluster, log); err != nil {
		return cluster.State{}, err
	}
	self, err := process.Self()
	if err != nil {
		return cluster.State{}, err
	}
	state := cluster.State{
		Supervisor: self,
		Name:       o.cluster.Name,
		Server:     l.cluster.Server(),
		Kubeconfig: l.cluster.Kubeconfig(),
		AuditLog:   o.cluster.AuditLog,
		Images:     images,
		Nodes:      o.nodes,
		Control:    l.control.url,
		Token:      l.control.token,
		Ready:      true,
	}
	return state, state.Write(dir)
}

// PodLogs is where the pods' output of the lab in dir goes.
func PodLogs(dir string) string { return filepath.Join(dir, "logs", "pods") }

// waitServiceAccount returns when the controller manager has made the default
// service account, without which no pod is admitted.
func waitServiceAccount(ctx context.Context, c *cluster.Cluster) error {
	for {
		_, err := c.Client().CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			return fmt.Errorf("waiting for the default service account: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the default service account: %w", errors.Join(context.Cause(ctx), err))
		case <-c.Failed():
			return c.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
