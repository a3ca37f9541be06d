package canary

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/exporter"
)

// Role tells the two versions of a Canary apart.
type Role string

// The roles.
const (
	// RoleCanary is the new version.
	RoleCanary Role = "canary"
	// RoleStable is the old version.
	RoleStable Role = "stable"
)

// Indices into families.
const (
	familyInfo = iota
	familyTargetInfo
	familyPhase
	familyBatchCurrent
	familyBatches
	familyBatchTransition
	familyReplicas
)

// maxSeries is the most that one Canary may have: info, phase, three of
// batches, two targets and two times two replica counts make eleven.
const maxSeries = 12

func families() []exporter.Family {
	labels := func(more ...string) []string { return append([]string{"namespace", "canary"}, more...) }
	return []exporter.Family{
		familyInfo: {
			Name: "canary_info", Labels: labels("type", "pause_type"),
			Help: "What a Canary is asked to do, always 1.",
		},
		familyTargetInfo: {
			Name: "canary_target_info", Labels: labels("role", "workload"),
			Help: "The Deployments of a Canary, always 1, to join with metrics of workloads. When both versions have one Deployment it is listed as canary only.",
		},
		familyPhase: {
			Name: "canary_phase", Labels: labels("phase"),
			Help: "The phase a Canary is in, always 1; other phases have no series.",
		},
		familyBatchCurrent: {
			Name: "canary_batch_current", Labels: labels(),
			Help: "The batch a Canary works on, from 1; 0 when there are no batches.",
		},
		familyBatches: {
			Name: "canary_batches", Labels: labels(),
			Help: "Number of batches of a Canary; 0 when there are none.",
		},
		familyBatchTransition: {
			Name: "canary_batch_transition_timestamp_seconds", Labels: labels(),
			Help: "Unix time when the rollout or one of its batches last started, became available or ended. Absent before the first.",
		},
		familyReplicas: {
			Name: "canary_replicas", Labels: labels("role", "state"),
			Help: "Replicas of the Deployments of a Canary, desired and available. When both versions have one Deployment it is counted as canary only.",
		},
	}
}

// State publishes the state of Canaries; see [exporter.Objects].
type State = exporter.Objects[*v1alpha1.Canary]

// StateConfig configures State.
type StateConfig struct {
	// Registerer takes State's own metrics; required.
	Registerer prometheus.Registerer
	// MaxCanaries is the number of Canaries above which no family of single
	// Canaries is published, 20,000.
	MaxCanaries int
	// Active says whether to publish now; always if nil. Let it report
	// leadership, so that only one replica publishes.
	Active func() bool
	// Logger says when the limit is crossed. Nothing is logged if nil.
	Logger *slog.Logger
}

// NewState returns a State without Canaries. Feed it with Watch.
func NewState(c StateConfig) (*State, error) {
	all := families()
	for i := range all {
		all[i].Type = prometheus.GaugeValue
	}
	return exporter.NewObjects(exporter.ObjectsConfig[*v1alpha1.Canary]{
		Name:       "canaries",
		Families:   all,
		Render:     render,
		Registerer: c.Registerer,
		MaxObjects: c.MaxCanaries,
		MaxSeries:  maxSeries,
		Active:     c.Active,
		Logger:     c.Logger,
	})
}

// render emits the samples of one Canary.
func render(c *v1alpha1.Canary, e *exporter.Emitter) {
	ns, name, s := c.Namespace, c.Name, &c.Status
	pauseType := c.Spec.Info.PauseType
	if pauseType == "" {
		pauseType = v1alpha1.PauseFirst
	}
	e.Emit(familyInfo, 1, ns, name, string(c.Spec.Info.Type), string(pauseType))
	phase := s.Phase
	if phase == "" {
		// The controller has not seen it yet.
		phase = v1alpha1.PhasePending
	}
	e.Emit(familyPhase, 1, ns, name, string(phase))
	e.Emit(familyBatchCurrent, float64(s.CurrentBatch), ns, name)
	e.Emit(familyBatches, float64(batches(s.Batch)), ns, name)
	if at := lastTransition(s); !at.IsZero() {
		e.Emit(familyBatchTransition, float64(at.UnixMilli())/1e3, ns, name)
	}
	if s.New != nil {
		renderWorkload(e, ns, name, RoleCanary, s.New)
	}
	// One Deployment in two roles would double sums over roles and break every
	// join on the workload with "many-to-many matching", for all Canaries.
	if s.Old != nil && (s.New == nil || s.New.Name != s.Old.Name) {
		renderWorkload(e, ns, name, RoleStable, s.Old)
	}
}

func renderWorkload(e *exporter.Emitter, ns, name string, role Role, w *v1alpha1.WorkloadStatus) {
	e.Emit(familyTargetInfo, 1, ns, name, string(role), w.Name)
	e.Emit(familyReplicas, float64(w.Replicas), ns, name, string(role), "desired")
	e.Emit(familyReplicas, float64(w.AvailableReplicas), ns, name, string(role), "available")
}

// batches is M of the status's "N/M", or 0.
func batches(batch string) int {
	_, total, _ := strings.Cut(batch, "/")
	n, err := strconv.Atoi(total)
	if err != nil {
		return 0
	}
	return n
}

// lastTransition is the latest time in the course of a rollout.
func lastTransition(s *v1alpha1.CanaryStatus) time.Time {
	var last time.Time
	note := func(t *metav1.Time) {
		if t != nil && t.After(last) {
			last = t.Time
		}
	}
	for i := range s.Batches {
		b := &s.Batches[i]
		note(&b.StartedAt)
		note(b.AvailableAt)
		note(b.FinishedAt)
	}
	if r := s.Rollout; r != nil {
		note(&r.StartedAt)
		note(r.RollbackStartedAt)
		note(r.FinishedAt)
	}
	return last
}
