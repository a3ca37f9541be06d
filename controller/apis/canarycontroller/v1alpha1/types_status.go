package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CanaryStatus is what the controller saw and decided. Each sync writes it at most once.
type CanaryStatus struct {
	// ObservedGeneration is the metadata.generation that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is where the rollout stands.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Message says in one sentence what the rollout is doing or waiting for.
	// +optional
	Message string `json:"message,omitempty"`
	// CurrentBatch is the batch being worked on, from 1; 0 when there are no batches.
	// +optional
	CurrentBatch int32 `json:"currentBatch,omitempty"`
	// Batch is the current batch and the number of batches, such as 2/4.
	// +optional
	Batch string `json:"batch,omitempty"`
	// TotalReplicas is the number of replicas the release is split over.
	// +optional
	TotalReplicas int32 `json:"totalReplicas,omitempty"`
	// New is the Deployment of the new version as last seen.
	// +optional
	New *WorkloadStatus `json:"new,omitempty"`
	// Old is the Deployment of the old version as last seen.
	// +optional
	Old *WorkloadStatus `json:"old,omitempty"`
	// Retiring names Deployments of superseded, unfinished versions being removed.
	// +optional
	// +listType=set
	Retiring []string `json:"retiring,omitempty"`
	// Verdict is the gate's latest verdict on the current batch.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// Gate is the evidence about the current batch; nil without spec.gate.
	// +optional
	Gate *GateStatus `json:"gate,omitempty"`
	// Conditions: Progressing, Available, Paused, GateHealthy, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Batches holds one entry for each batch that has started.
	// +optional
	// +listType=atomic
	Batches []BatchStatus `json:"batches,omitempty"`
	// Rollout identifies this attempt at releasing.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Info is the original form of the status: availableReplicas, batchNStatus and
	// rollbackStatus, all strings.
	// +optional
	Info map[string]string `json:"info,omitempty"`
}

// WorkloadStatus is a Deployment as last seen.
type WorkloadStatus struct {
	// Name of the Deployment.
	Name string `json:"name"`
	// Replicas is its spec.replicas.
	Replicas int32 `json:"replicas"`
	// AvailableReplicas have been ready for minReadySeconds.
	AvailableReplicas int32 `json:"availableReplicas"`
}

// BatchStatus is the course of one batch.
type BatchStatus struct {
	// Target is how many replicas the new version has at the end of the batch.
	Target int32 `json:"target"`
	// StartedAt is when the batch began; the progress deadline counts from here.
	StartedAt metav1.Time `json:"startedAt"`
	// PausedSeconds is how long the batch stood paused before it became available.
	// +optional
	PausedSeconds int64 `json:"pausedSeconds,omitempty"`
	// PausedAt is when the pause in force began.
	// +optional
	PausedAt *metav1.Time `json:"pausedAt,omitempty"`
	// AppliedAt is when the Deployments had been changed as the batch asks.
	// +optional
	AppliedAt *metav1.Time `json:"appliedAt,omitempty"`
	// AvailableAt is when all its replicas were first available.
	// +optional
	AvailableAt *metav1.Time `json:"availableAt,omitempty"`
	// BrokenAt is since when replicas of the batch, once available, are not any more.
	// +optional
	BrokenAt *metav1.Time `json:"brokenAt,omitempty"`
	// FinishedAt is when it was available, passed and approved.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Verdict of the gate when the batch finished.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
}

// RolloutStatus identifies one attempt at a release and how it ended.
type RolloutStatus struct {
	// ID is a versioned hash of strategy family, new, old and batches.
	ID string `json:"id"`
	// Retry is the value of the retry annotation that this attempt answers.
	// +optional
	Retry string `json:"retry,omitempty"`
	// StartedAt is when the attempt began.
	StartedAt metav1.Time `json:"startedAt"`
	// FinishedAt is when it completed, rolled back or failed.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Outcome is empty while the attempt is under way.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`
	// EndedFirst is how and when the attempt had ended before it went on: a finished one that
	// was then rolled back, or a NormalDeploy that became available after its deadline.
	// +optional
	EndedFirst *RolloutEnd `json:"endedFirst,omitempty"`
	// RollbackStartedAt is set from the moment the attempt is being rolled back.
	// +optional
	RollbackStartedAt *metav1.Time `json:"rollbackStartedAt,omitempty"`
	// RollbackReason says who or what asked for the rollback.
	// +optional
	RollbackReason string `json:"rollbackReason,omitempty"`
	// Autoscalers names the HorizontalPodAutoscalers seen to target a Deployment of this attempt.
	// +optional
	// +listType=set
	Autoscalers []string `json:"autoscalers,omitempty"`
	// TraceID is the trace of this attempt.
	// +optional
	TraceID string `json:"traceID,omitempty"`
	// StalePromote is the value that the promote annotation had when the attempt began: it was
	// about an earlier one and counts again once it has been taken away.
	// +optional
	StalePromote string `json:"stalePromote,omitempty"`
	// ParentSpanID is the span of a CI job that this attempt continues.
	// +optional
	ParentSpanID string `json:"parentSpanID,omitempty"`
}

