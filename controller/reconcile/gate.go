package reconcile

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
	"github.com/canarycontroller/canary-controller/controller/rollout"
)

// GateQueueName is the name of the queue of evaluations in metrics.
const GateQueueName = "gates"

// Gatherer asks the sources of evidence. It must return when ctx ends, and say of every
// check what it found or why it found nothing.
type Gatherer interface {
	Gather(ctx context.Context, spec *v1alpha1.Gate, namespace string, s gate.Situation, now time.Time) gate.Gathered
}

// gathering is evidence on its way into a status: asked for while found is nil, then found
// at a time. Evidence that never gets there, because the process ends, is asked for again.
type gathering struct {
	situation gate.Situation
	// spec is what was asked about, which the author may have changed since.
	spec  *v1alpha1.Gate
	found gate.Gathered
	at    time.Time
}

// arrived says that the evidence is in status, which keeps times in seconds.
func (g *gathering) arrived(status *v1alpha1.GateStatus) bool {
	return g.found != nil && status != nil && status.EvaluatedAt != nil && status.Batch == g.situation.Batch &&
		status.EvaluatedAt.Time.Equal(g.at.Truncate(time.Second))
}

// judge says what the gate makes of the batch that the status knows to be available, and
// what to keep of it in status. It never waits for a source of evidence: what is due goes
// to the queue of evaluations, and comes back with the next sync.
func (c *Controller) judge(canary *v1alpha1.Canary, v view) (evidence rollout.Evidence, status *v1alpha1.GateStatus, again time.Duration) {
	name, status := cache.MetaObjectToName(canary), canary.Status.Gate.DeepCopy()
	if !v.plan.Gated {
		c.gatherings.Delete(name)
		return rollout.NoGate, status, 0
	}
	situation, judged := situationOf(canary, v)
	if !judged {
		c.gatherings.Delete(name)
		return rollout.Evidence{Action: rollout.GateHold, Message: "its evidence begins when it is available"}, status, 0
	}
	spec, now := canary.Spec.Gate, c.now()
	if stored, ok := c.gatherings.Load(name); ok {
		g := stored.(*gathering)
		switch {
		case g.situation != situation || g.found != nil && !equality.Semantic.DeepEqual(g.spec, spec) || g.arrived(status):
			// What is about another batch or other checks says nothing about this one.
			c.gatherings.CompareAndDelete(name, stored)
		case g.found != nil:
			status = gate.Evaluate(spec, status, situation, g.found, g.at)
		}
	}
	again = gate.Due(spec, status, situation, now)
	if again <= 0 {
		again = 0
		c.gather(name, situation)
	}
	promote := canary.Annotations[v1alpha1.AnnotationPromote]
	override := promote == fmt.Sprintf("%s/%d", situation.RolloutID, situation.Batch) && promote != canary.Status.Rollout.StalePromote
	outcome, status := gate.Decide(spec, status, situation, override, now)
	if outcome.HoldLeft > 0 && (again == 0 || outcome.HoldLeft < again) {
		again = outcome.HoldLeft
	}
	return rollout.Evidence{Verdict: outcome.Verdict, Action: actionOf(outcome.Action), Message: outcome.Message}, status, again
}

// actionOf renders a gate's action for the rollout: what a person lets through is promoted.
func actionOf(action gate.Action) rollout.GateAction {
	if action == gate.Override {
		return rollout.GatePromote
	}
	return rollout.GateAction(action)
}

// situationOf describes the batch to judge. It is judged from when the status says that it
// is available until the rollout is over or goes back.
func situationOf(canary *v1alpha1.Canary, v view) (s gate.Situation, judged bool) {
	status := &canary.Status
	r, n := status.Rollout, int(status.CurrentBatch)
	if r == nil || r.ID != v.plan.ID || r.Outcome != "" || r.RollbackStartedAt != nil || n < 1 || n > len(status.Batches) ||
		v.plan.Type != v1alpha1.CanaryDeploy {
		return s, false
	}
	batch := status.Batches[n-1]
	if batch.AvailableAt == nil || batch.FinishedAt != nil {
		return s, false
	}
	return gate.Situation{
		RolloutID: r.ID, Namespace: canary.Namespace, Canary: canary.Name, New: v.plan.NewName, Old: v.plan.OldName,
		Batch: status.CurrentBatch, Batches: int32(len(v.plan.Targets)),
		WindowStart: batch.AvailableAt.UTC(), OldReplicas: max(0, v.plan.Total-batch.Target),
		Held: v.plan.Held(status.CurrentBatch),
	}, true
}

// gather puts an evaluation on its queue, once.
func (c *Controller) gather(name cache.ObjectName, s gate.Situation) {
	c.gatherings.LoadOrStore(name, &gathering{situation: s})
	c.gates.Add(name)
}

// gatherNext asks for the evidence of one Canary and returns false when there will be no
// more. Its workers are apart from those of the reconciler, so that a Prometheus that
// hangs holds up no rollout.
func (c *Controller) gatherNext(ctx context.Context) bool {
	name, shutdown := c.gates.Get()
	if shutdown {
		return false
	}
	defer c.gates.Done(name)
	stored, ok := c.gatherings.Load(name)
	if !ok || stored.(*gathering).found != nil {
		return true
	}
	asked := stored.(*gathering)
	canary, err := c.canaryList.Canaries(name.Namespace).Get(name.Name)
	if err != nil || canary.Spec.Gate == nil {
		c.gatherings.CompareAndDelete(name, stored)
		return true
	}
	defaulted := canary.DeepCopy()
	v1alpha1.SetDefaults(defaulted)
	// The window ends when the questions are asked, not when the last answer is there.
	at := c.now()
	spec := defaulted.Spec.Gate
	found := c.gatherSafely(ctx, spec, name, asked.situation, at)
	if ctx.Err() != nil {
		// What was cut short by the end of this process says nothing.
		return true
	}
	c.gatherings.CompareAndSwap(name, stored, &gathering{situation: asked.situation, spec: spec, found: found, at: at})
	c.queue.Add(name)
	return true
}

// gatherSafely turns a panic into evidence of nothing, which holds the batch.
func (c *Controller) gatherSafely(ctx context.Context, spec *v1alpha1.Gate, name cache.ObjectName, s gate.Situation, at time.Time) (found gate.Gathered) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(fmt.Errorf("%v", p), "Gathering evidence panicked", "canary", name, "stack", string(debug.Stack()))
			found = gate.Gathered{}
		}
	}()
	if c.gatherer == nil {
		return gate.Gathered{}
	}
	return c.gatherer.Gather(ctx, spec, name.Namespace, s, at)
}
