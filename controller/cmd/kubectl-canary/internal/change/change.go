package change

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Change is what a command does to a Canary.
type Change struct {
	// Patch is a JSON merge patch that the API server refuses when the Canary is no longer
	// the one that was looked at. It is nil when there is nothing to change.
	Patch []byte
	// Summary says in one line what changes, or why nothing does.
	Summary string
	// Confirm is what a person should know and agree to first; empty when nothing.
	Confirm string
	// Retry is the new value of the retry annotation, if that is changed.
	Retry string
	// Batch is the batch that may start or, for an override, the one that is let through.
	Batch int32
	// Override says that the gate's evidence is waived for Batch, or accepted for it
	// although the gate had paused.
	Override bool
}

// Refusal says why a command makes no sense for a Canary as it is.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

func refuse(format string, args ...any) (Change, error) {
	return Change{}, &Refusal{fmt.Sprintf(format, args...)}
}

func nothing(format string, args ...any) (Change, error) {
	return Change{Summary: fmt.Sprintf(format, args...)}, nil
}

// edit is a merge patch being put together.
type edit struct{ metadata, spec, info map[string]any }

func newEdit(c *v1alpha1.Canary) *edit {
	return &edit{metadata: map[string]any{"resourceVersion": c.ResourceVersion}, spec: map[string]any{}, info: map[string]any{}}
}

// annotate sets an annotation, or takes it away when value is nil.
func (e *edit) annotate(key string, value any) {
	annotations, ok := e.metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		e.metadata["annotations"] = annotations
	}
	annotations[key] = value
}

// approve sets info.currentBatch in the form, text or number, that it has.
func (e *edit) approve(c *v1alpha1.Canary, batch int32) {
	if was := c.Spec.Info.CurrentBatch; was != nil && was.Type == intstr.String {
		e.info["currentBatch"] = strconv.Itoa(int(batch))
		return
	}
	e.info["currentBatch"] = batch
}

func (e *edit) patch() ([]byte, error) {
	if len(e.info) > 0 {
		e.spec["info"] = e.info
	}
	document := map[string]any{"metadata": e.metadata}
	if len(e.spec) > 0 {
		document["spec"] = e.spec
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	return text, nil
}

// make completes a change with its patch.
func (e *edit) make(change Change, format string, args ...any) (Change, error) {
	change.Summary = fmt.Sprintf(format, args...)
	var err error
	change.Patch, err = e.patch()
	return change, err
}

// approved is the highest batch that a person has approved.
func approved(c *v1alpha1.Canary) int32 {
	if c.Spec.Info.CurrentBatch == nil {
		return 1
	}
	n, err := strconv.ParseInt(c.Spec.Info.CurrentBatch.String(), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// batches is how many batches the rollout has, 0 when status does not say.
func batches(s *v1alpha1.CanaryStatus) int32 {
	_, all, _ := strings.Cut(s.Batch, "/")
	n, err := strconv.ParseInt(all, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// stale says that the controller has not acted on the latest spec, so that status may be
// of another rollout.
func stale(c *v1alpha1.Canary) bool { return c.Status.ObservedGeneration < c.Generation }

// turned says whether the rollout is going back or to be sent back.
func turned(c *v1alpha1.Canary) bool {
	r := c.Status.Rollout
	return c.Spec.Info.Type == v1alpha1.CanaryRollback || r != nil && r.RollbackStartedAt != nil && r.Outcome == ""
}

// gatePaused says whether the gate waits for a person about the current batch.
func gatePaused(s *v1alpha1.CanaryStatus) bool {
	return s.Gate != nil && s.Gate.PausedAt != nil && s.Gate.Batch == s.CurrentBatch &&
		(s.Rollout == nil || s.Rollout.Outcome == "")
}
