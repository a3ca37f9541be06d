package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
	"github.com/canarycontroller/canary-controller/controller/reconcile"
	"github.com/canarycontroller/canary-controller/controller/trace"
	"github.com/canarycontroller/canary-controller/exporter"
	"github.com/canarycontroller/canary-controller/exporter/canary"
)

// version is set by the linker for releases.
var version = "dev"

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "canary-controller:", err)
		os.Exit(2)
	case o.showVersion:
		fmt.Println("canary-controller", buildVersion())
		return
	}
	logger := o.logger(os.Stderr)
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := run(klog.NewContext(context.Background(), logger), stop.Done(), o); err != nil {
		logger.Error(err, "Exiting")
		os.Exit(1)
	}
	logger.Info("Stopped")
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "dev" && info.Main.Version != "" {
		return info.Main.Version
	}
	return version
}

// run works until stop is closed, when it returns nil, or until it cannot go on.
func run(ctx context.Context, stop <-chan struct{}, o *options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", buildVersion(), "namespace", o.namespace)

	// client-go takes its metrics from who comes first, so this is before any client or queue.
	registry := exporter.NewRegistry()
	if err := exporter.Install(registry, "canary"); err != nil {
		return err
	}
	config, err := restConfig(o)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the Kubernetes client: %w", err)
	}
	canaries, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the Canary client: %w", err)
	}
	instruments, err := canary.NewInstruments(registry)
	if err != nil {
		return fmt.Errorf("making the metrics of rollouts: %w", err)
	}
	gatherer, err := newGatherer(&o.gate, kube, instruments)
	if err != nil {
		return err
	}
	defer gatherer.Close()
	spans, err := trace.New(trace.Config{Endpoint: o.otlpEndpoint, Registerer: registry, Logger: slog.Default()})
	if err != nil {
		return err
	}
	controller, err := reconcile.New(ctx, reconcile.Options{
		Kubernetes: kube, Canaries: canaries, Namespace: o.namespace, Resync: o.resync,
		Gatherer: gatherer, Observer: observer{instruments, spans},
	})
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	elector, err := newElector(ctx, o, config)
	if err != nil {
		return err
	}
	collector, pods, err := outlierCollector(o, kube, controller.Lister(), registry)
	if err != nil {
		return err
	}

	// The servers end last, so that the end of the work can be seen.
	serving, stopServing := context.WithCancel(ctx)
	var servers sync.WaitGroup
	defer servers.Wait()
	defer stopServing()
	serve := func(what string, run func(context.Context) error) {
		servers.Go(func() {
			if err := run(serving); err != nil {
				logger.Error(err, "Server ended", "what", what)
			}
		})
	}
	metrics, err := metricsServer(o, kube, registry, controller.Informer(), elector.leading.Load)
	if err != nil {
		return err
	}
	if metrics != nil {
		logger.Info("Serving metrics", "address", metrics.Addr().String(), "secure", o.metrics.secure)
		serve("metrics", metrics.Run)
	}
	if o.healthAddr != "" {
		health, err := newHealthServer(ctx, o.healthAddr, controller.HasSynced)
		if err != nil {
			return err
		}
		serve("health", health.Run)
	}

	caches, stopCaches := context.WithCancel(ctx)
	defer controller.Close()
	defer stopCaches()
	if pods != nil {
		pods.Start(caches.Done())
		defer pods.Shutdown()
		defer stopCaches()
	}
	if filled := controller.Start(caches, stop); !filled {
		return nil
	}
	logger.Info("Caches are filled")
	return elector.lead(ctx, stop, func(ctx context.Context) error {
		working, done := context.WithCancel(ctx)
		var beside sync.WaitGroup
		defer beside.Wait()
		defer done()
		beside.Go(func() {
			if err := spans.Run(working); err != nil {
				logger.Error(err, "Rollouts are no longer traced")
			}
		})
		if err := traceChanges(controller.Informer(), spans); err != nil {
			return err
		}
		if collector != nil {
			beside.Go(func() {
				if err := runCollector(working, collector); err != nil {
					logger.Error(err, "Outlier ejections are no longer read")
				}
			})
		}
		return controller.Run(working, stop, o.workers, o.gate.workers)
	})
}

// traceChanges sends the spans of what is there already, since a predecessor may have ended
// before it did, and of what changes, since the answer to a write of this process may be
// lost. What the observer has sent is not sent again.
func traceChanges(canaries cache.SharedIndexInformer, spans *trace.Recorder) error {
	_, err := canaries.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if c, ok := object.(*v1alpha1.Canary); ok {
				spans.Resume(c)
			}
		},
		UpdateFunc: func(was, is any) {
			before, ok := was.(*v1alpha1.Canary)
			after, ok2 := is.(*v1alpha1.Canary)
			if ok && ok2 {
				spans.StatusWritten(before, after)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Canaries for traces: %w", err)
	}
	return nil
}

func restConfig(o *options) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if o.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	}
	if config == nil {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = o.kubeconfig
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = v1alpha1.FieldManager + "/" + buildVersion()
	return config, nil
}
