package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/rollout"
	"github.com/canarycontroller/canary-controller/controller/trace"
)

// errConflict wraps optimistic-lock conflicts: somebody else wrote first, which is no fault.
var errConflict = errors.New("changed meanwhile")

// IsConflict says whether a sync ended because somebody else wrote first, which is retried
// and no fault.
func IsConflict(err error) bool { return errors.Is(err, errConflict) }

// sync brings one Canary a step further.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	cached, err := c.canaryList.Canaries(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.written.Delete(name)
		c.gatherings.Delete(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Canary %s: %w", name, err)
	}
	if version, ok := c.written.Load(name); ok && older(cached.ResourceVersion, version.(string)) {
		klog.FromContext(ctx).V(4).Info("Cache is older than the last write, waiting for its event")
		return nil
	}
	canary := cached.DeepCopy()
	v1alpha1.SetDefaults(canary)
	if r := canary.Status.Rollout; r != nil && r.TraceID != "" {
		ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "traceID", r.TraceID))
	}
	if canary.DeletionTimestamp != nil {
		return c.finalize(ctx, canary)
	}

	release, errs := v1alpha1.Validate(canary)
	if len(errs) > 0 {
		return c.refuse(ctx, canary, reasonFor(canary), errs.ToAggregate().Error())
	}
	view := c.observe(canary, release)
	if view.stale {
		klog.FromContext(ctx).V(4).Info("Deployment cache is older than the last write, waiting for its event")
		return nil
	}
	evidence, gateStatus, again := c.judge(canary, view)
	decision := rollout.Next(view.plan, view.seen, rollout.StateOf(&canary.Status), evidence, c.now())
	decision.Gate = gateStatus
	begun := begins(canary, decision)
	if begun {
		decision.Gate = nil
		identify(ctx, canary, decision.State.Rollout)
		decision.State.Rollout.StalePromote = canary.Annotations[v1alpha1.AnnotationPromote]
	} else if r := decision.State.Rollout; r != nil && r.StalePromote != canary.Annotations[v1alpha1.AnnotationPromote] {
		r.StalePromote = ""
	}
	if begun || canary.Spec.Info.Type == v1alpha1.NormalDeploy || !runs(canary) && decision.Phase == v1alpha1.PhaseRollingBack {
		if other := c.conflict(canary, view.plan); other != "" {
			return c.refuse(ctx, canary, v1alpha1.ReasonWorkloadConflict, other)
		}
	}
	noteAutoscalers(&decision, view.autoscalers)

	stepErr := c.carryOut(ctx, canary, release, view, decision, begun)
	if apierrors.HasStatusCause(stepErr, corev1.NamespaceTerminatingCause) {
		// The Canary is about to be deleted with its namespace.
		return nil
	}
	var rejected *rejection
	if errors.As(stepErr, &rejected) && begun {
		return c.refuse(ctx, canary, v1alpha1.ReasonRejectedByAPIServer, rejected.Error())
	}

	// Status is written whether or not the step went well, so that progress, deadlines and
	// the reason of a failure always show. A rollout that could not begin has no state yet.
	if stepErr != nil && begun {
		decision.State, decision.Gate = rollout.StateOf(&canary.Status), canary.Status.Gate
		decision.Phase = v1alpha1.PhasePending
	}
	status := rollout.Status(&canary.Status, canary.Generation, view.plan, view.seen, decision, c.now())
	if stepErr != nil {
		noteFailure(&canary.Status, status, stepErr, c.now())
	}
	writeErr := c.writeStatus(ctx, canary, status)
	for _, after := range []time.Duration{decision.RequeueAfter, again} {
		if after > 0 {
			c.queue.AddAfter(name, after)
		}
	}
	return errors.Join(stepErr, writeErr)
}

// identify gives a rollout that begins its trace.
func identify(ctx context.Context, canary *v1alpha1.Canary, r *v1alpha1.RolloutStatus) {
	var ignored error
	r.TraceID, r.ParentSpanID, ignored = trace.IDs(canary.UID, r, canary.Annotations[v1alpha1.AnnotationTraceparent])
	if ignored != nil {
		klog.FromContext(ctx).Info("Annotation is ignored, the rollout gets a trace of its own", "annotation", v1alpha1.AnnotationTraceparent, "err", ignored)
	}
}

// begins says whether a decision starts a rollout that status does not know yet.
func begins(canary *v1alpha1.Canary, d rollout.Decision) bool {
	before, after := canary.Status.Rollout, d.State.Rollout
	return after != nil && (before == nil || before.ID != after.ID || !before.StartedAt.Equal(&after.StartedAt))
}

// carryOut does what a decision says: the finalizer first, then, for a new rollout, a dry
// run of everything it may apply, then the actions on Deployments.
func (c *Controller) carryOut(ctx context.Context, canary *v1alpha1.Canary, release *v1alpha1.Release, view view, d rollout.Decision, begun bool) error {
	if len(d.Actions) == 0 {
		return nil
	}
	if err := c.ensureFinalizer(ctx, canary); err != nil {
		return err
	}
	if begun {
		if err := c.dryRun(ctx, canary, release, view, d); err != nil {
			return err
		}
	}
	var errs []error
	for _, name := range sortedKeys(d.Actions) {
		errs = append(errs, c.act(ctx, canary, release, view, name, d.Actions[name]))
	}
	return errors.Join(errs...)
}

