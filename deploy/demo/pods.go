package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsPorts are the names that the manifests give to the ports of /metrics.
var metricsPorts = []string{"metrics", "http-metrics"}

// follower writes to files what others have to know of the lab's pods: to bookinfo and to
// Prometheus where they are. Services of the lab carry no traffic, and not every packaged
// Prometheus has the discovery of Kubernetes.
type follower struct {
	stop context.CancelFunc
	done chan struct{}
}

// follow writes the files until stop.
func (d *demo) follow(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.follower = &follower{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(d.follower.done)
		for ctx.Err() == nil {
			// A look that fails leaves the files as they are; the next one comes at once.
			_ = d.writePods(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(pollPeriod):
			}
		}
	}()
}

// end returns when nothing is written any more.
func (f *follower) end() {
	f.stop()
	<-f.done
}

func (d *demo) writePods(ctx context.Context) error {
	operators, err := d.kube.CoreV1().Pods(operatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: operatorSelector})
	if err != nil {
		return fmt.Errorf("listing the operator's pods: %w", err)
	}
	app, err := d.kube.CoreV1().Pods(bookinfoNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil {
		return fmt.Errorf("listing bookinfo's pods: %w", err)
	}
	for job, pods := range map[string][]corev1.Pod{operatorJob: operators.Items, bookinfoJob: app.Items} {
		if err := d.writeTargets(job, targetsOf(pods)); err != nil {
			return err
		}
	}
	ready := readyPods(app.Items)
	for _, service := range bookinfoServices {
		// No address at all would not be believed, and is not worth a change.
		if addresses := ready[service]; len(addresses) > 0 {
			if err := replaceFile(filepath.Join(d.bookinfo.endpoints, service), []byte(strings.Join(addresses, "\n")+"\n")); err != nil {
				return fmt.Errorf("writing the addresses of %s: %w", service, err)
			}
		}
	}
	return nil
}

// replaceFile writes a file in one piece, if its content changes.
func replaceFile(name string, text []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.WriteFile(name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// readyPods are the addresses at which each service has pods that take requests, sorted.
func readyPods(pods []corev1.Pod) map[string][]string {
	ready := map[string][]string{}
	for _, pod := range pods {
		isReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if isReady && pod.DeletionTimestamp == nil {
			service := pod.Labels["app"]
			ready[service] = append(ready[service], net.JoinHostPort(pod.Status.PodIP, servicePort))
		}
	}
	for _, addresses := range ready {
		slices.Sort(addresses)
	}
	return ready
}

// targetGroup is one entry of a file for Prometheus's file_sd_configs, as
// https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config
// describes it.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targetsOf is what Prometheus scrapes of the pods, with the labels that the discovery of
// Kubernetes is usually told to give. A pod that is ending still counts its last requests.
func targetsOf(pods []corev1.Pod) []targetGroup {
	groups := []targetGroup{}
	for _, pod := range pods {
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if slices.Contains(metricsPorts, port.Name) {
					groups = append(groups, targetGroup{
						Targets: []string{net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port.ContainerPort)))},
						Labels:  map[string]string{"namespace": pod.Namespace, "pod": pod.Name},
					})
				}
			}
		}
	}
	slices.SortFunc(groups, func(a, b targetGroup) int { return strings.Compare(a.Labels["pod"], b.Labels["pod"]) })
	return groups
}

// writeTargets tells Prometheus what a job is to scrape.
func (d *demo) writeTargets(job string, groups []targetGroup) error {
	text, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(d.targetsDir(), job+".json"), text); err != nil {
		return fmt.Errorf("writing the targets of the job %s: %w", job, err)
	}
	return nil
}

func (d *demo) targetsDir() string { return filepath.Join(d.dir, "targets") }
