package canary

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/exporter"
)

func newTestState(t testing.TB) *State {
	t.Helper()
	s, err := NewState(StateConfig{Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, s *State, encoding exporter.Encoding) string {
	t.Helper()
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	if err := s.WriteFamilies(w, encoding, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// samples are the lines that are not comments.
func samples(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	return out
}

// fullCanary has every series that a Canary can have.
func fullCanary(i int) *v1alpha1.Canary {
	return &v1alpha1.Canary{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tech-prod", Name: fmt.Sprintf("go-hello-%05d", i), UID: "u"},
		Spec: v1alpha1.CanarySpec{Info: v1alpha1.CanaryInfo{
			Type: v1alpha1.CanaryDeploy, PauseType: v1alpha1.PauseEach,
		}},
		Status: v1alpha1.CanaryStatus{
			Phase:        v1alpha1.PhaseAwaitingApproval,
			CurrentBatch: 2,
			Batch:        "2/4",
			New:          &v1alpha1.WorkloadStatus{Name: "go-hello-v2", Replicas: 3, AvailableReplicas: 2},
			Old:          &v1alpha1.WorkloadStatus{Name: "go-hello-v1", Replicas: 7, AvailableReplicas: 6},
			Batches: []v1alpha1.BatchStatus{
				{StartedAt: at(0), AvailableAt: at1(10), FinishedAt: at1(100)},
				{StartedAt: at(100), AvailableAt: at1(130)},
			},
			Rollout: &v1alpha1.RolloutStatus{ID: "v1-a", StartedAt: at(0)},
		},
	}
}

func TestStateOfACanary(t *testing.T) {
	s := newTestState(t)
	if err := s.Put(fullCanary(1)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`canary_info{namespace="tech-prod",canary="go-hello-00001",type="CanaryDeploy",pause_type="Each"} 1`,
		`canary_target_info{namespace="tech-prod",canary="go-hello-00001",role="canary",workload="go-hello-v2"} 1`,
		`canary_target_info{namespace="tech-prod",canary="go-hello-00001",role="stable",workload="go-hello-v1"} 1`,
		`canary_phase{namespace="tech-prod",canary="go-hello-00001",phase="AwaitingApproval"} 1`,
		`canary_batch_current{namespace="tech-prod",canary="go-hello-00001"} 2`,
		`canary_batches{namespace="tech-prod",canary="go-hello-00001"} 4`,
		`canary_batch_transition_timestamp_seconds{namespace="tech-prod",canary="go-hello-00001"} 1764489730`,
		`canary_replicas{namespace="tech-prod",canary="go-hello-00001",role="canary",state="desired"} 3`,
		`canary_replicas{namespace="tech-prod",canary="go-hello-00001",role="canary",state="available"} 2`,
		`canary_replicas{namespace="tech-prod",canary="go-hello-00001",role="stable",state="desired"} 7`,
		`canary_replicas{namespace="tech-prod",canary="go-hello-00001",role="stable",state="available"} 6`,
	}
	text := write(t, s, exporter.EncodingText)
	if diff := cmp.Diff(want, samples(text)); diff != "" {
		t.Error(diff)
	}
	if len(want) > maxSeries {
		t.Errorf("%d series of one Canary, of at most %d", len(want), maxSeries)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestStateOfOtherCanaries(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Canary)
		want   []string
		absent []string
	}{
		"not yet seen by the controller": {
			func(c *v1alpha1.Canary) { c.Status = v1alpha1.CanaryStatus{}; c.Spec.Info.PauseType = "" },
			[]string{
				`canary_info{namespace="tech-prod",canary="go-hello-00001",type="CanaryDeploy",pause_type="First"} 1`,
				`canary_phase{namespace="tech-prod",canary="go-hello-00001",phase="Pending"} 1`,
				`canary_batches{namespace="tech-prod",canary="go-hello-00001"} 0`,
			},
			[]string{"canary_batch_transition_timestamp_seconds", "canary_target_info", "canary_replicas"},
		},
		"one Deployment for both versions": {
			func(c *v1alpha1.Canary) { c.Status.Old.Name = c.Status.New.Name },
			[]string{`canary_target_info{namespace="tech-prod",canary="go-hello-00001",role="canary",workload="go-hello-v2"} 1`},
			[]string{`role="stable"`},
		},
		"rolled back": {
			func(c *v1alpha1.Canary) {
				c.Status.Phase = v1alpha1.PhaseRolledBack
				c.Status.Rollout.RollbackStartedAt, c.Status.Rollout.FinishedAt = at1(140), at1(150)
			},
			[]string{
				`canary_phase{namespace="tech-prod",canary="go-hello-00001",phase="RolledBack"} 1`,
				`canary_batch_transition_timestamp_seconds{namespace="tech-prod",canary="go-hello-00001"} 1764489750`,
			},
			[]string{`phase="AwaitingApproval"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			c := fullCanary(1)
			if err := s.Put(c); err != nil {
				t.Fatal(err)
			}
			tc.change(c)
			if err := s.Put(c); err != nil {
				t.Fatal(err)
			}
			text := write(t, s, exporter.EncodingText)
			for _, line := range tc.want {
				if !strings.Contains(text, line+"\n") {
					t.Errorf("missing %s in\n%s", line, text)
				}
			}
			for _, part := range tc.absent {
				if strings.Contains(strings.Join(samples(text), "\n"), part) {
					t.Errorf("%s in\n%s", part, text)
				}
			}
		})
	}
}

func TestDeletedCanaryLeavesNothing(t *testing.T) {
	s := newTestState(t)
	c := fullCanary(1)
	if err := s.Put(c); err != nil {
		t.Fatal(err)
	}
	s.Delete(c)
	if text := write(t, s, exporter.EncodingText); text != "" {
		t.Errorf("left:\n%s", text)
	}
}

func TestBatches(t *testing.T) {
	for batch, want := range map[string]int{"": 0, "1/1": 1, "2/4": 4, "12/1000": 1000, "x": 0, "1/": 0} {
		if got := batches(batch); got != want {
			t.Errorf("batches(%q) = %d, want %d", batch, got, want)
		}
	}
}
