package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Plan is what a valid Canary asks for, with the total of the moment.
type Plan struct {
	// ID identifies the release; another ID is another rollout.
	ID string
	// Retry is the value of the retry annotation.
	Retry string
	// Type is the strategy asked for.
	Type v1alpha1.CanaryType
	// NewName and OldName are the Deployments; OldName is empty without an old version.
	NewName, OldName string
	// Total is the number of replicas the release is split over.
	Total int32
	// Targets holds the replicas of the new version at the end of each batch, never
	// decreasing, the last one Total.
	Targets []int32
	// OldFloor is the number below which an autoscaler would not let the old version stand,
	// but for 0, which switches it off; 0 without an autoscaler.
	OldFloor int32
	// Pause and Approved say where a person must approve and how far one has.
	Pause    v1alpha1.PauseType
	Approved int32
	// Paused stops batches from advancing.
	Paused bool
	// Gated says that evidence decides, not approval alone.
	Gated bool
	// ProgressDeadline bounds the time from a batch's start to its availability.
	ProgressDeadline time.Duration
}

// SameName says whether old and new are one Deployment, changed in place.
func (p *Plan) SameName() bool { return p.OldName != "" && p.OldName == p.NewName }

// idVersion is part of every rollout id. It changes only with a deliberate change of what
// is hashed, and such a change must keep recognising ids of earlier versions.
const idVersion = "v1"

// ID returns the rollout id of a release: a hash of what is released and how it is split.
// Approvals, gates, pauses and the controller's version are not part of it. CanaryDeploy
// and CanaryRollback are one family, so that rolling back belongs to the same rollout.
func ID(c *v1alpha1.Canary, r *v1alpha1.Release) string {
	content := struct {
		Family  string
		New     json.RawMessage
		Old     json.RawMessage `json:",omitempty"`
		Batches []string
	}{Family: "batched", New: r.New.Canonical}
	if r.Old != nil {
		content.Old = r.Old.Canonical
	}
	switch {
	case c.Spec.Info.Type == v1alpha1.NormalDeploy:
		content.Family = "normal"
	case len(c.Spec.Batches) > 0:
		for _, batch := range c.Spec.Batches {
			content.Batches = append(content.Batches, batch.String())
		}
	default:
		content.Batches = []string{"/" + strconv.Itoa(int(r.TotalBatches))}
	}
	canonical, err := json.Marshal(content)
	if err != nil {
		// Canonical was produced by json.Marshal, so it is valid JSON.
		panic(fmt.Sprintf("rollout id of Canary %s/%s: %v", c.Namespace, c.Name, err))
	}
	sum := sha256.Sum256(canonical)
	return idVersion + "-" + hex.EncodeToString(sum[:8])
}

// NewPlan returns the plan of a defaulted, valid Canary for a total of replicas.
func NewPlan(c *v1alpha1.Canary, r *v1alpha1.Release, total int32) Plan {
	plan := Plan{
		ID:               ID(c, r),
		Retry:            c.Annotations[v1alpha1.AnnotationRetry],
		Type:             c.Spec.Info.Type,
		NewName:          r.New.ObjectMeta().Name,
		Total:            total,
		Pause:            c.Spec.Info.PauseType,
		Approved:         r.Approved,
		Paused:           c.Spec.Paused,
		Gated:            c.Spec.Gate != nil && c.Spec.Info.Type != v1alpha1.NormalDeploy,
		ProgressDeadline: time.Duration(*c.Spec.ProgressDeadlineSeconds) * time.Second,
	}
	if r.Old != nil {
		plan.OldName = r.Old.ObjectMeta().Name
	}
	switch {
	case c.Spec.Info.Type == v1alpha1.NormalDeploy:
		plan.Targets = []int32{total}
	case len(c.Spec.Batches) > 0:
		plan.Targets = ListTargets(c.Spec.Batches, r.New.Replicas(), total)
	default:
		plan.Targets = FormulaTargets(total, r.TotalBatches)
	}
	return plan
}

// WithAutoscalers returns the plan among autoscalers with the given minimum replicas on
// the new and the old version. A batch cannot be smaller than the new one's minimum, nor
// can the old version stand below its own: the autoscaler would put it back, and what it
// puts back must not be taken for a greater need.
func (p Plan) WithAutoscalers(newMin, oldMin int32) Plan {
	p.OldFloor = min(oldMin, p.Total)
	p.Targets = slices.Clone(p.Targets)
	for n := range p.Targets {
		p.Targets[n] = max(p.Targets[n], min(newMin, p.Total))
	}
	return p
}

// FormulaTargets splits total over a number of batches: batch N ends with
// 1 + (N-1) x round(total/batches) replicas, capped at total; the last one with total.
// Rounding is half away from zero.
func FormulaTargets(total, batches int32) []int32 {
	targets := make([]int32, batches)
	step := int64(math.Round(float64(total) / float64(batches)))
	for n := range targets {
		targets[n] = int32(min(1+int64(n)*step, int64(total)))
	}
	targets[batches-1] = total
	return targets
}

// ListTargets resolves an explicit list of cumulative batches: replicas, or percents of
// total rounded up, so that a batch is never empty. A list that stops short of the
// manifest's replicas gets a last batch with the total; that depends on the manifest and
// not on the total of the moment, so that the number of batches stays the same while an
// autoscaler moves the total.
func ListTargets(list []intstr.IntOrString, manifestReplicas, total int32) []int32 {
	if last := list[len(list)-1]; resolve(last, manifestReplicas) < manifestReplicas {
		list = append(list[:len(list):len(list)], intstr.FromString("100%"))
	}
	targets := make([]int32, len(list))
	var previous int32
	for n, item := range list {
		previous = max(previous, resolve(item, total))
		targets[n] = previous
	}
	targets[len(targets)-1] = total
	return targets
}

// resolve returns a batch in replicas, at most total. Items were validated.
func resolve(item intstr.IntOrString, total int32) int32 {
	text, percent := strings.CutSuffix(item.String(), "%")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return total
	}
	if percent {
		n = (int64(total)*n + 99) / 100
	}
	return int32(min(n, int64(total)))
}
