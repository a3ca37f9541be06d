package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// startCluster starts the lab, or connects to the user's own cluster.
func (d *demo) startCluster(ctx context.Context) error {
	if d.ownCluster() {
		return d.useOwnCluster(ctx)
	}
	if os.Getenv("KUBECONFIG") != "" {
		d.note("KUBECONFIG is set; the demo leaves that cluster alone. To use it: make demo KUBECONFIG=$KUBECONFIG")
	}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		d.note("KUBEBUILDER_ASSETS is set, but its control plane runs no pods; the demo needs some and uses the lab")
	}
	// An image table in the place of a registry.
	table, err := json.Marshal(map[string]any{"images": []map[string]any{
		{"name": "ghcr.io/canarycontroller/canary-controller:*", "executable": d.programs.operator},
		{"name": defaultImage + ":*", "executable": d.programs.goHello},
		d.bookinfo.image(d.programs.bookinfo),
	}})
	if err != nil {
		return err
	}
	images := filepath.Join(d.dir, "images.yaml")
	if err := os.WriteFile(images, table, 0o600); err != nil {
		return fmt.Errorf("writing the image table: %w", err)
	}
	out, in := io.Pipe()
	d.lab, err = start(d.dir, "lab", in, nil, d.programs.lab, "up", "--dir", d.labDir(), "--images", images, "--name", "demo")
	if err != nil {
		return err
	}
	path := make(chan string, 1)
	go func() { // ends with the lab
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			select {
			case path <- lines.Text():
			default:
			}
		}
	}()
	select {
	case p := <-path:
		d.kubectl = []string{d.programs.lab, "kubectl", "--dir", d.labDir(), "--"}
		if err := d.connect(p); err != nil {
			return err
		}
	case <-d.lab.done:
		return fmt.Errorf("the lab ended: %w\n%s", d.lab.err, d.lab.tail(20))
	case <-ctx.Done():
		return fmt.Errorf("waiting for the lab: %w\n%s", ctx.Err(), d.lab.tail(20))
	}
	d.watch(d.lab)
	nodes, err := d.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for _, node := range nodes.Items {
		d.saw("Kubernetes %s, node %s: its pods are processes on this machine", node.Status.NodeInfo.KubeletVersion, node.Name)
	}
	d.note("kubeconfig: %s", d.kubeconfig)
	return nil
}

// useOwnCluster refuses a cluster in which the demo would touch anything that
// is there already.
func (d *demo) useOwnCluster(ctx context.Context) error {
	program, err := exec.LookPath("kubectl")
	if err != nil {
		program = filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
		if _, statErr := os.Stat(program); statErr != nil {
			return errors.New("with a cluster of your own, kubectl must be on PATH or in KUBEBUILDER_ASSETS")
		}
	}
	d.kubectl = []string{program, "--kubeconfig", d.options.kubeconfig}
	if err := d.connect(d.options.kubeconfig); err != nil {
		return err
	}
	if _, err := d.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		if err == nil {
			err = errors.New("it is there already")
		}
		return fmt.Errorf("namespace %s, which the demo makes and removes: %w", namespace, err)
	}
	installed, err := d.crdInstalled()
	if err != nil {
		return err
	}
	if installed {
		return errors.New("the Canary CRD is installed in this cluster already, and an operator of its own may act on the demo's Canary")
	}
	version, err := d.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	d.saw("Kubernetes %s, your own", version.GitVersion)
	d.note("Skipped there: the operator runs on this machine with your rights instead of as a pod with its")
	d.note("own; pods are not asked for their version, since they cannot be reached from here. go-hello is")
	d.note("pulled from %s.", d.image)
	return nil
}

// crdInstalled reports whether the API server serves Canaries.
func (d *demo) crdInstalled() (bool, error) {
	gv := schema.GroupVersion{Group: "canarycontroller.tech.com", Version: "v1alpha1"}
	_, err := d.kube.Discovery().ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the API server for %s: %w", gv, err)
	}
	return true, nil
}

