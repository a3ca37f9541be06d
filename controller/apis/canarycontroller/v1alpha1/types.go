package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Canary releases one Deployment in place of another, in batches.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=canaries,singular=canary,shortName=can,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.info.type`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Batch",type=string,JSONPath=`.status.batch`
// +kubebuilder:printcolumn:name="New",type=integer,JSONPath=`.status.new.availableReplicas`
// +kubebuilder:printcolumn:name="Old",type=integer,JSONPath=`.status.old.availableReplicas`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be at most 63 characters, it becomes a label value"
type Canary struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CanarySpec   `json:"spec"`
	Status CanaryStatus `json:"status,omitempty"`
}

// CanaryList is a list of Canary objects.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type CanaryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Canary `json:"items"`
}

// CanarySpec is what the author wants. The controller never writes it.
//
// +kubebuilder:validation:XValidation:rule="self.info.type != 'CanaryRollback' || (has(self.info.oldDeploymentYaml) && size(self.info.oldDeploymentYaml) > 0)",message="spec.info.oldDeploymentYaml is required when spec.info.type is CanaryRollback"
type CanarySpec struct {
	// Info is the original form of the API; every value may be a string.
	Info CanaryInfo `json:"info"`

	// Batches lists cumulative batch targets as replicas or percent of the total,
	// instead of the formula over info.totalBatches. A list that does not end at the
	// total gets the total as its last batch.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XIntOrString
	// +kubebuilder:validation:items:Pattern=`^([1-9][0-9]?|100)%$|^[1-9][0-9]{0,8}$`
	// +kubebuilder:validation:XValidation:rule="self.all(b, type(b) != int || int(b) >= 1)",message="every batch must be a positive number of replicas or 1% to 100%"
	Batches []intstr.IntOrString `json:"batches,omitempty"`

	// Gate makes promotion depend on evidence.
	// +optional
	Gate *Gate `json:"gate,omitempty"`

	// Paused stops batches from advancing until it is false again. What runs keeps running.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// ProgressDeadlineSeconds is how long a batch may take to become available, counted
	// from its start; flapping pods do not reset it. Time spent paused does not count.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// DeletionPolicy says what becomes of the Deployments that the controller created
	// when the Canary is deleted.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// CanaryInfo is the original form of the API.
type CanaryInfo struct {
	// Type selects the strategy.
	Type CanaryType `json:"type"`

	// TotalBatches is the number of batches, as a number or a string. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (int(self) >= 1 && int(self) <= 1000)",message="totalBatches must be a whole number from 1 to 1000"
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,2}|1000)$`
	TotalBatches *intstr.IntOrString `json:"totalBatches,omitempty"`

	// CurrentBatch is the highest batch that a person has approved. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) != int || (int(self) >= 0 && int(self) <= 1000)",message="currentBatch must be a whole number from 0 to 1000"
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]{1,2}|1000)$`
	CurrentBatch *intstr.IntOrString `json:"currentBatch,omitempty"`

	// PauseType says where a person must approve. Default First.
	// +optional
	// +kubebuilder:default=First
	PauseType PauseType `json:"pauseType,omitempty"`

	// NewDeploymentYaml is the whole apps/v1 Deployment of the new version.
	// +kubebuilder:validation:MinLength=1
	NewDeploymentYaml string `json:"newDeploymentYaml"`

	// OldDeploymentYaml is the whole apps/v1 Deployment of the old version.
	// +optional
	OldDeploymentYaml string `json:"oldDeploymentYaml,omitempty"`
}

// CanaryType is a release strategy.
//
// +kubebuilder:validation:Enum=NormalDeploy;CanaryDeploy;CanaryRollback;ABTest
type CanaryType string

const (
	// NormalDeploy applies the new Deployment at once and repairs drift from then on.
	NormalDeploy CanaryType = "NormalDeploy"
	// CanaryDeploy moves replicas from the old Deployment to the new one in batches.
	CanaryDeploy CanaryType = "CanaryDeploy"
	// CanaryRollback brings the old Deployment back to full and removes the new one.
	CanaryRollback CanaryType = "CanaryRollback"
	// ABTest is reserved; the controller refuses it.
	ABTest CanaryType = "ABTest"
)

// PauseType says before which batches a person must approve.
//
// +kubebuilder:validation:Enum=First;None;Each
type PauseType string

const (
	// PauseFirst stops after batch 1 until currentBatch is at least 2.
	PauseFirst PauseType = "First"
	// PauseNone never stops.
	PauseNone PauseType = "None"
	// PauseEach stops after every batch N until currentBatch is at least N+1.
	PauseEach PauseType = "Each"
)

// DeletionPolicy says what becomes of created Deployments when their Canary goes.
//
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

const (
	// DeletionPolicyDelete lets Deployments that the controller created go with the Canary.
	DeletionPolicyDelete DeletionPolicy = "Delete"
	// DeletionPolicyOrphan leaves every Deployment in place.
	DeletionPolicyOrphan DeletionPolicy = "Orphan"
)

// Annotations that people and CI jobs set, and that the controller sets on Deployments.
const (
	// AnnotationRetry restarts a rolled-back or failed rollout when its value changes.
	AnnotationRetry = GroupName + "/retry"
	// AnnotationPromote lets the batch N of the rollout with this id through without
	// evidence; its value is ID/N, so that it means nothing to any other rollout.
	AnnotationPromote = GroupName + "/promote"
	// AnnotationTraceparent, set by a CI job, is the W3C trace context that the rollout's trace continues.
	AnnotationTraceparent = GroupName + "/traceparent"
	// AnnotationTraceID on an event is the trace of the rollout that it is about.
	AnnotationTraceID = GroupName + "/trace-id"
	// AnnotationCanary on a Deployment names the Canary that last applied it.
	AnnotationCanary = GroupName + "/canary"
	// AnnotationManifest on a Deployment is a hash of the manifest it was last applied from.
	AnnotationManifest = GroupName + "/manifest"
	// AnnotationNewShare on the old Deployment counts the replicas that the new version
	// stands in for; with spec.replicas it gives the total that an autoscaler asks for.
	AnnotationNewShare = GroupName + "/new-share"
	// Finalizer restores or releases Deployments before a Canary goes.
	Finalizer = GroupName + "/finalizer"
	// FieldManager is the server-side apply field manager of the controller.
	FieldManager = "canary-controller"
)