// RolloutEnd is one end of an attempt.
type RolloutEnd struct {
	Outcome    Outcome     `json:"outcome"`
	FinishedAt metav1.Time `json:"finishedAt"`
}

// Phase is where a rollout stands.
//
// +kubebuilder:validation:Enum=Pending;Progressing;AwaitingApproval;Analyzing;RollingBack;Completed;RolledBack;Failed;Invalid
type Phase string

// The phases of a rollout.
const (
	PhasePending          Phase = "Pending"
	PhaseProgressing      Phase = "Progressing"
	PhaseAwaitingApproval Phase = "AwaitingApproval"
	PhaseAnalyzing        Phase = "Analyzing"
	PhaseRollingBack      Phase = "RollingBack"
	PhaseCompleted        Phase = "Completed"
	PhaseRolledBack       Phase = "RolledBack"
	PhaseFailed           Phase = "Failed"
	PhaseInvalid          Phase = "Invalid"
)

// Phases lists every phase, in the order a rollout may pass them.
func Phases() []Phase {
	return []Phase{
		PhasePending, PhaseProgressing, PhaseAwaitingApproval, PhaseAnalyzing, PhaseRollingBack,
		PhaseCompleted, PhaseRolledBack, PhaseFailed, PhaseInvalid,
	}
}

// Outcome is how an attempt ended.
//
// +kubebuilder:validation:Enum=Completed;RolledBack;Failed
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeCompleted  Outcome = "Completed"
	OutcomeRolledBack Outcome = "RolledBack"
	OutcomeFailed     Outcome = "Failed"
)

// Verdict is what the gate makes of the evidence.
//
// +kubebuilder:validation:Enum=Pass;Fail;NoData;Error
type Verdict string

// The verdicts. Only Pass promotes and only Fail rolls back; the others hold.
const (
	VerdictPass   Verdict = "Pass"
	VerdictFail   Verdict = "Fail"
	VerdictNoData Verdict = "NoData"
	VerdictError  Verdict = "Error"
)

// Verdicts lists every verdict, the best first.
func Verdicts() []Verdict { return []Verdict{VerdictPass, VerdictNoData, VerdictError, VerdictFail} }

// Condition types.
const (
	ConditionProgressing = "Progressing"
	ConditionAvailable   = "Available"
	ConditionPaused      = "Paused"
	ConditionGateHealthy = "GateHealthy"
	ConditionStalled     = "Stalled"
)

// Reason is shared by conditions, events and metrics.
type Reason string

// The reasons.
const (
	ReasonRolloutStarted      Reason = "RolloutStarted"
	ReasonRolloutRestarted    Reason = "RolloutRestarted"
	ReasonBatchStarted        Reason = "BatchStarted"
	ReasonBatchAvailable      Reason = "BatchAvailable"
	ReasonBatchFinished       Reason = "BatchFinished"
	ReasonWaitingForReplicas  Reason = "WaitingForReplicas"
	ReasonAwaitingApproval    Reason = "AwaitingApproval"
	ReasonAnalyzing           Reason = "Analyzing"
	ReasonPaused              Reason = "Paused"
	ReasonResumed             Reason = "Resumed"
	ReasonRollbackStarted     Reason = "RollbackStarted"
	ReasonRolledBack          Reason = "RolledBack"
	ReasonCompleted           Reason = "Completed"
	ReasonDeadlineExceeded    Reason = "ProgressDeadlineExceeded"
	ReasonGateFailed          Reason = "GateFailed"
	ReasonGatePassed          Reason = "GatePassed"
	ReasonGateNoData          Reason = "GateNoData"
	ReasonGateError           Reason = "GateError"
	ReasonGatePaused          Reason = "GatePaused"
	ReasonGateOverridden      Reason = "GateOverridden"
	ReasonNoGate              Reason = "NoGate"
	ReasonReplicasAvailable   Reason = "ReplicasAvailable"
	ReasonReplicasUnavailable Reason = "ReplicasUnavailable"
	ReasonInvalidSpec         Reason = "InvalidSpec"
	ReasonInvalidDeployment   Reason = "InvalidDeployment"
	ReasonRejectedByAPIServer Reason = "RejectedByAPIServer"
	ReasonUnsupported         Reason = "Unsupported"
	ReasonWorkloadConflict    Reason = "WorkloadConflict"
	ReasonDeploymentCreated   Reason = "DeploymentCreated"
	ReasonDeploymentDeleted   Reason = "DeploymentDeleted"
	ReasonDeploymentRepaired  Reason = "DeploymentRepaired"
	ReasonAutoscalerDetected  Reason = "AutoscalerDetected"
	ReasonApplyFailed         Reason = "ApplyFailed"
	ReasonAsExpected          Reason = "AsExpected"
	ReasonDeploymentsReleased Reason = "DeploymentsReleased"
	ReasonDeploymentsRestored Reason = "DeploymentsRestored"
)

// Keys and values of status.info, the original form.
const (
	InfoAvailableReplicas = "availableReplicas"
	InfoRollbackStatus    = "rollbackStatus"
	InfoIng               = "Ing"
	InfoFinished          = "Finished"
)
