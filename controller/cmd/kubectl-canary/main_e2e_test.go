//go:build e2e

// Tests with the build tag e2e run the program against the lab's API server, with no
// operator: they write a Canary's status themselves, so that every phase is there at will.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// patience bounds what a test waits for on a busy machine; it goes on at once when it is there.
const patience = 90 * time.Second

// env is what the tests share.
var env struct {
	lab      *servers.Lab
	binary   string
	config   *rest.Config
	kube     kubernetes.Interface
	canaries versioned.Interface
	// listBefore and statusBefore are what the program says before the CRD is there.
	listBefore, statusBefore result
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
	dir, err := os.MkdirTemp("", "kubectl-canary-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	env.binary = filepath.Join(dir, "kubectl-canary")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", env.binary, ".").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the program: %w\n%s", err, out)
	}
	env.lab, err = servers.StartLab(ctx, servers.LabOptions{Options: servers.Options{Progress: os.Stderr}, Name: "kubectl-canary", MaxRestartPeriod: time.Second})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := env.lab.Stop(); stopErr != nil && err == nil {
			code, err = 1, stopErr
		}
	}()
	if env.config, err = clientcmd.BuildConfigFromFlags("", env.lab.Kubeconfig); err != nil {
		return 1, err
	}
	env.config.QPS, env.config.Burst = 500, 1000
	if env.kube, err = kubernetes.NewForConfig(env.config); err != nil {
		return 1, err
	}
	if env.canaries, err = versioned.NewForConfig(env.config); err != nil {
		return 1, err
	}
	env.listBefore, env.statusBefore = run(ctx, nil, "list"), run(ctx, nil, "status", "web")
	if err := applyCRD(ctx); err != nil {
		return 1, fmt.Errorf("installing the CRD: %w", err)
	}
	return m.Run(), nil
}

// applyCRD installs the CRD and waits until it is served.
func applyCRD(ctx context.Context) error {
	const file = "../../../deploy/crd/canarycontroller.tech.com_canaries.yaml"
	if _, err := env.lab.Kubectl(ctx, "apply", "--server-side", "-f", file); err != nil {
		return err
	}
	return poll(func() error {
		_, err := env.canaries.CanarycontrollerV1alpha1().Canaries("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

// poll calls check until it returns nil, for at most patience.
func poll(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// result is what a run of the program came to.
type result struct {
	code     int
	out, err string
}

func (r result) String() string { return fmt.Sprintf("exit code %d\n%s%s", r.code, r.out, r.err) }

// environ is that of every run: nothing of the machine's own kubeconfig or colours.
func environ(extra ...string) []string {
	list := []string{"KUBECONFIG=" + env.lab.Kubeconfig, "HOME=/nonexistent", "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=xterm-256color"}
	return append(list, extra...)
}

// run executes the program as a person without a terminal would.
func run(ctx context.Context, extra []string, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, env.binary, args...)
	cmd.Env = environ(extra...)
	return finish(cmd)
}

// runAs executes the program under another of its names.
func runAs(ctx context.Context, program string, args ...string) result {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = environ()
	return finish(cmd)
}

func finish(cmd *exec.Cmd) result {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	code := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		code, complaint = -1, *bytes.NewBufferString(err.Error())
	}
	return result{code, out.String(), complaint.String()}
}

// space is a namespace of one test.
type space struct {
	*testing.T
	name string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	ns, err := env.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Not waited for: nothing else uses the namespace.
		_ = env.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), ns.Name, metav1.DeleteOptions{})
	})
	return &space{T: t, name: ns.Name}
}

// expect runs the program in the namespace and holds its exit code and parts of what it
// prints; SPACE in them stands for the namespace.
func (s *space) expect(code int, out, complaint string, args ...string) result {
	s.Helper()
	return s.expectWith(nil, code, out, complaint, args...)
}

func (s *space) expectWith(extra []string, code int, out, complaint string, args ...string) result {
	s.Helper()
	got := run(s.Context(), extra, append([]string{"-n", s.name}, args...)...)
	out, complaint = strings.ReplaceAll(out, "SPACE", s.name), strings.ReplaceAll(complaint, "SPACE", s.name)
	if got.code != code || !strings.Contains(got.out, out) || !strings.Contains(got.err, complaint) {
		s.Errorf("%v: %s\nwant exit code %d, %q and %q", args, got, code, out, complaint)
	}
	return got
}
