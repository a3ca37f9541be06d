package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/canarycontroller/canary-controller/exporter"
)

// The families of an Application, by their index for Emit.
const (
	familyReplicas = iota
	familyAvailable
)

// newState is the state of the Applications on /metrics: rendered when an
// Application changes, gone when it is deleted.
func newState(reg prometheus.Registerer) (*exporter.Objects[*unstructured.Unstructured], error) {
	return exporter.NewObjects(exporter.ObjectsConfig[*unstructured.Unstructured]{
		Name: "application",
		Families: []exporter.Family{
			familyReplicas: {
				Name: "application_replicas", Help: "Replicas of the Application, desired by its spec and available by its status.",
				Type: prometheus.GaugeValue, Labels: []string{"namespace", "application", "state"},
			},
			familyAvailable: {
				Name: "application_available", Help: "Whether the condition Available of the Application is True.",
				Type: prometheus.GaugeValue, Labels: []string{"namespace", "application"},
			},
		},
		Render:     render,
		Registerer: reg,
	})
}

// render emits the samples of one Application. One that cannot be decoded has
// none; its reconciliation reports the error.
func render(obj *unstructured.Unstructured, e *exporter.Emitter) {
	app, err := decode(obj)
	if err != nil {
		return
	}
	e.Emit(familyReplicas, float64(app.Spec.Replicas), app.Namespace, app.Name, "desired")
	e.Emit(familyReplicas, float64(app.Status.AvailableReplicas), app.Namespace, app.Name, "available")
	available := 0.0
	if meta.IsStatusConditionTrue(app.Status.Conditions, conditionAvailable) {
		available = 1
	}
	e.Emit(familyAvailable, available, app.Namespace, app.Name)
}