// installOperator applies the operator's manifests and waits until it works.
func (d *demo) installOperator(ctx context.Context) error {
	if d.ownCluster() {
		return d.runOperatorHere(ctx)
	}
	if err := d.run(ctx, "apply", "-k", "deploy/kustomize/base"); err != nil {
		return err
	}
	if err := d.run(ctx, "wait", "--for=condition=Established", "crd/canaries.canarycontroller.tech.com", "--timeout="+d.deadline.String()); err != nil {
		return err
	}
	if err := d.run(ctx, "-n", operatorNamespace, "rollout", "status", "deployment/"+operatorName, "--timeout="+d.deadline.String()); err != nil {
		logs, logErr := d.kubectlQuiet(ctx, "", "-n", operatorNamespace, "logs", "-l", operatorSelector, "--tail=20", "--prefix")
		return errors.Join(err, logErr, errors.New(logs))
	}
	d.saw("two replicas with the rights of their ServiceAccount; one leads, one stands by")
	return nil
}

// runOperatorHere runs the operator on this machine against the user's cluster.
func (d *demo) runOperatorHere(ctx context.Context) error {
	d.undo = append(d.undo, func(ctx context.Context) error {
		_, err := d.kubectlQuiet(ctx, "", "delete", "-k", "deploy/crd", "--ignore-not-found", "--wait=true")
		return err
	})
	for _, args := range [][]string{
		{"apply", "-k", "deploy/crd"},
		{"wait", "--for=condition=Established", "crd/canaries.canarycontroller.tech.com", "--timeout=" + d.deadline.String()},
		{"create", "namespace", namespace},
	} {
		if err := d.run(ctx, args...); err != nil {
			return err
		}
	}
	// Undone in the reverse order: the Canary while the operator still runs, which
	// takes the finalizer off; the CRD at the end.
	d.undo = append(d.undo, func(ctx context.Context) error {
		_, canaryErr := d.kubectlQuiet(ctx, "", "-n", namespace, "delete", "canaries", "--all", "--wait=true", "--timeout=30s")
		_, err := d.kubectlQuiet(ctx, "", "delete", "namespace", namespace, "--wait=false")
		return errors.Join(canaryErr, err)
	})
	health, err := freeAddress(ctx, 8081)
	if err != nil {
		return err
	}
	if d.operatorMetrics, err = freeAddress(ctx, 8080); err != nil {
		return err
	}
	d.operator, err = start(d.dir, "operator", nil, nil, d.programs.operator,
		"--kubeconfig="+d.options.kubeconfig, "--namespace="+namespace, "--leader-election-namespace="+namespace,
		"--health-address="+health, "--metrics-address="+d.operatorMetrics)
	if err != nil {
		return err
	}
	d.watch(d.operator)
	if err := d.untilReady(ctx, "http://"+health+"/readyz"); err != nil {
		return fmt.Errorf("%w\n%s", err, d.operator.tail(20))
	}
	d.saw("the operator runs on this machine, log in %s", d.operator.log)
	return nil
}

// untilReady waits until the URL answers 200.
func (d *demo) untilReady(ctx context.Context, url string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("GET %s: %s", url, response.Status)
		}
		if err := d.pause(ctx, err); err != nil {
			return err
		}
	}
}

// operatorAddresses is where the operator serves its metrics.
func (d *demo) operatorAddresses(ctx context.Context) ([]string, error) {
	if d.ownCluster() {
		return []string{d.operatorMetrics}, nil
	}
	pods, err := d.kube.CoreV1().Pods(operatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: operatorSelector})
	if err != nil {
		return nil, fmt.Errorf("listing the operator's pods: %w", err)
	}
	var addresses []string
	for _, pod := range pods.Items {
		addresses = append(addresses, net.JoinHostPort(pod.Status.PodIP, "8080"))
	}
	return addresses, nil
}
