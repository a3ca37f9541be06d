package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What bookinfo's manifests say.
const (
	bookinfoNamespace = "bookinfo"
	bookinfoCanary    = "reviews"
	bookinfoImage     = "ghcr.io/canarycontroller/bookinfo"
	bookinfoExamples  = "deploy/examples/bookinfo/"
	servicePort       = "9080"
)

var bookinfoServices = []string{"details", "productpage", "ratings", "reviews"}

// bookinfo is what the application's pods and its releases have come to.
type bookinfo struct {
	// endpoints is the directory with the addresses of each service's ready pods.
	endpoints string
	// page is what users ask for.
	page string
	// released is the table at the end.
	released []outcome
	// request and failure are traces of users' requests.
	request, failure trace
}

// bookinfoRow is bookinfo's row of the image table.
func (d *demo) bookinfoRow() map[string]any {
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": d.jaeger.OTLPHTTP, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "500",
	}
	for _, service := range []string{"details", "reviews", "ratings"} {
		env[strings.ToUpper(service)] = "file:" + filepath.Join(d.bookinfo.endpoints, service)
	}
	return map[string]any{"name": bookinfoImage + ":*", "executable": d.programs.bookinfo, "env": env}
}

// startBookinfo starts the four services and users who ask for their page.
func (d *demo) startBookinfo(ctx context.Context) error {
	if d.ownCluster() {
		d.note("Skipped in your own cluster: bookinfo, and releases that are promoted and rolled back on evidence")
		return nil
	}
	if err := d.run(ctx, "apply", "-f", bookinfoExamples+"kubernetes.yaml"); err != nil {
		return err
	}
	for {
		pods, err := d.kube.CoreV1().Pods(bookinfoNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app"})
		if err != nil {
			return fmt.Errorf("listing bookinfo's pods: %w", err)
		}
		ready := readyPods(pods.Items)
		var missing error
		for _, service := range bookinfoServices {
			if len(ready[service]) == 0 {
				missing = errors.Join(missing, fmt.Errorf("no pod of %s is ready", service))
			}
		}
		if missing == nil && len(ready["reviews"]) < replicas {
			missing = fmt.Errorf("%d pods of reviews are ready, not %d", len(ready["reviews"]), replicas)
		}
		if missing == nil {
			d.bookinfo.page = "http://" + ready["productpage"][0] + "/productpage"
			break
		}
		if err := d.pause(ctx, missing); err != nil {
			return err
		}
	}
	d.saw("productpage asks details and reviews v1, in %d pods; later versions of reviews ask ratings", replicas)
	if err := d.scraped(ctx, fmt.Sprintf(`sum(up{job=%q,pod=~"reviews-v1-.+"})`, bookinfoJob), replicas); err != nil {
		return err
	}
	if err := d.untilReady(ctx, d.bookinfo.page); err != nil {
		return err
	}
	return d.startLoad(ctx, d.bookinfo.page)
}
