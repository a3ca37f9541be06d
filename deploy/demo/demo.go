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
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	canaryclient "github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// cleanupDeadline bounds the end of the demo.
const cleanupDeadline = time.Minute

// Names of the example manifests and of the operator's.
const (
	namespace         = "tech-prod"
	canaryName        = "go-hello-canary"
	operatorNamespace = "canary-system"
	operatorName      = "canary-controller"
	operatorSelector  = "app.kubernetes.io/name=" + operatorName
)

// demo is what runs, and how to reach it.
type demo struct {
	options
	*screen

	dir      string
	programs programs
	// kubectl is the program and its first arguments.
	kubectl    []string
	kubeconfig string
	kube       kubernetes.Interface
	canaries   canaryclient.Interface

	lab        *process
	jaeger     *servers.JaegerServer
	prometheus *prometheus
	follower   *follower
	bookinfo   bookinfo
	load       *load
	told       told
	// operator is on this machine in the user's own cluster only, and serves its
	// metrics on operatorMetrics.
	operator        *process
	operatorMetrics string
	// undo is what the demo made in the user's own cluster.
	undo []func(context.Context) error
	// died gets the name of a process that ended by itself.
	died chan string
}

// ownCluster says that the user gave a cluster.
func (d *demo) ownCluster() bool { return d.options.kubeconfig != "" }

// prepare builds and starts everything up to an operator that works.
func (d *demo) prepare(ctx context.Context) error {
	d.died = make(chan string, 4)
	d.begin("Build what is missing")
	if err := d.build(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Start Jaeger", d.startJaeger},
		{"Start a Kubernetes API server", d.startCluster},
		{"Start Prometheus", d.startPrometheus},
		{"Install the operator", d.installOperator},
	} {
		d.begin(step.title)
		if err := d.within(ctx, step.title, step.do); err != nil {
			return err
		}
	}
	return nil
}

// within does a step under the step's deadline.
func (d *demo) within(ctx context.Context, title string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, d.deadline)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%q did not reach its state within %s: %w", title, d.deadline, err)
	}
	if err != nil {
		return fmt.Errorf("%q failed: %w", title, err)
	}
	return nil
}

// watch reports when a process ends by itself.
func (d *demo) watch(p *process) {
	go func() {
		<-p.done
		if p.stopping.Load() {
			return
		}
		select {
		case d.died <- p.name:
		default:
		}
	}()
}

// connect makes the clients.
func (d *demo) connect(kubeconfig string) error {
	d.kubeconfig = kubeconfig
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err)
	}
	config = rest.AddUserAgent(config, "canary-demo")
	if d.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	if d.canaries, err = canaryclient.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return nil
}

// plugin is the first word of what kubectl leaves to kubectl-canary.
const plugin = "canary"

// kubectlQuiet runs kubectl without showing it and returns what it printed.
func (d *demo) kubectlQuiet(ctx context.Context, stdin string, args ...string) (string, error) {
	words := append(append([]string{}, d.kubectl...), args...)
	if args[0] == plugin {
		// kubectl hands a plugin its arguments, but takes none of its own before them, such
		// as the lab's kubeconfig.
		words = append([]string{d.programs.plugin, "--kubeconfig", d.kubeconfig}, args[1:]...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	// A group of its own, so that Ctrl-C reaches the demo alone.
	cmd.SysProcAttr = processAttributes()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", shell(append([]string{"kubectl"}, args...)), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

// run shows a kubectl command as a person would type it, runs it, and shows
// what it prints.
func (d *demo) run(ctx context.Context, args ...string) error {
	d.command(append([]string{"kubectl"}, args...)...)
	out, err := d.kubectlQuiet(ctx, "", args...)
	for line := range strings.Lines(out) {
		d.print("   %s\n", d.paint(dim, strings.TrimRight(line, "\n")))
	}
	return err
}

// cleanUp ends everything that the demo started and removes its directory.
func (d *demo) cleanUp(ctx context.Context) error {
	var errs []error
	if d.load != nil {
		errs = append(errs, d.load.stop(ctx))
	}
	for i := len(d.undo) - 1; i >= 0; i-- {
		errs = append(errs, d.undo[i](ctx))
	}
	if d.follower != nil {
		d.follower.end()
	}
	if d.prometheus != nil && d.prometheus.process != nil {
		errs = append(errs, d.prometheus.stop(ctx))
	}
	if d.operator != nil {
		errs = append(errs, d.operator.stop(ctx))
	}
	if d.lab != nil {
		errs = append(errs, d.lab.stop(ctx), d.sweepLab(ctx))
	}
	if d.jaeger != nil {
		errs = append(errs, d.jaeger.Stop())
	}
	if d.keep {
		d.note("The logs are in %s", d.dir)
	} else {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}

// sweepLab ends what a lab that was killed left behind.
func (d *demo) sweepLab(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, d.programs.lab, "down", "--dir", d.labDir(), "--keep")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cleaning up after the lab: %w: %s", err, out)
	}
	return nil
}

// binDir has the programs of the product.
func (d *demo) binDir() string { return filepath.Join(d.dir, "bin") }

func (d *demo) labDir() string { return filepath.Join(d.dir, "lab") }

// explain shows the state of things after a step that failed.
func (d *demo) explain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	d.begin("What it looks like now")
	commands := [][]string{
		{"-n", namespace, "get", "canaries,deployments,pods", "-o", "wide"},
		{"-n", namespace, "describe", "canary", canaryName},
	}
	if !d.ownCluster() {
		commands = append(commands,
			[]string{"-n", bookinfoNamespace, "get", "canaries,deployments,pods", "-o", "wide"},
			[]string{plugin, "why", bookinfoCanary, "-n", bookinfoNamespace},
			[]string{"-n", operatorNamespace, "logs", "-l", operatorSelector, "--tail=20", "--prefix"})
	}
	for _, c := range commands {
		if err := d.run(ctx, c...); err != nil {
			d.note("%v", err)
		}
	}
	if d.operator != nil {
		d.print("%s", d.operator.tail(20))
	}
}