// refuse marks a Canary Invalid. Whatever runs keeps running, and only a change of the
// Canary or of what it collides with brings it back.
func (c *Controller) refuse(ctx context.Context, canary *v1alpha1.Canary, reason v1alpha1.Reason, message string) error {
	return c.writeStatus(ctx, canary, rollout.InvalidStatus(&canary.Status, canary.Generation, reason, message, c.now()))
}

// reasonFor names the reason of a validation error for conditions and events.
func reasonFor(canary *v1alpha1.Canary) v1alpha1.Reason {
	if canary.Spec.Info.Type == v1alpha1.ABTest {
		return v1alpha1.ReasonUnsupported
	}
	return v1alpha1.ReasonInvalidSpec
}

// conflict says which other Canary works on one of the same Deployments. The one whose
// rollout began first keeps them; among those that wait to begin, the older Canary.
func (c *Controller) conflict(canary *v1alpha1.Canary, plan rollout.Plan) string {
	for _, name := range []string{plan.NewName, plan.OldName} {
		if name == "" {
			continue
		}
		for _, other := range c.canariesOf(canary.Namespace + "/" + name) {
			if other.UID == canary.UID || other.DeletionTimestamp != nil || !holds(other) || !precedes(other, canary) {
				continue
			}
			return fmt.Sprintf("Deployment %s is being released by Canary %s, which began first; wait for its rollout to end, or delete it with deletionPolicy Orphan if the Deployment is to stay", name, other.Name)
		}
	}
	return ""
}

// runs says whether a Canary is at work on its Deployments. A finished batched rollout has
// let go of them; NormalDeploy keeps its Deployment as the manifest says for good.
func runs(canary *v1alpha1.Canary) bool {
	r := canary.Status.Rollout
	if r == nil {
		return false
	}
	return r.Outcome == "" || r.Outcome == v1alpha1.OutcomeFailed ||
		canary.Spec.Info.Type == v1alpha1.NormalDeploy && canary.Status.Phase != v1alpha1.PhaseInvalid
}

// holds says whether a Canary is at work on its Deployments or about to be.
func holds(canary *v1alpha1.Canary) bool {
	return runs(canary) || canary.Status.Rollout == nil && canary.Status.Phase != v1alpha1.PhaseInvalid
}

func precedes(a, b *v1alpha1.Canary) bool {
	if runs(a) != runs(b) {
		return runs(a)
	}
	timeA, timeB := a.CreationTimestamp, b.CreationTimestamp
	if runs(a) {
		timeA, timeB = a.Status.Rollout.StartedAt, b.Status.Rollout.StartedAt
	}
	if !timeA.Equal(&timeB) {
		return timeA.Before(&timeB)
	}
	return a.UID < b.UID
}

// noteAutoscalers remembers the autoscalers seen in the rollout's state, which makes the
// event about each one appear once.
func noteAutoscalers(d *rollout.Decision, names []string) {
	r := d.State.Rollout
	if r == nil {
		return
	}
	for _, name := range names {
		if !slices.Contains(r.Autoscalers, name) {
			r.Autoscalers = append(r.Autoscalers, name)
		}
	}
}

// noteFailure shows a failed step in the Progressing condition and the message.
func noteFailure(before, status *v1alpha1.CanaryStatus, err error, now time.Time) {
	if IsConflict(err) {
		return
	}
	status.Message = rollout.Clip(err.Error())
	// A failure that repeats is no transition.
	if was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionProgressing); was != nil && was.Status == metav1.ConditionFalse {
		now = was.LastTransitionTime.Time
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: string(v1alpha1.ReasonApplyFailed),
		Message: status.Message, ObservedGeneration: status.ObservedGeneration, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionProgressing)
	status.Conditions = append([]metav1.Condition{condition}, status.Conditions...)
}

// writeStatus writes a status that differs and then tells what happened.
func (c *Controller) writeStatus(ctx context.Context, canary *v1alpha1.Canary, status *v1alpha1.CanaryStatus) error {
	if equality.Semantic.DeepEqual(&canary.Status, status) {
		return nil
	}
	before := canary.Status
	update := canary.DeepCopy()
	update.Status = *status
	updated, err := c.canaries.CanarycontrollerV1alpha1().Canaries(canary.Namespace).
		UpdateStatus(ctx, update, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("writing status of Canary %s/%s: %w", canary.Namespace, canary.Name, errConflict)
	case err != nil:
		return fmt.Errorf("writing status of Canary %s/%s: %w", canary.Namespace, canary.Name, err)
	}
	c.written.Store(cache.MetaObjectToName(canary), updated.ResourceVersion)
	for _, event := range rollout.Events(&before, status) {
		c.recorder.AnnotatedEventf(canary, traceAnnotation(status), event.Type, string(event.Reason), "%s", event.Message)
	}
	if c.observer != nil {
		c.observer.StatusWritten(canary, updated)
	}
	return nil
}

// traceAnnotation puts the rollout's trace on an event.
func traceAnnotation(status *v1alpha1.CanaryStatus) map[string]string {
	if status.Rollout == nil || status.Rollout.TraceID == "" {
		return nil
	}
	return map[string]string{v1alpha1.AnnotationTraceID: status.Rollout.TraceID}
}

// older compares resource versions of one object. Versions that are no numbers, which no
// API server of Kubernetes writes, count as current.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
