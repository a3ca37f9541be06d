//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// TestGateSurvivesKills kills the operator with SIGKILL at every stage of an analysis. The
// streak and the window go on where they were, nothing is judged more often than its
// interval says, nothing is told twice, and the trace has every span once.
func TestGateSurvivesKills(t *testing.T) {
	s := alone(t)
	_, prometheus := withTraffic(t)
	jaeger, err := servers.StartJaeger(s.ctx, servers.JaegerOptions{Options: servers.Options{Progress: os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := jaeger.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.deploy(v("old", 4))
	c := gatedCanary(prometheus)
	const traceID, parent, streak = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", 5
	c.Annotations = map[string]string{v1alpha1.AnnotationTraceparent: "00-" + traceID + "-" + parent + "-01"}
	c.Spec.Gate.Checks = []v1alpha1.GateCheck{{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{
		Query: "vector(0.25)", Max: "0.5", Passes: streak, Failures: streak,
	}}}
	s.create(c)

	start := func() *operator {
		return s.operate("--namespace", s.name, "--leader-elect=false", "--gate-allow", "127.0.0.0/8", "--otlp-endpoint", jaeger.OTLPHTTP)
	}
	passes := func(batch, n int32) func(*v1alpha1.Canary) bool {
		return func(c *v1alpha1.Canary) bool {
			g := c.Status.Gate
			return g != nil && g.Batch == batch && len(g.Checks) > 0 && g.Checks[0].Passes >= n
		}
	}
	available := func(batch int) func(*v1alpha1.Canary) bool {
		return func(c *v1alpha1.Canary) bool {
			return len(c.Status.Batches) >= batch && c.Status.Batches[batch-1].AvailableAt != nil
		}
	}
	var before *v1alpha1.GateStatus
	for _, stage := range []struct {
		name string
		is   func(*v1alpha1.Canary) bool
	}{
		{"batch 1 is available", available(1)},
		{"first evaluation", passes(1, 1)},
		{"in the streak", passes(1, 3)},
		{"batch 2 begins", func(c *v1alpha1.Canary) bool { return c.Status.CurrentBatch == 2 }},
		{"batch 2 is available", available(2)},
		{"first evaluation of batch 2", passes(2, 1)},
		{"in the streak of batch 2", passes(2, 4)},
		{"completed", func(c *v1alpha1.Canary) bool { return c.Status.Phase == v1alpha1.PhaseCompleted }},
	} {
		op := start()
		s.wait(stage.name, func() error {
			c, err := s.canary("release")
			if err == nil && !stage.is(c) {
				err = fmt.Errorf("phase %s: %s", c.Status.Phase, c.Status.Message)
			}
			return err
		})
		op.signal(syscall.SIGKILL)
		now, err := s.canary("release")
		if err != nil {
			t.Fatal(err)
		}
		g := now.Status.Gate
		if g != nil && before != nil && g.Batch == before.Batch {
			if !g.WindowStart.Equal(&before.WindowStart) || g.Evaluations < before.Evaluations ||
				len(g.Checks) > 0 && len(before.Checks) > 0 && g.Checks[0].Passes < before.Checks[0].Passes {
				t.Errorf("at %q the gate went from %+v to %+v", stage.name, before, g)
			}
		}
		if g != nil && g.EvaluatedAt != nil {
			if most := int32(g.EvaluatedAt.Sub(g.WindowStart.Time)/time.Second) + 1; g.Evaluations > most {
				t.Errorf("at %q there were %d evaluations in %s at an interval of 1s", stage.name, g.Evaluations, g.EvaluatedAt.Sub(g.WindowStart.Time))
			}
		}
		before = g
	}
	start()
	done := s.phase(v1alpha1.PhaseCompleted)
	for batch := 1; batch <= 2; batch++ {
		promoted := slices.DeleteFunc(decisions(done), func(d string) bool { return d != fmt.Sprintf("%d Pass Promote", batch) })
		if len(promoted) != 1 {
			t.Errorf("batch %d was promoted %d times: %v", batch, len(promoted), decisions(done))
		}
		told := slices.DeleteFunc(s.events(), func(e string) bool { return !strings.HasPrefix(e, fmt.Sprintf("GatePassed: batch %d:", batch)) })
		if len(told) > 1 {
			t.Errorf("told %d times: %v", len(told), told)
		}
	}
	if got := done.Status.Rollout; got.TraceID != traceID || got.ParentSpanID != parent {
		t.Errorf("trace %s below %s, want those of the CI job", got.TraceID, got.ParentSpanID)
	}
	s.checkTrace(jaeger.QueryURL, traceID, parent, map[string]int{
		"rollout": 1, "batch 1": 1, "batch 2": 1, "apply": 2, "wait available": 2, "gate": 2,
	})
}

// checkTrace reads the rollout's trace back and holds it to its spans by name, each below
// one of the others or, the first, below the CI job's.
func (s *space) checkTrace(jaeger, traceID, parent string, want map[string]int) {
	s.Helper()
	type span struct {
		SpanID, OperationName string
		References            []struct{ RefType, SpanID string }
	}
	s.wait("the trace", func() error {
		response, err := http.Get(jaeger + "/api/traces/" + traceID)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var answer struct{ Data []struct{ Spans []span } }
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return err
		}
		if len(answer.Data) != 1 {
			return fmt.Errorf("%d traces", len(answer.Data))
		}
		got, ids := map[string]int{}, map[string]int{parent: 1}
		for _, sp := range answer.Data[0].Spans {
			got[sp.OperationName]++
			ids[sp.SpanID]++
		}
		for _, sp := range answer.Data[0].Spans {
			if len(sp.References) == 0 || ids[sp.References[0].SpanID] == 0 {
				return fmt.Errorf("%s has no parent in the trace: %+v", sp.OperationName, sp.References)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("spans are %v, want %v: %+v", got, want, answer.Data[0].Spans)
		}
		return nil
	})
}

// TestManyGatedCanaries: all are decided, Prometheus is asked no more often than allowed,
// and nothing waits long in a queue. Make scale has a thousand of them.
func TestManyGatedCanaries(t *testing.T) {
	needsLab(t, "it needs many pods that cost nothing")
	count := 200
	if text := os.Getenv("E2E_GATED"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil || count < 1 {
			t.Fatalf("E2E_GATED is %q, it must be a number of Canaries", text)
		}
	}
	s := alone(t)
	requests, prometheus := withTraffic(t)
	const perSecond = 100
	// The default for a thousand of them.
	interval := max(10*time.Second, time.Duration(count)*30*time.Millisecond)
	op := s.operate("--namespace", s.name, "--leader-elect=false", "--gate-allow", "127.0.0.0/8", "--workers", "32",
		"--kube-api-qps", "400", "--kube-api-burst", "800", "--gate-queries-per-second", fmt.Sprint(perSecond))
	s.wait("the operator", op.ready)
	for n := range count {
		c := gatedCanary(prometheus)
		c.Name = fmt.Sprintf("release-%d", n)
		c.Spec.Info.NewDeploymentYaml, c.Spec.Info.OldDeploymentYaml = v(fmt.Sprintf("new-%d", n), 1).String(), ""
		c.Spec.Info.TotalBatches = nil
		c.Spec.Gate.Interval = &metav1.Duration{Duration: interval}
		c.Spec.Gate.Checks = []v1alpha1.GateCheck{{Name: "p99", Threshold: &v1alpha1.ThresholdCheck{Query: openSeries, Max: "0.5", Passes: 1, Failures: 1}}}
		s.create(c)
	}
	// The pods of many Deployments take their time; it is not what is measured.
	s.reach(v1alpha1.PhaseAnalyzing, count, func() {})
	s.wait("the queues to be empty after that", func() error {
		for _, m := range scrape(t, op)["workqueue_depth"].GetMetric() {
			if depth := m.GetGauge().GetValue(); depth > 0 {
				return fmt.Errorf("%g items wait", depth)
			}
		}
		return nil
	})
	waited := waits(t, op)
	requests.open.Store(true)
	asked, at := queries(t, op), time.Now()
	s.reach(v1alpha1.PhaseCompleted, count, func() {
		now, then := queries(t, op), at
		at = time.Now()
		// What may be sent at once after a pause comes on top.
		if most := perSecond*at.Sub(then).Seconds() + 2*8; now-asked > most {
			t.Errorf("%.0f queries in %s, %d a second are allowed", now-asked, at.Sub(then), perSecond)
		}
		asked = now
	})
	for queue, total := range waits(t, op) {
		all, quick := total.all-waited[queue].all, total.quick-waited[queue].quick
		t.Logf("queue %s: %d of %d items waited at most 1 s", queue, quick, all)
		if all < uint64(count) || float64(quick) < 0.99*float64(all) {
			t.Errorf("queue %s: only %d of %d items waited at most 1 s", queue, quick, all)
		}
	}
}

// reach waits until count Canaries are in a phase, and calls each every second meanwhile.
func (s *space) reach(phase v1alpha1.Phase, count int, each func()) {
	s.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		list, err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).List(s.ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			s.Fatal(err)
		}
		there := len(slices.DeleteFunc(list.Items, func(c v1alpha1.Canary) bool { return c.Status.Phase != phase }))
		if there == count {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d of %d Canaries are %s", there, count, phase)
		}
		each()
	}
}

// wait counts the items of a queue, and those that waited at most a second.
type wait struct{ all, quick uint64 }

func waits(t *testing.T, op *operator) map[string]wait {
	t.Helper()
	result := map[string]wait{}
	for _, m := range scrape(t, op)["workqueue_queue_duration_seconds"].GetMetric() {
		queue := m.GetLabel()[slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "name" })].GetValue()
		for _, bucket := range m.GetHistogram().GetBucket() {
			if bound := bucket.GetUpperBound(); 0.99 < bound && bound < 1.01 {
				result[queue] = wait{all: m.GetHistogram().GetSampleCount(), quick: bucket.GetCumulativeCount()}
			}
		}
	}
	return result
}

// scrape reads an operator's /metrics.
func scrape(t *testing.T, op *operator) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + op.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// queries counts what the operator's gate has asked Prometheus.
func queries(t *testing.T, op *operator) float64 {
	t.Helper()
	sum := 0.0
	for _, m := range scrape(t, op)["canary_gate_query_duration_seconds"].GetMetric() {
		sum += float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}
