//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/generated/informers/externalversions"
	"github.com/canarycontroller/canary-controller/deploy/servers"
	"github.com/canarycontroller/canary-controller/exporter"
	"github.com/canarycontroller/canary-controller/exporter/canary"
)

const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"

// The jobs scrape one server, each in another format.
var protocols = map[string]string{
	"openmetrics": "OpenMetricsText1.0.0",
	"protobuf":    "PrometheusProto",
	"text":        "PrometheusText0.0.4",
}

func TestPrometheusScrapesOverTLS(t *testing.T) {
	c := startCluster(t)
	tokens := map[string]string{"scraper": c.token(t, "scraper"), "stranger": c.token(t, "stranger")}
	c.allow(t, "scraper")
	dir := files(t, tokens)

	instruments, address := serve(t, c, dir)
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:"
	for job, protocol := range protocols {
		config += scrapeConfig(job, address, dir, "scraper", protocol)
	}
	config += scrapeConfig("denied", address, dir, "stranger", "PrometheusText0.0.4")
	p, err := servers.StartPrometheus(t.Context(), servers.PrometheusOptions{
		Options: servers.Options{Progress: os.Stderr}, Config: config, Flags: []string{"--enable-feature=exemplar-storage"},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	prom := api{p.URL}

	api := c.canaries.CanarycontrollerV1alpha1().Canaries("default")
	object, err := api.Create(t.Context(), &v1alpha1.Canary{
		ObjectMeta: metav1.ObjectMeta{Name: "go-hello"},
		Spec:       v1alpha1.CanarySpec{Info: v1alpha1.CanaryInfo{Type: v1alpha1.CanaryDeploy, NewDeploymentYaml: "new", OldDeploymentYaml: "old"}},
	}, metav1.CreateOptions{})
	must(t, err)

	t.Run("a scraper without the right gets 403", func(t *testing.T) {
		eventually(t, "the denied scrape", func() error { return prom.lastError(t.Context(), "denied", "403") })
	})
	for _, status := range course() {
		before := object.Status.DeepCopy()
		object.Status = status
		object, err = api.UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
		must(t, err)
		instruments.ObserveCompletions(canary.Completions(before, &object.Status))
		instruments.ObserveReconcile(canary.ReconcileSuccess, 20*time.Millisecond, traceID)
		t.Run("values equal the status "+string(status.Phase), func(t *testing.T) {
			for job := range protocols {
				eventually(t, job, func() error { return prom.compare(t.Context(), job, &object.Status) })
			}
		})
	}
	t.Run("completions are counted once", func(t *testing.T) {
		for job := range protocols {
			for query, want := range map[string]float64{
				`canary_batches_completed_total{result="Finished",job=%q}`:                           2,
				`sum(canary_batches_completed_total{job=%q})`:                                        2,
				`canary_rollouts_total{outcome="Completed",job=%q}`:                                  1,
				`sum(canary_rollouts_total{job=%q})`:                                                 1,
				`canary_batch_duration_seconds_count{result="Finished",job=%q}`:                      2,
				`canary_rollout_duration_seconds_sum{outcome="Completed",job=%q}`:                    50,
				`canary_rollout_duration_seconds_bucket{outcome="Completed",le=~"60(\\.0)?",job=%q}`: 1,
				`canary_gate_decisions_total{check_kind="alert",verdict="NoData",job=%q}`:            0,
				`canary_reconcile_total{result="success",job=%q}`:                                    4,
				`workqueue_depth{name="canaries",controller="canary",job=%q}`:                        0,
			} {
				q := fmt.Sprintf(query, job)
				eventually(t, q, func() error { return prom.equals(t.Context(), q, want) })
			}
		}
	})
	t.Run("native histograms arrive", func(t *testing.T) {
		q := `histogram_count(canary_rollout_duration_seconds{outcome="Completed",job="protobuf"})`
		eventually(t, q, func() error { return prom.equals(t.Context(), q, 1) })
	})
	t.Run("types", func(t *testing.T) {
		for family, want := range map[string]string{
			"canary_info": "gauge", "canary_target_info": "gauge", "canary_phase": "gauge", "canary_batch_current": "gauge",
			"canary_batches": "gauge", "canary_batch_transition_timestamp_seconds": "gauge", "canary_replicas": "gauge",
			"canary_batches_completed_total": "counter", "canary_rollouts_total": "counter", "canary_gate_decisions_total": "counter",
			"canary_reconcile_total": "counter", "canary_batch_duration_seconds": "histogram", "canary_rollout_duration_seconds": "histogram",
			"canary_gate_query_duration_seconds": "histogram", "canary_reconcile_duration_seconds": "histogram",
			"workqueue_depth": "gauge", "workqueue_adds_total": "counter", "workqueue_retries_total": "counter",
			"workqueue_queue_duration_seconds": "histogram", "workqueue_work_duration_seconds": "histogram",
			"workqueue_unfinished_work_seconds": "gauge", "workqueue_longest_running_processor_seconds": "gauge",
			"rest_client_requests_total": "counter", "rest_client_request_duration_seconds": "histogram",
			"go_goroutines": "gauge", "process_cpu_seconds_total": "counter",
		} {
			if err := prom.typed(t.Context(), family, want); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("exemplars arrive", func(t *testing.T) {
		for _, query := range []string{
			`canary_rollout_duration_seconds_bucket{job="openmetrics"}`, `canary_rollouts_total{job="openmetrics"}`,
			`canary_rollout_duration_seconds_bucket{job="protobuf"}`, `canary_reconcile_duration_seconds_bucket{job="openmetrics"}`,
		} {
			eventually(t, query, func() error { return prom.exemplar(t.Context(), query) })
		}
	})
	t.Run("a deleted Canary is gone", func(t *testing.T) {
		must(t, api.Delete(t.Context(), "go-hello", metav1.DeleteOptions{}))
		for job := range protocols {
			q := fmt.Sprintf(`count({__name__=~"canary_.*",canary="go-hello",job=%q}) or on() vector(0)`, job)
			eventually(t, q, func() error { return prom.equals(t.Context(), q, 0) })
		}
	})
}

// serve runs an exporter as an operator has it.
func serve(t *testing.T, c *cluster, dir string) (*canary.Instruments, string) {
	t.Helper()
	reg := exporter.NewRegistry()
	must(t, exporter.Install(reg, "canary"))
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: "canaries"})
	t.Cleanup(queue.ShutDown)
	instruments, err := canary.NewInstruments(reg)
	must(t, err)
	state, err := canary.NewState(canary.StateConfig{Registerer: reg})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	factory := externalversions.NewSharedInformerFactory(c.canaries, 0)
	registration, err := state.Watch(factory.Canarycontroller().V1alpha1().Canaries().Informer())
	must(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	handler, err := exporter.NewHandler(exporter.HandlerConfig{Registry: reg, Rendered: []exporter.Rendered{state}})
	must(t, err)
	auth, err := exporter.NewAuth(exporter.AuthConfig{
		TokenReviews: c.kube.AuthenticationV1().TokenReviews(), SubjectAccessReviews: c.kube.AuthorizationV1().SubjectAccessReviews(),
	})
	must(t, err)
	server, err := exporter.NewServer(exporter.ServerConfig{
		Address: "127.0.0.1:0", Handler: handler, Auth: auth, Registerer: reg,
		TLS: &exporter.TLSConfig{CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key"},
	})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return instruments, server.Addr().String()
}

// course is a rollout of two batches, of which the first waits for a person: 20 s and 30 s.
func course() []v1alpha1.CanaryStatus {
	start := time.Now().Add(-2 * time.Hour).Truncate(time.Second)
	at := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)))
	}
	first := v1alpha1.BatchStatus{Target: 1, StartedAt: *at(0)}
	status := func(phase v1alpha1.Phase, current int32, newReplicas, oldReplicas int32, outcome v1alpha1.Outcome, batches ...v1alpha1.BatchStatus) v1alpha1.CanaryStatus {
		s := v1alpha1.CanaryStatus{
			Phase: phase, CurrentBatch: current, Batch: fmt.Sprintf("%d/2", current), Batches: batches,
			New:     &v1alpha1.WorkloadStatus{Name: "go-hello-v2", Replicas: newReplicas, AvailableReplicas: newReplicas},
			Old:     &v1alpha1.WorkloadStatus{Name: "go-hello-v1", Replicas: oldReplicas, AvailableReplicas: oldReplicas},
			Rollout: &v1alpha1.RolloutStatus{ID: "v1-e2e", StartedAt: *at(0), TraceID: traceID, Outcome: outcome},
		}
		if outcome != "" {
			s.Rollout.FinishedAt = at(3655)
		}
		return s
	}
	available, finished, second := first, first, v1alpha1.BatchStatus{Target: 4, StartedAt: *at(3620)}
	available.AvailableAt, finished.AvailableAt, finished.FinishedAt = at(20), at(20), at(3620)
	secondFinished := second
	secondFinished.AvailableAt, secondFinished.FinishedAt = at(3650), at(3650)
	return []v1alpha1.CanaryStatus{
		status(v1alpha1.PhaseProgressing, 1, 0, 4, "", first),
		status(v1alpha1.PhaseAwaitingApproval, 1, 1, 3, "", available),
		status(v1alpha1.PhaseProgressing, 2, 2, 2, "", finished, second),
		status(v1alpha1.PhaseCompleted, 2, 4, 0, v1alpha1.OutcomeCompleted, finished, secondFinished),
	}
}

// api is Prometheus's API.
type api struct{ url string }

func (p api) get(ctx context.Context, path string, params url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+params.Encode(), nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// series is one sample of an instant vector.
type series struct {
	Metric map[string]string
	Value  [2]any
}

func (p api) query(ctx context.Context, query string) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "/api/v1/query", url.Values{"query": {query}}, &data)
	return data.Result, err
}

