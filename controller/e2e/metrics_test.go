//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// family is a metric as the documentation has it. Labels are those it has beside the
// target's, in order. Series is how many there must be, 0 for any number.
type family struct {
	name   string
	kind   promv1.MetricType
	labels string
	series int
}

const (
	counter   = promv1.MetricTypeCounter
	gauge     = promv1.MetricTypeGauge
	histogram = promv1.MetricTypeHistogram
	summary   = promv1.MetricTypeSummary
)

// families are what the operator has while one CanaryDeploy waits for approval.
// rest_client_request_retries_total is missing: it has no series before the first retry.
var families = []family{
	{"workqueue_depth", gauge, "controller name", 2},
	{"workqueue_adds_total", counter, "controller name", 2},
	{"workqueue_queue_duration_seconds", histogram, "controller name", 2},
	{"workqueue_work_duration_seconds", histogram, "controller name", 2},
	{"workqueue_unfinished_work_seconds", gauge, "controller name", 2},
	{"workqueue_longest_running_processor_seconds", gauge, "controller name", 2},
	{"workqueue_retries_total", counter, "controller name", 1},
	{"rest_client_requests_total", counter, "code host method", 0},
	{"rest_client_request_duration_seconds", histogram, "host verb", 0},
	{"rest_client_rate_limiter_duration_seconds", histogram, "host verb", 0},
	{"leader_election_master_status", gauge, "name", 1},
	{"leader_election_slowpath_total", counter, "name", 1},
	{"go_goroutines", gauge, "", 1},
	{"go_info", gauge, "version", 1},
	{"go_memstats_heap_inuse_bytes", gauge, "", 1},
	{"go_gc_duration_seconds", summary, "quantile", 5},
	{"process_cpu_seconds_total", counter, "", 1},
	{"process_resident_memory_bytes", gauge, "", 1},
	{"process_open_fds", gauge, "", 1},
	{"process_start_time_seconds", gauge, "", 1},
	{"canary_info", gauge, "canary namespace pause_type type", 1},
	{"canary_target_info", gauge, "canary namespace role workload", 2},
	{"canary_phase", gauge, "canary namespace phase", 1},
	{"canary_batch_current", gauge, "canary namespace", 1},
	{"canary_batches", gauge, "canary namespace", 1},
	{"canary_batch_transition_timestamp_seconds", gauge, "canary namespace", 1},
	{"canary_replicas", gauge, "canary namespace role state", 4},
	{"canary_batches_completed_total", counter, "result", 4},
	{"canary_rollouts_total", counter, "outcome", 4},
	{"canary_batch_duration_seconds", histogram, "result", 4},
	{"canary_rollout_duration_seconds", histogram, "outcome", 4},
	{"canary_gate_decisions_total", counter, "check_kind verdict", 16},
	{"canary_gate_query_duration_seconds", histogram, "result", 4},
	{"canary_reconcile_total", counter, "result", 4},
	{"canary_reconcile_duration_seconds", histogram, "", 1},
	{"canary_outlier_ejected_endpoints", gauge, "canary namespace role", 2},
	{"canary_outlier_ejecting_proxies", gauge, "canary namespace role", 2},
	{"canary_outlier_observed_proxies", gauge, "canary namespace role", 2},
	{"canary_outlier_ejections_total", counter, "canary namespace role type", 16},
	{"canary_outlier_last_success_timestamp_seconds", gauge, "source", 1},
	{"canary_outlier_scrape_errors_total", counter, "reason source", 0},
}

