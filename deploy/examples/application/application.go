package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

var applications = schema.GroupVersionResource{
	Group: "examples.canarycontroller.tech.com", Version: "v1alpha1", Resource: "applications",
}

const (
	kind      = "Application"
	manager   = "application-controller"
	container = "application"
	portName  = "http"

	conditionAvailable = "Available"
	reasonAsDesired    = "AsDesired"
	reasonProgressing  = "Progressing"
	reasonConflict     = "NameTaken"
	reasonRefused      = "Refused"
)

// application is the custom resource; crd.yaml has its schema.
type application struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              applicationSpec   `json:"spec"`
	Status            applicationStatus `json:"status"`
}

type applicationSpec struct {
	Image    string        `json:"image"`
	Replicas int32         `json:"replicas"`
	Port     int32         `json:"port"`
	Env      []environment `json:"env,omitempty"`
}

type environment struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type applicationStatus struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	AvailableReplicas  int32              `json:"availableReplicas"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// decode reads an object of the dynamic informer. The result shares nothing
// with it: what is in the informer's cache must not be changed.
func decode(obj *unstructured.Unstructured) (*application, error) {
	app := &application{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.DeepCopy().Object, app); err != nil {
		return nil, fmt.Errorf("decoding Application %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return app, nil
}

func (a *application) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": a.Name, "app.kubernetes.io/managed-by": manager}
}

// owner makes what the controller creates go with the Application.
func (a *application) owner() *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(applications.GroupVersion().String()).WithKind(kind).
		WithName(a.Name).WithUID(a.UID).WithController(true).WithBlockOwnerDeletion(true)
}

// deployment is what the Application's Deployment should be. Only what is set
// here is the controller's; the rest is left to others.
func (a *application) deployment() *appsv1ac.DeploymentApplyConfiguration {
	c := corev1ac.Container().WithName(container).WithImage(a.Spec.Image).
		WithPorts(corev1ac.ContainerPort().WithName(portName).WithContainerPort(a.Spec.Port).WithProtocol(corev1.ProtocolTCP))
	for _, e := range a.Spec.Env {
		c.WithEnv(corev1ac.EnvVar().WithName(e.Name).WithValue(e.Value))
	}
	return appsv1ac.Deployment(a.Name, a.Namespace).
		WithLabels(a.labels()).WithOwnerReferences(a.owner()).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(a.Spec.Replicas).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(a.labels())).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(a.labels()).
				WithSpec(corev1ac.PodSpec().WithContainers(c))))
}

// service is what the Application's Service should be.
func (a *application) service() *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(a.Name, a.Namespace).
		WithLabels(a.labels()).WithOwnerReferences(a.owner()).
		WithSpec(corev1ac.ServiceSpec().WithSelector(a.labels()).
			WithPorts(corev1ac.ServicePort().WithName(portName).WithProtocol(corev1.ProtocolTCP).
				WithPort(a.Spec.Port).WithTargetPort(intstr.FromString(portName))))
}

// status is the Application's status given its Deployment. A Deployment whose
// own controller has not seen its latest form yet says nothing about it.
func (a *application) status(d *appsv1.Deployment) applicationStatus {
	s := a.Status
	s.ObservedGeneration = a.Generation
	s.AvailableReplicas = d.Status.AvailableReplicas
	available := metav1.Condition{Type: conditionAvailable, ObservedGeneration: a.Generation}
	current := d.Status.ObservedGeneration >= d.Generation
	if current && d.Status.UpdatedReplicas >= a.Spec.Replicas && d.Status.AvailableReplicas >= a.Spec.Replicas {
		available.Status, available.Reason = metav1.ConditionTrue, reasonAsDesired
	} else {
		available.Status, available.Reason = metav1.ConditionFalse, reasonProgressing
	}
	available.Message = fmt.Sprintf("%d of %d replicas are available", s.AvailableReplicas, a.Spec.Replicas)
	return s.with(available)
}

// failed is the Application's status when its objects cannot be applied.
func (a *application) failed(reason, message string) applicationStatus {
	s := a.Status
	s.ObservedGeneration = a.Generation
	return s.with(metav1.Condition{
		Type: conditionAvailable, Status: metav1.ConditionFalse, ObservedGeneration: a.Generation, Reason: reason, Message: message,
	})
}

// with returns the status with a condition set. The time of the transition
// changes only with the condition's status.
func (s applicationStatus) with(c metav1.Condition) applicationStatus {
	s.Conditions = append([]metav1.Condition(nil), s.Conditions...)
	meta.SetStatusCondition(&s.Conditions, c)
	return s
}