// equals expects one series of that value.
func (p api) equals(ctx context.Context, query string, want float64) error {
	result, err := p.query(ctx, query)
	if err != nil {
		return err
	}
	if len(result) != 1 {
		return fmt.Errorf("%d series, want 1: %v", len(result), result)
	}
	got, err := strconv.ParseFloat(result[0].Value[1].(string), 64)
	if err != nil || got != want {
		return fmt.Errorf("%v, want %v", result[0].Value[1], want)
	}
	return nil
}

// compare expects the series of the Canary to be those of its status, and no others.
func (p api) compare(ctx context.Context, job string, s *v1alpha1.CanaryStatus) error {
	result, err := p.query(ctx, fmt.Sprintf(`{__name__=~"canary_.*",namespace="default",canary="go-hello",job=%q}`, job))
	if err != nil {
		return err
	}
	last := s.Batches[len(s.Batches)-1].StartedAt.Unix()
	for _, at := range []*metav1.Time{s.Batches[0].AvailableAt, s.Batches[len(s.Batches)-1].FinishedAt, s.Rollout.FinishedAt} {
		if at != nil {
			last = max(last, at.Unix())
		}
	}
	want := map[string]string{
		"canary_info type=CanaryDeploy pause_type=First":        "1",
		"canary_target_info role=canary workload=" + s.New.Name: "1",
		"canary_target_info role=stable workload=" + s.Old.Name: "1",
		"canary_phase phase=" + string(s.Phase):                 "1",
		"canary_batch_current":                                  fmt.Sprint(s.CurrentBatch),
		"canary_batches":                                        "2",
		"canary_batch_transition_timestamp_seconds":             fmt.Sprint(last),
		"canary_replicas role=canary state=desired":             fmt.Sprint(s.New.Replicas),
		"canary_replicas role=canary state=available":           fmt.Sprint(s.New.AvailableReplicas),
		"canary_replicas role=stable state=desired":             fmt.Sprint(s.Old.Replicas),
		"canary_replicas role=stable state=available":           fmt.Sprint(s.Old.AvailableReplicas),
	}
	if len(result) != len(want) {
		return fmt.Errorf("%d series, want %d: %v", len(result), len(want), result)
	}
	for _, r := range result {
		key := r.Metric["__name__"]
		for _, l := range []string{"type", "pause_type", "role", "workload", "state", "phase"} {
			if v, ok := r.Metric[l]; ok {
				key += " " + l + "=" + v
			}
		}
		if got := fmt.Sprint(r.Value[1]); got != want[key] {
			return fmt.Errorf("%s is %s, want %q", key, got, want[key])
		}
	}
	return nil
}

