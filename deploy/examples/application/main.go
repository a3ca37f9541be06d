// Command application is a small but complete controller, to copy from: it
// watches a custom resource, Application, and keeps a Deployment and a Service
// for each, on plain client-go, with its metrics from package exporter.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/canarycontroller/canary-controller/exporter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; empty uses the pod's service account")
	flag.StringVar(&o.namespace, "namespace", "", "namespace to watch; empty watches all")
	flag.StringVar(&o.metrics, "metrics-address", "127.0.0.1:8081", "address to serve /metrics on")
	flag.IntVar(&o.workers, "workers", 2, "Applications handled at once")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "application:", err)
		os.Exit(1)
	}
}

type options struct {
	kubeconfig, namespace, metrics string
	workers                        int
}

// run loads the configuration and works until ctx is done.
func run(ctx context.Context, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("loading the kubeconfig: %w", err)
	}
	return runWith(ctx, o, config)
}

func runWith(ctx context.Context, o options, config *rest.Config) error {
	if o.workers < 1 {
		return fmt.Errorf("--workers is %d, want at least 1", o.workers)
	}
	// First of all, since client-go looks for metrics when it makes a client
	// or a queue.
	reg := exporter.NewRegistry()
	if err := exporter.Install(reg, "application"); err != nil {
		return fmt.Errorf("installing metrics: %w", err)
	}
	config = rest.CopyConfig(config)
	rest.AddUserAgent(config, manager)
	// One HTTP client for both, so that they share connections.
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making an HTTP client: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(transport.Transport)
	client, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, transport)
	if err != nil {
		return fmt.Errorf("making a dynamic client: %w", err)
	}
	c, err := newController(client, dyn, o.namespace)
	if err != nil {
		return err
	}

	state, err := newState(reg)
	if err != nil {
		return fmt.Errorf("making the metrics of Applications: %w", err)
	}
	if err := c.watchWith(state); err != nil {
		return err
	}
	metrics, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg, Rendered: []exporter.Rendered{state}})
	if err != nil {
		return fmt.Errorf("making the metrics handler: %w", err)
	}
	server, err := exporter.NewServer(exporter.ServerConfig{Address: o.metrics, Handler: metrics})
	if err != nil {
		return fmt.Errorf("making the metrics server: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return c.run(ctx, o.workers) })
	return group.Wait()
}
