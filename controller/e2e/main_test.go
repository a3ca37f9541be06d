//go:build e2e

package e2e

import (
	"context"
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

// cluster is the API server that every test talks to.
type cluster struct {
	lab        *servers.Lab
	kubeconfig string
	config     *rest.Config
	kube       kubernetes.Interface
	canaries   versioned.Interface
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
}

var env *cluster

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
	env = &cluster{kubeconfig: os.Getenv("E2E_KUBECONFIG")}
	if env.dir, err = os.MkdirTemp("", "canary-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(env.dir)
	if env.kubeconfig == "" {
		env.lab, err = servers.StartLab(ctx, servers.LabOptions{
			Options: servers.Options{Progress: os.Stderr}, Name: "e2e", Nodes: 2, Audit: true, MaxRestartPeriod: time.Second,
		})
		if err != nil {
			return 1, err
		}
		defer func() {
			if stopErr := env.lab.Stop(); stopErr != nil && err == nil {
				code, err = 1, stopErr
			}
		}()
		env.kubeconfig = env.lab.Kubeconfig
	}
	if env.config, err = clientcmd.BuildConfigFromFlags("", env.kubeconfig); err != nil {
		return 1, err
	}
	env.config.QPS, env.config.Burst = 500, 1000
	env.config.UserAgent = "canary-e2e"
	if env.kube, err = kubernetes.NewForConfig(env.config); err != nil {
		return 1, err
	}
	if env.canaries, err = versioned.NewForConfig(env.config); err != nil {
		return 1, err
	}
	if err := env.applyCRD(ctx); err != nil {
		return 1, err
	}
	env.binary = filepath.Join(env.dir, "canary-controller")
	build := exec.CommandContext(ctx, "go", "build", "-o", env.binary, "../cmd/canary-controller")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the operator: %w\n%s", err, out)
	}
	env.ctx = ctx
	code = m.Run()
	for _, end := range env.atEnd {
		if endErr := end(); endErr != nil && err == nil {
			code, err = 1, endErr
		}
	}
	if env.shared.op != nil {
		env.shared.op.stop()
	}
	return code, nil
}