// lastError expects a job's scrape to have failed in that way.
func (p api) lastError(ctx context.Context, job, want string) error {
	var data struct {
		ActiveTargets []struct {
			Labels            map[string]string
			LastError, Health string
		}
	}
	if err := p.get(ctx, "/api/v1/targets", url.Values{"state": {"active"}}, &data); err != nil {
		return err
	}
	for _, target := range data.ActiveTargets {
		if target.Labels["job"] == job && target.Health == "down" && strings.Contains(target.LastError, want) {
			return nil
		}
	}
	return fmt.Errorf("targets: %+v", data.ActiveTargets)
}

func (p api) typed(ctx context.Context, family, want string) error {
	var data map[string][]struct{ Type string }
	if err := p.get(ctx, "/api/v1/metadata", url.Values{"metric": {family}}, &data); err != nil {
		return err
	}
	all := data[family]
	if len(all) == 0 {
		return fmt.Errorf("%s: Prometheus does not know it", family)
	}
	for _, m := range all {
		if m.Type != want {
			return fmt.Errorf("%s: type %s, want %s", family, m.Type, want)
		}
	}
	return nil
}

func (p api) exemplar(ctx context.Context, query string) error {
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	params := url.Values{"query": {query}, "start": {fmt.Sprint(time.Now().Add(-time.Hour).Unix())}, "end": {fmt.Sprint(time.Now().Add(time.Hour).Unix())}}
	if err := p.get(ctx, "/api/v1/query_exemplars", params, &data); err != nil {
		return err
	}
	for _, s := range data {
		for _, e := range s.Exemplars {
			if e.Labels["trace_id"] == traceID {
				return nil
			}
		}
	}
	return fmt.Errorf("no exemplar with the trace id among %d series", len(data))
}
