package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// What bookinfo's manifests say.
const (
	bookinfoNamespace = "bookinfo"
	bookinfoImage     = "ghcr.io/canarycontroller/bookinfo"
	bookinfoExamples  = "deploy/examples/bookinfo/"
	servicePort       = "9080"
)

// bookinfo is the application under load and what its pods have to know. Services of the
// lab carry no traffic, so the demo writes the addresses of ready pods to files.
type bookinfo struct {
	jaeger    *servers.JaegerServer
	endpoints string
	stop      context.CancelFunc
	stopped   chan struct{}
}

// startJaeger starts it before the lab, whose image table tells pods where it is.
func (d *demo) startJaeger(ctx context.Context) error {
	if d.ownCluster() {
		d.note("Skipped in your own cluster: Jaeger and bookinfo, whose pods reach what runs here only in the lab")
		return nil
	}
	address, err := freeAddress(ctx, 16686)
	if err != nil {
		return err
	}
	jaeger, err := servers.StartJaeger(ctx, servers.JaegerOptions{Options: servers.Options{Program: d.programs.jaeger}, QueryAddress: address})
	if err != nil {
		return err
	}
	d.bookinfo = &bookinfo{jaeger: jaeger, endpoints: filepath.Join(d.dir, "endpoints")}
	d.saw("Jaeger takes spans at %s", jaeger.OTLPHTTP)
	return os.MkdirAll(d.bookinfo.endpoints, 0o755)
}

// image is bookinfo's row of the image table.
func (b *bookinfo) image(program string) map[string]any {
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": b.jaeger.OTLPHTTP, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_BSP_SCHEDULE_DELAY": "500",
	}
	for _, service := range []string{"details", "reviews", "ratings"} {
		env[strings.ToUpper(service)] = "file:" + filepath.Join(b.endpoints, service)
	}
	return map[string]any{"name": bookinfoImage + ":*", "executable": program, "env": env}
}

// keepEndpoints writes the addresses of ready pods until end.
func (d *demo) keepEndpoints(ctx context.Context) {
	ctx, d.bookinfo.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.bookinfo.stopped = make(chan struct{})
	go func() {
		defer close(d.bookinfo.stopped)
		for ctx.Err() == nil {
			// A look that fails leaves the addresses as they are; the next one comes at once.
			_ = d.writeEndpoints(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(pollPeriod):
			}
		}
	}()
}

func (d *demo) writeEndpoints(ctx context.Context) error {
	for _, service := range []string{"details", "reviews", "ratings", "productpage"} {
		addresses, err := d.readyPods(ctx, service)
		if err != nil {
			return err
		}
		text := []byte(strings.Join(addresses, "\n") + "\n")
		file := filepath.Join(d.bookinfo.endpoints, service)
		if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, text) || len(addresses) == 0 {
			continue
		}
		if err := os.WriteFile(file+".new", text, 0o644); err != nil {
			return fmt.Errorf("writing the addresses of %s: %w", service, err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			return fmt.Errorf("writing the addresses of %s: %w", service, err)
		}
	}
	return nil
}

func (d *demo) readyPods(ctx context.Context, service string) ([]string, error) {
	pods, err := d.kube.CoreV1().Pods(bookinfoNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", service, err)
	}
	var addresses []string
	for _, pod := range pods.Items {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready && pod.DeletionTimestamp == nil {
			addresses = append(addresses, net.JoinHostPort(pod.Status.PodIP, servicePort))
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}

// releaseBookinfo releases reviews v2 under load and looks at it in Jaeger.
func (d *demo) releaseBookinfo(ctx context.Context) error {
	if d.ownCluster() {
		d.note("Skipped in your own cluster")
		return nil
	}
	if err := d.run(ctx, "apply", "-f", bookinfoExamples+"kubernetes.yaml"); err != nil {
		return err
	}
	d.keepEndpoints(ctx)
	var front []string
	for {
		missing := errors.New("the pods are not ready")
		for _, service := range []string{"details", "reviews", "ratings", "productpage"} {
			addresses, err := d.readyPods(ctx, service)
			if err != nil || len(addresses) == 0 {
				missing = errors.Join(fmt.Errorf("no pod of %s is ready", service), err)
				break
			}
			front, missing = addresses, nil
		}
		if missing == nil {
			break
		}
		if err := d.pause(ctx, missing); err != nil {
			return err
		}
	}
	d.saw("productpage, details, reviews v1 and ratings are ready")
	load, err := start(d.dir, "load", nil, []string{"ADMIN_ADDR=127.0.0.1:0"}, d.programs.bookinfo,
		"load", "-url", "http://"+front[0]+"/productpage", "-rate", "20", "-report", "0")
	if err != nil {
		return err
	}
	released := func() error {
		if err := d.run(ctx, "apply", "-f", bookinfoExamples+"reviews-canary.yaml"); err != nil {
			return err
		}
		return d.untilCanary(ctx, bookinfoNamespace, "reviews", v1alpha1.PhaseCompleted, nil)
	}()
	trace, traceErr := "", error(nil)
	if released == nil {
		trace, traceErr = d.trace(ctx)
	}
	if err := errors.Join(released, traceErr, load.stop(ctx)); err != nil {
		return err
	}
	d.saw("load while v2 was released: %s", strings.TrimSpace(load.tail(1)))
	d.saw("one request through productpage, details, reviews v2 and ratings: %s", trace)
	return nil
}

// trace waits for a trace of reviews v2 that passed through all four services.
func (d *demo) trace(ctx context.Context) (string, error) {
	base := d.bookinfo.jaeger.QueryURL
	query := base + "/api/traces?" + url.Values{"service": {"ratings"}, "limit": {"5"}, "lookback": {"1h"}}.Encode()
	for {
		var answer struct {
			Data []struct {
				TraceID   string
				Processes map[string]struct{ ServiceName string }
			}
		}
		err := getJSON(ctx, query, &answer)
		for _, trace := range answer.Data {
			services := map[string]bool{}
			for _, process := range trace.Processes {
				services[process.ServiceName] = true
			}
			if services["productpage"] && services["details"] && services["reviews"] && services["ratings"] {
				return base + "/trace/" + trace.TraceID, nil
			}
		}
		if err := d.pause(ctx, errors.Join(errors.New("no trace through all four services is in Jaeger yet"), err)); err != nil {
			return "", err
		}
	}
}

func getJSON(ctx context.Context, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(into)
}

// close ends the writing of addresses and Jaeger.
func (b *bookinfo) close() error {
	if b.stop != nil {
		b.stop()
		<-b.stopped
	}
	return b.jaeger.Stop()
}