// check holds a family to its type, labels and number of series in Prometheus.
func (f family) check(m *monitoring, metadata map[string][]promv1.Metadata) error {
	if of := metadata[f.name]; len(of) != 1 || of[0].Type != f.kind || of[0].Help == "" {
		return fmt.Errorf("%s: metadata %+v, want type %s and a help text", f.name, of, f.kind)
	}
	names := []string{f.name}
	if f.kind == histogram {
		// The native form has the bare name.
		names = append(names, f.name+"_count", f.name+"_sum")
	}
	for _, name := range names {
		vector, err := m.query(name + `{job="scraper"}`)
		if err != nil {
			return err
		}
		if len(vector) == 0 || f.series > 0 && len(vector) != f.series {
			return fmt.Errorf("%s: %d series, want %d", name, len(vector), f.series)
		}
		for _, sample := range vector {
			var labels []string
			for label := range sample.Metric {
				if label != model.MetricNameLabel && label != "job" && label != "instance" {
					labels = append(labels, string(label))
				}
			}
			slices.Sort(labels)
			if got := strings.Join(labels, " "); got != f.labels {
				return fmt.Errorf("%s: labels %q, want %q", name, got, f.labels)
			}
			if native := sample.Histogram != nil; native != (f.kind == histogram && name == f.name) {
				return fmt.Errorf("%s: a native histogram: %v", name, native)
			}
		}
	}
	return nil
}

// showsStatus checks that Prometheus has exactly the Canary's state, and returns a nil
// error only if the Canary has not changed meanwhile.
func (m *monitoring) showsStatus() error {
	c, err := m.canary("release")
	if err != nil {
		return err
	}
	want := map[string]float64{
		m.series("canary_info", "type", string(c.Spec.Info.Type), "pause_type", string(c.Spec.Info.PauseType)): 1,
		m.series("canary_phase", "phase", string(c.Status.Phase)):                                              1,
		m.series("canary_batch_current"):                                                                       float64(c.Status.CurrentBatch),
	}
	var current int32
	var batches float64
	if _, err := fmt.Sscanf(c.Status.Batch, "%d/%g", &current, &batches); err != nil || current != c.Status.CurrentBatch {
		return fmt.Errorf("status.batch is %q and currentBatch %d: %v", c.Status.Batch, c.Status.CurrentBatch, err)
	}
	want[m.series("canary_batches")] = batches
	last := c.Status.Batches[len(c.Status.Batches)-1].AvailableAt
	if c.Status.Rollout.FinishedAt != nil {
		last = c.Status.Rollout.FinishedAt
	}
	want[m.series("canary_batch_transition_timestamp_seconds")] = float64(last.Unix())
	for role, workload := range map[string]*v1alpha1.WorkloadStatus{"canary": c.Status.New, "stable": c.Status.Old} {
		if workload != nil {
			want[m.series("canary_target_info", "role", role, "workload", workload.Name)] = 1
			want[m.series("canary_replicas", "role", role, "state", "desired")] = float64(workload.Replicas)
			want[m.series("canary_replicas", "role", role, "state", "available")] = float64(workload.AvailableReplicas)
		}
	}
	return m.has(`{__name__=~"canary_(info|target_info|phase|batch.*|replicas)",job="scraper",canary!=""}`, want)()
}

// awaitsApproval waits for the first batch of four replicas, one by one.
func (m *monitoring) awaitsApproval() *v1alpha1.Canary {
	m.Helper()
	return m.status("one new and three old replicas", func(c *v1alpha1.Canary) bool {
		s := c.Status
		return s.Phase == v1alpha1.PhaseAwaitingApproval && s.Batch == "1/2" && s.Old != nil &&
			s.New.Replicas == 1 && s.New.AvailableReplicas == 1 && s.Old.Replicas == 3 && s.Old.AvailableReplicas == 3
	})
}

func firstBatchOf(newVersion string) *v1alpha1.Canary {
	c := canaryOf(v1alpha1.CanaryDeploy, v(newVersion, 4), v("old", 4))
	c.Spec.Info.PauseType = v1alpha1.PauseFirst
	return c
}

// exemplars checks that Prometheus has exemplars of these series with this trace id.
func (m *monitoring) exemplars(traceID string, names ...string) func() error {
	return func() error {
		found := map[string]bool{}
		results, err := m.api.QueryExemplars(m.ctx, `{__name__=~"canary_.+",job="scraper"}`, time.Now().Add(-time.Hour), time.Now())
		if err != nil {
			return err
		}
		for _, result := range results {
			for _, exemplar := range result.Exemplars {
				if string(exemplar.Labels["trace_id"]) == traceID {
					found[string(result.SeriesLabels[model.MetricNameLabel])] = true
				}
			}
		}
		for _, name := range names {
			if !found[name] {
				return fmt.Errorf("no exemplar of %s with trace %s; there are some of %v", name, traceID, found)
			}
		}
		return nil
	}
}

