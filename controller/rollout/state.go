package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Workload is a Deployment as observed. The zero value is one that does not exist.
type Workload struct {
	// Exists and Deleting say whether it is there and on its way out.
	Exists, Deleting bool
	// Settled says that its status answers its present spec.
	Settled bool
	// Shrinking says that it still has more pods than its present spec asks for, so that
	// some are about to go although its status counts them.
	Shrinking bool
	// Current says that its spec is the one of the manifest it was last applied from.
	Current bool
	// Replicas is spec.replicas.
	Replicas int32
	// Available counts pods of any revision that have been ready for minReadySeconds.
	Available int32
	// Updated counts those of the present pod template among the available, at least:
	// while pods are being replaced, the ones of unknown revision are not counted.
	Updated int32
}

// whole says that at least replicas of the manifest's own pods are available.
func (w Workload) whole(replicas int32) bool {
	return w.Exists && !w.Deleting && w.Settled && w.Current && w.Replicas >= replicas && w.Updated >= replicas
}

// steady returns the replicas to ask for now when wanted are wanted in the end: no more
// than it has while an earlier decrease is being carried out. Asked for more, its status
// could count the pods that are still going as if they had come to stay, and others would
// be given up for them.
func (w Workload) steady(wanted int32) int32 {
	if w.Exists && (w.Shrinking || !w.Settled) {
		return min(wanted, w.Replicas)
	}
	return wanted
}

// counted returns the replicas that may be relied on when others are given up: none while
// the status may be of an earlier spec, and those of the present template alone while the
// Deployment is not yet what its manifest says.
func (w Workload) counted() int32 {
	switch {
	case !w.Settled:
		return 0
	case !w.Current:
		return w.Updated
	}
	return w.Available
}

// Observed is what the cluster looks like.
type Observed struct {
	New, Old Workload
	// Retiring holds superseded Deployments by name.
	Retiring map[string]Workload
}

// Evidence is what the gate makes of the current batch.
type Evidence struct {
	Verdict v1alpha1.Verdict
	Action  GateAction
	// Message says in one sentence what it rests on.
	Message string
}

// GateAction is what the gate wants done with the batch.
type GateAction string

// The actions of a gate.
const (
	// GateHold waits for a verdict.
	GateHold GateAction = "Hold"
	// GatePromote lets the batch finish.
	GatePromote GateAction = "Promote"
	// GatePause leaves everything as it is until a person decides.
	GatePause GateAction = "Pause"
	// GateRollback goes back to the old version.
	GateRollback GateAction = "Rollback"
	// GateOverride in a recorded decision says that a person let the batch through.
	GateOverride = "Override"
)

// NoGate is the evidence without spec.gate: approval alone decides.
var NoGate = Evidence{Verdict: v1alpha1.VerdictPass, Action: GatePromote}

// State is what a rollout remembers between syncs. All of it is in status.
type State struct {
	Rollout      *v1alpha1.RolloutStatus
	CurrentBatch int32
	Batches      []v1alpha1.BatchStatus
	// New is the Deployment that the state's rollout releases.
	New string
	// Retiring names Deployments of superseded versions still to be removed.
	Retiring []string
}

// StateOf reads the state out of a status. The result shares nothing with it.
func StateOf(status *v1alpha1.CanaryStatus) State {
	s := status.DeepCopy()
	state := State{Rollout: s.Rollout, CurrentBatch: s.CurrentBatch, Batches: s.Batches, Retiring: s.Retiring}
	if s.New != nil {
		state.New = s.New.Name
	}
	return state
}

// Verb is what to do with a Deployment.
type Verb string

// The verbs.
const (
	// Leave does not touch the Deployment.
	Leave Verb = ""
	// Apply makes it what its manifest says, with Action.Replicas replicas.
	Apply Verb = "Apply"
	// Scale changes its replicas and nothing else.
	Scale Verb = "Scale"
	// Delete removes it.
	Delete Verb = "Delete"
)

// Action is what to do with one Deployment.
type Action struct {
	Verb     Verb
	Replicas int32
}

// Decision is what to do now and what to remember.
type Decision struct {
	State   State
	Phase   v1alpha1.Phase
	Reason  v1alpha1.Reason
	Message string
	// Verdict of the current batch; empty when there is none.
	Verdict v1alpha1.Verdict
	// Gate is the evidence to keep in status; the reconciler fills it in.
	Gate *v1alpha1.GateStatus
	// Stalled says that a deadline has passed.
	Stalled bool
	// Actions on Deployments by name. A name that is missing is left alone.
	Actions map[string]Action
	// RequeueAfter is when the clock alone may change the decision; 0 for never.
	RequeueAfter time.Duration
}

func (d *Decision) act(name string, action Action) {
	if action.Verb == Leave {
		return
	}
	if d.Actions == nil {
		d.Actions = map[string]Action{}
	}
	d.Actions[name] = action
}

// stamp returns now with the resolution that a status keeps, so that a decision is the
// same before and after it went through the API server.
func stamp(now time.Time) metav1.Time { return metav1.NewTime(now.UTC().Truncate(time.Second)) }
