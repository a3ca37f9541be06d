package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		d.note("KUBEBUILDER_ASSETS is set: the lab runs the etcd and kube-apiserver that are there, and its own of the rest")
	}
	// An image table in the place of a registry.
	table, err := json.Marshal(map[string]any{"images": []map[string]any{
		{"name": "ghcr.io/canarycontroller/canary-controller:*", "executable": d.programs.operator},
		{"name": defaultImage + ":*", "executable": d.programs.goHello},
		d.bookinfoRow(),
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
		_ = out.CloseWithError(lines.Err()) // the lab must not wait for a reader who is gone
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