func TestPrometheusShowsARollout(t *testing.T) {
	s := apart(t)
	m := monitor(s)
	op := m.operate()
	for token, want := range map[string]int{m.scraper: http.StatusOK, m.stranger: http.StatusForbidden, "": http.StatusUnauthorized, "wrong": http.StatusUnauthorized} {
		if status, body := m.get(op, token); status != want {
			t.Errorf("status %d with token %.8q, want %d: %.200s", status, token, want, body)
		}
	}
	s.deploy(v("old", 4))
	s.create(firstBatchOf("new"))
	first := m.awaitsApproval()
	s.wait("the state while waiting", m.showsStatus)
	s.wait("the counters before the end", m.is(`sum({__name__=~"canary_rollouts_total|canary_batches_completed_total",job="scraper"})`, 0))
	s.wait("the queue of the controller", m.is(`count(workqueue_depth{job="scraper",name="canaries",controller="canary"})`, 1))
	s.wait("the leader", m.is(`sum(leader_election_master_status{job="scraper",name="canary-controller"})`, 1))
	for metric, want := range map[string][2]float64{"observed_proxies": {2, 2}, "ejecting_proxies": {1, 0}, "ejected_endpoints": {1, 0}} {
		name := "canary_outlier_" + metric
		s.wait(name, m.has(name+`{job="scraper"}`, map[string]float64{
			m.series(name, "role", "canary"): want[0], m.series(name, "role", "stable"): want[1],
		}))
	}
	s.wait("a recent sweep", m.is(`sum(time() - canary_outlier_last_success_timestamp_seconds{job="scraper",source="prometheus"} < bool 60)`, 1))
	s.wait("every family", func() error {
		metadata, err := m.api.Metadata(s.ctx, "", "")
		if err != nil {
			return err
		}
		for _, f := range families {
			if err := f.check(m, metadata); err != nil {
				return err
			}
		}
		return nil
	})
	s.wait("the stranger to be refused", func() error {
		targets, err := m.api.Targets(s.ctx)
		if err != nil {
			return err
		}
		for _, target := range targets.Active {
			switch job := string(target.Labels["job"]); {
			case job == "stranger" && (target.Health != promv1.HealthBad || !strings.Contains(target.LastError, "403 Forbidden")):
				return fmt.Errorf("the stranger's scrape is %s: %s", target.Health, target.LastError)
			case job != "stranger" && target.Health != promv1.HealthGood:
				return fmt.Errorf("the scrape of %s is %s: %s", job, target.Health, target.LastError)
			}
		}
		return nil
	})

	traceID := first.Status.Rollout.TraceID
	s.approve(2)
	done := s.phase(v1alpha1.PhaseCompleted)
	s.checkFinished(done, 2)
	s.wait("the state at the end", m.showsStatus)
	s.wait("the rollout", m.is(`sum(canary_rollouts_total{job="scraper",outcome="Completed"})`, 1))
	s.wait("its batches", m.is(`sum(canary_batches_completed_total{job="scraper",result="Finished"})`, 2))
	var took float64
	for _, batch := range done.Status.Batches {
		took += batch.AvailableAt.Sub(batch.StartedAt.Time).Seconds()
	}
	s.wait("its duration", m.is(`sum(canary_rollout_duration_seconds_sum{job="scraper",outcome="Completed"})`, took))
	s.wait("its batches' duration", m.is(`sum(canary_batch_duration_seconds_sum{job="scraper",result="Finished"})`, took))
	s.wait("exemplars", m.exemplars(traceID, "canary_rollouts_total", "canary_batches_completed_total",
		"canary_rollout_duration_seconds_bucket", "canary_batch_duration_seconds_bucket"))

	// The same name again is another Canary.
	if err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Delete(s.ctx, "release", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wait("the Canary to go", func() error {
		if _, err := s.canary("release"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there (%v)", err)
		}
		return nil
	})
	s.wait("its series to go", func() error {
		status, body := m.get(op, m.scraper)
		if status != http.StatusOK || !strings.Contains(body, "canary_rollouts_total{") {
			return fmt.Errorf("status %d: %.200s", status, body)
		}
		if at := strings.Index(body, `canary="release"`); at >= 0 {
			return fmt.Errorf("/metrics has %.200s", body[at:])
		}
		return nil
	})
	s.wait("its series to go from Prometheus", m.has(`{job="scraper",canary!=""}`, map[string]float64{}))
	s.wait("its Deployments to go", s.gone("new"))
	s.create(firstBatchOf("new"))
	if again := m.awaitsApproval(); again.UID == first.UID || again.Status.Rollout.StartedAt.Before(done.Status.Rollout.FinishedAt) {
		t.Errorf("the new Canary goes on with the old one's rollout: %+v", again.Status.Rollout)
	}
	s.wait("the new Canary's state", m.showsStatus)
	s.wait("nothing to be counted again", m.is(`sum({__name__=~"canary_rollouts_total|canary_batches_completed_total",job="scraper"})`, 3))
}

// TestCompletionsCountOnce kills the operator between the batches of a rollout, once with
// another ready to take over and once without, and adds up what all of them counted.
func TestCompletionsCountOnce(t *testing.T) {
	s := apart(t)
	m := monitor(s)
	leads := func(op *operator) {
		t.Helper()
		s.wait("the operator to lead", m.is(fmt.Sprintf(`sum(leader_election_master_status{job="scraper",instance=%q})`, op.metrics), 1))
		s.wait("it to publish Canaries", m.is(fmt.Sprintf(`count(canary_phase{job="scraper",instance=%q})`, op.metrics), 1))
		s.wait("the state", m.showsStatus)
	}
	// What a killed operator counted is no longer current; the hour holds the whole test.
	counted := func(rollouts, batches float64) {
		t.Helper()
		total := func(series string) string { return `sum(max_over_time(` + series + `[1h]))` }
		s.wait("rollouts", m.is(total(`canary_rollouts_total{job="scraper",outcome="Completed"}`), rollouts))
		s.wait("durations of rollouts", m.is(total(`canary_rollout_duration_seconds_count{job="scraper",outcome="Completed"}`), rollouts))
		s.wait("batches", m.is(total(`canary_batches_completed_total{job="scraper",result="Finished"}`), batches))
		s.wait("durations of batches", m.is(total(`canary_batch_duration_seconds_count{job="scraper",result="Finished"}`), batches))
		s.wait("nothing else", m.is(total(`{__name__=~"canary_rollouts_total|canary_batches_completed_total",job="scraper",outcome!="Completed",result!="Finished"}`), 0))
	}
	s.deploy(v("old", 4))
	first := m.operate()
	s.create(firstBatchOf("new"))
	m.awaitsApproval()
	leads(first)
	second := m.operate()
	s.wait("the second to stand by", m.is(fmt.Sprintf(`sum(leader_election_master_status{job="scraper",instance=%q})`, second.metrics), 0))
	s.wait("one operator to publish the Canary", m.is(`count(canary_phase{job="scraper"})`, 1))

	first.signal(syscall.SIGKILL)
	leads(second)
	counted(0, 0)
	s.approve(2)
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the state", m.showsStatus)
	counted(1, 2)

	// A finished rollout is not counted by who finds it finished.
	second.signal(syscall.SIGKILL)
	third := m.operate()
	leads(third)
	s.wait("a sync", m.is(fmt.Sprintf(`sum(canary_reconcile_total{instance=%q,job="scraper",result="success"} > bool 0)`, third.metrics), 1))
	counted(1, 2)

	// The next release, with a restart between its batches.
	s.edit(func(c *v1alpha1.Canary) {
		c.Spec.Info.NewDeploymentYaml, c.Spec.Info.OldDeploymentYaml = v("third", 4).String(), v("new", 4).String()
		c.Spec.Info.CurrentBatch = new(intstr.FromInt32(1))
	})
	m.awaitsApproval()
	s.wait("the state", m.showsStatus)
	third.signal(syscall.SIGKILL)
	fourth := m.operate()
	leads(fourth)
	counted(1, 2)
	s.approve(2)
	s.phase(v1alpha1.PhaseCompleted)
	s.wait("the state", m.showsStatus)
	counted(2, 4)
}
