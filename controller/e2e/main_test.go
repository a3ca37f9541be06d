//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// cluster is an API server that tests talk to.
type cluster struct {
	lab        *servers.Lab
	kubeconfig string
	config     *rest.Config
	kube       kubernetes.Interface
	canaries   versioned.Interface
}

// env is what the tests of a process share.
var env struct {
	*cluster
	// binary is the operator's executable.
	binary string
	dir    string
	// ctx is that of the whole run, atEnd what ends with it.
	ctx    context.Context
	atEnd  []func() error
	shared struct {
		once sync.Once
		op   *operator
	}
	// second is a lab beside the first, for tests with operators of their own.
	second struct {
		*cluster
		once sync.Once
		err  error
	}
}

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	env.ctx = ctx
	if env.dir, err = os.MkdirTemp("", "canary-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(env.dir)
	if kubeconfig := os.Getenv("E2E_KUBECONFIG"); kubeconfig != "" {
		env.cluster, err = connect(kubeconfig)
	} else {
		env.cluster, err = startCluster(ctx, "e2e")
	}
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.stop(), env.second.stop()) }()
	if err := env.applyCRD(ctx); err != nil {
		return 1, err
	}
	env.binary = filepath.Join(env.dir, "canary-controller")
	build := exec.CommandContext(ctx, "go", "build", "-o", env.binary, "../cmd/canary-controller")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the operator: %w\n%s", err, out)
	}
	code = m.Run()
	for _, end := range env.atEnd {
		err = errors.Join(err, end())
	}
	if env.shared.op != nil {
		env.shared.op.stop()
	}
	return code, err
}

// startCluster starts a lab.
func startCluster(ctx context.Context, name string) (*cluster, error) {
	lab, err := servers.StartLab(ctx, servers.LabOptions{
		Options: servers.Options{Progress: os.Stderr}, Name: name, Nodes: 2, Audit: true, MaxRestartPeriod: time.Second,
	})
	if err != nil {
		return nil, err
	}
	c, err := connect(lab.Kubeconfig)
	if err != nil {
		return nil, errors.Join(err, lab.Stop())
	}
	c.lab = lab
	return c, nil
}

func connect(kubeconfig string) (c *cluster, err error) {
	c = &cluster{kubeconfig: kubeconfig}
	if c.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, err
	}
	c.config.QPS, c.config.Burst = 500, 1000
	c.config.UserAgent = "canary-e2e"
	if c.kube, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, err
	}
	c.canaries, err = versioned.NewForConfig(c.config)
	return c, err
}

// stop ends the lab, if there is one.
func (c *cluster) stop() error {
	if c == nil || c.lab == nil {
		return nil
	}
	return c.lab.Stop()
}
