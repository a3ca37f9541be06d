package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	canarylisters "github.com/canarycontroller/canary-controller/controller/generated/listers/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/exporter"
	"github.com/canarycontroller/canary-controller/exporter/canary"
	"github.com/canarycontroller/canary-controller/exporter/outlier"
)

// metricsServer makes the server of /metrics, which listens from now on. It returns nil
// when there is to be none.
func metricsServer(o *options, kube kubernetes.Interface, registry *prometheus.Registry, canaries cache.SharedIndexInformer, leading func() bool) (*exporter.Server, error) {
	state, err := canary.NewState(canary.StateConfig{
		Registerer: registry, MaxCanaries: o.metrics.maxCanaries, Logger: slog.Default(), Active: leading,
	})
	if err != nil {
		return nil, fmt.Errorf("making the metrics of Canaries: %w", err)
	}
	if _, err := state.Watch(canaries); err != nil {
		return nil, fmt.Errorf("watching Canaries for metrics: %w", err)
	}
	if o.metrics.address == "" {
		return nil, nil
	}
	handler, err := exporter.NewHandler(exporter.HandlerConfig{
		Registry: registry, Rendered: []exporter.Rendered{state}, Logger: slog.Default(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the metrics handler: %w", err)
	}
	config := exporter.ServerConfig{Address: o.metrics.address, Handler: handler, Registerer: registry, Logger: slog.Default()}
	if o.metrics.secure {
		config.TLS = &exporter.TLSConfig{CertFile: o.metrics.certFile, KeyFile: o.metrics.keyFile}
		config.Auth, err = exporter.NewAuth(exporter.AuthConfig{
			TokenReviews:         kube.AuthenticationV1().TokenReviews(),
			SubjectAccessReviews: kube.AuthorizationV1().SubjectAccessReviews(),
			Logger:               slog.Default(),
		})
		if err != nil {
			return nil, fmt.Errorf("making the metrics authorisation: %w", err)
		}
	}
	server, err := exporter.NewServer(config)
	if err != nil {
		return nil, fmt.Errorf("serving metrics on %s: %w", o.metrics.address, err)
	}
	return server, nil
}

// outlierCollector makes the collector of outlier ejections and the informer of the
// proxies' pods that it may need. Both are nil when no source is chosen.
func outlierCollector(o *options, kube kubernetes.Interface, canaries canarylisters.CanaryLister, registry *prometheus.Registry) (*outlier.Collector, informers.SharedInformerFactory, error) {
	kind, err := outlier.ParseKind(o.outlier.source)
	if err != nil || kind == outlier.KindNone {
		return nil, nil, err
	}
	config := outlier.Options{Port: o.outlier.port, PrometheusURL: o.gate.firstPrometheus()}
	var pods informers.SharedInformerFactory
	if kind != outlier.KindPrometheus {
		selector, err := labels.Parse(o.outlier.selector)
		if err != nil {
			return nil, nil, fmt.Errorf("--outlier-proxy-selector %q: %w", o.outlier.selector, err)
		}
		// Only the proxies' pods are watched and kept.
		pods = informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(o.namespace),
			informers.WithTweakListOptions(func(list *metav1.ListOptions) { list.LabelSelector = selector.String() }))
		config.Proxies = outlier.PodProxies{Pods: pods.Core().V1().Pods().Lister(), Namespace: o.namespace, Selector: selector}
	}
	source, err := outlier.NewSource(kind, config)
	if err != nil {
		return nil, nil, fmt.Errorf("making the outlier source %s: %w", kind, err)
	}
	collector, err := outlier.NewCollector(outlier.Config{
		Source: source, Logger: slog.Default(), Targets: func() []outlier.Target { return targets(canaries) },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("making the outlier collector: %w", err)
	}
	if err := registry.Register(collector); err != nil {
		return nil, nil, fmt.Errorf("registering the outlier collector: %w", err)
	}
	return collector, pods, nil
}

// Annotations on a Canary that say by which Service, and with a slash by which subset of
// its DestinationRule, callers reach a version. Without them the Service has the name of
// the version's Deployment.
const (
	annotationCanaryService = v1alpha1.GroupName + "/canary-service"
	annotationStableService = v1alpha1.GroupName + "/stable-service"
)

// targets says which versions the outlier metrics are about.
func targets(canaries canarylisters.CanaryLister) []outlier.Target {
	all, err := canaries.List(labels.Everything())
	if err != nil {
		return nil
	}
	var list []outlier.Target
	for _, c := range all {
		for _, version := range []struct {
			role       outlier.Role
			workload   *v1alpha1.WorkloadStatus
			annotation string
		}{
			{outlier.RoleCanary, c.Status.New, annotationCanaryService},
			{outlier.RoleStable, c.Status.Old, annotationStableService},
		} {
			if version.workload == nil {
				continue
			}
			service, subset, _ := strings.Cut(c.Annotations[version.annotation], "/")
			if service == "" {
				service = version.workload.Name
			}
			list = append(list, outlier.Target{
				Namespace: c.Namespace, Canary: c.Name, UID: string(c.UID), Role: version.role, Service: service, Subset: subset,
			})
		}
	}
	return list
}

// runCollector sweeps for as long as work goes on.
func runCollector(ctx context.Context, collector *outlier.Collector) error {
	if err := collector.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("collecting outlier ejections: %w", err)
	}
	return nil
}
