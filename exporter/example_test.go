package exporter_test

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/canarycontroller/canary-controller/exporter"
)

// A controller gets work queue, API client, leader election, Go and process
// metrics on http://127.0.0.1:8080/metrics.
func Example() {
	serveMetrics := func(ctx context.Context) error {
		reg := exporter.NewRegistry()
		if err := exporter.Install(reg, "application"); err != nil {
			return err
		}
		handler, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg})
		if err != nil {
			return err
		}
		server, err := exporter.NewServer(exporter.ServerConfig{Handler: handler})
		if err != nil {
			return err
		}
		return server.Run(ctx)
	}
	_ = serveMetrics
}

// The state of pods, from an informer.
func ExampleNewObjects() {
	watchPods := func(reg prometheus.Registerer, informer cache.SharedInformer) (exporter.Rendered, error) {
		pods, err := exporter.NewObjects(exporter.ObjectsConfig[*corev1.Pod]{
			Name:       "pods",
			Registerer: reg,
			Families: []exporter.Family{{
				Name: "pod_phase", Help: "The phase a pod is in, always 1.", Type: prometheus.GaugeValue,
				Labels: []string{"namespace", "pod", "phase"},
			}},
			Render: func(p *corev1.Pod, e *exporter.Emitter) {
				e.Emit(0, 1, p.Namespace, p.Name, string(p.Status.Phase))
			},
		})
		if err != nil {
			return nil, err
		}
		_, err = pods.Watch(informer)
		return pods, err
	}
	_ = watchPods
}
