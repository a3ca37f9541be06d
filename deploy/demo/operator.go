package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// installOperator applies the operator's manifests and waits until it works.
func (d *demo) installOperator(ctx context.Context) error {
	if d.ownCluster() {
		return d.runOperatorHere(ctx)
	}
	overlay, err := d.overlay()
	if err != nil {
		return err
	}
	d.note("deploy/kustomize/base, told where Prometheus and Jaeger are:")
	if err := d.run(ctx, "apply", "-k", overlay); err != nil {
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
	return d.scraped(ctx, fmt.Sprintf("sum(up{job=%q})", operatorJob), operatorReplicas)
}

// operatorReplicas is what the operator's Deployment asks for.
const operatorReplicas = 2

// overlay writes a kustomization of the base whose operator knows Prometheus and Jaeger.
func (d *demo) overlay() (string, error) {
	dir := filepath.Join(d.dir, "operator")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	base, err := relative(dir, filepath.Join("deploy", "kustomize", "base"))
	if err != nil {
		return "", fmt.Errorf("finding the operator's manifests: %w", err)
	}
	text, err := kustomization(base, "--prometheus-url="+d.prometheus.url, "--otlp-endpoint="+d.jaeger.OTLPHTTP)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644); err != nil {
		return "", fmt.Errorf("writing the operator's overlay: %w", err)
	}
	return dir, nil
}

// relative is the path from one directory to another as kustomize reads it, which takes no
// absolute ones and no symbolic links.
func relative(from, to string) (string, error) {
	for _, dir := range []*string{&from, &to} {
		real, err := filepath.EvalSymlinks(*dir)
		if err != nil {
			return "", err
		}
		if *dir, err = filepath.Abs(real); err != nil {
			return "", err
		}
	}
	return filepath.Rel(from, to)
}

// kustomization is that of an overlay that gives the operator further arguments.
func kustomization(base string, args ...string) ([]byte, error) {
	var patch []map[string]string
	for _, arg := range args {
		patch = append(patch, map[string]string{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": arg})
	}
	text, err := yaml.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{base},
		"patches":   []any{map[string]any{"target": map[string]string{"kind": "Deployment", "name": operatorName}, "patch": string(text)}},
	})
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
	if err := d.writeTargets(operatorJob, []targetGroup{{Targets: []string{d.operatorMetrics}}}); err != nil {
		return err
	}
	return d.scraped(ctx, fmt.Sprintf("sum(up{job=%q})", operatorJob), 1)
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
