//go:build e2e

package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// jaegerSpan as the query API writes it.
type jaegerSpan struct {
	SpanID        string `json:"spanID"`
	OperationName string `json:"operationName"`
	ProcessID     string `json:"processID"`
	StartTime     int64  `json:"startTime"`
	Duration      int64  `json:"duration"`
	References    []struct {
		RefType string `json:"refType"`
		TraceID string `json:"traceID"`
		SpanID  string `json:"spanID"`
	} `json:"references"`
	Tags []jaegerTag `json:"tags"`
	Logs []struct {
		Fields []jaegerTag `json:"fields"`
	} `json:"logs"`
	Warnings []string `json:"warnings"`
}

type jaegerTag struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func tag(tags []jaegerTag, key string) string {
	for _, t := range tags {
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

type jaegerTrace struct {
	Spans     []jaegerSpan `json:"spans"`
	Processes map[string]struct {
		ServiceName string `json:"serviceName"`
	} `json:"processes"`
}

func startJaeger(t *testing.T) *servers.JaegerServer {
	t.Helper()
	// Jaeger traces its own query service and, at its end, waits for a collector to take that.
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	j, err := servers.StartJaeger(t.Context(), servers.JaegerOptions{Dir: t.TempDir(), Options: servers.Options{Progress: os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Stop(); err != nil {
			t.Errorf("stopping jaeger: %v", err)
		}
	})
	return j
}

// askTraces reads the traces that a query finds; a 404 is none.
func askTraces(t *testing.T, url string) []jaegerTrace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil
	}
	var answer struct{ Data []jaegerTrace }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return answer.Data
}

// tree renders a trace: each span with the names above it, sorted; the span of a job in
// another service shows by its id.
func tree(tr jaegerTrace) []string {
	names, parents := map[string]string{}, map[string]string{}
	for _, s := range tr.Spans {
		names[s.SpanID] = s.OperationName
		for _, ref := range s.References {
			if ref.RefType == "CHILD_OF" {
				parents[s.SpanID] = ref.SpanID
			}
		}
	}
	var lines []string
	for _, s := range tr.Spans {
		text := s.OperationName
		for above := parents[s.SpanID]; above != ""; above = parents[above] {
			name := names[above]
			if name == "" {
				name = above
			}
			text = name + " > " + text
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines
}

// sends runs a recorder of its own, as a process would, and ends it when do returns.
func sends(t *testing.T, endpoint string, do func(r *Recorder)) {
	t.Helper()
	r, err := New(Config{Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	r.now = func() time.Time { return t0.Add(time.Minute) }
	stop := start(t, r)
	do(r)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func branch(prefix string, batch int, leaves ...string) []string {
	top := fmt.Sprintf("%srollout > batch %d", prefix, batch)
	lines := []string{top}
	for _, leaf := range leaves {
		lines = append(lines, top+" > "+leaf)
	}
	return lines
}

// TestRealJaegerOneTracePerRollout takes rollouts through their courses and kills the
// controller at every point of each, before and after it has sent what it knew. Whatever
// it had sent, the successor, which also speaks another protocol, makes it one trace with
// every span once.
func TestRealJaegerOneTracePerRollout(t *testing.T) {
	j := startJaeger(t)
	grpc, web := "http://"+j.OTLPGRPC, j.OTLPHTTP
	check := v1alpha1.DecisionCheck{Name: "error-rate", Verdict: harm, Value: "10%", Limit: "1%", New: &v1alpha1.RequestCounts{Bad: 9, Total: 90}}
	batch1 := []func(*v1alpha1.Canary){
		applied(2), available(10), decided(11, "Hold", noData, "no requests"), decided(40, "Promote", pass, "0 of 900 are bad"), nextBatch(41),
	}
	all := []string{SpanApply, SpanGate, SpanWait}
	for _, test := range []struct {
		name, traceparent string
		steps             []func(*v1alpha1.Canary)
		want              []string
	}{
		{"completed", "", append(slices.Clone(batch1), applied(43), available(50), decided(80, "Promote", pass, "0 of 90 are bad"), finished(80), over(90, v1alpha1.OutcomeCompleted)),
			slices.Concat([]string{"rollout"}, branch("", 1, all...), branch("", 2, all...))},
		{"gate failed", "", append(slices.Clone(batch1), applied(43), available(50), decided(70, "Rollback", harm, "9 of 90 are bad", check),
			goingBack(70, "the gate failed batch 2"), over(100, v1alpha1.OutcomeRolledBack)),
			slices.Concat([]string{"rollout"}, branch("", 1, all...), branch("", 2, all...), []string{"rollout > rollback"})},
		{"in one second", "", []func(*v1alpha1.Canary){applied(0), available(0), decided(0, "Promote", pass, "fine"), nextBatch(0), applied(0),
			goingBack(0, "requested"), over(0, v1alpha1.OutcomeRolledBack)},
			slices.Concat([]string{"rollout"}, branch("", 1, all...), branch("", 2, SpanApply, SpanWait), []string{"rollout > rollback"})},
		{"from CI", ciParent, append(slices.Clone(batch1), applied(43), goingBack(50, "requested"), over(70, v1alpha1.OutcomeRolledBack)),
			slices.Concat([]string{ciSpan + " > rollout"}, branch(ciSpan+" > ", 1, all...), branch(ciSpan+" > ", 2, SpanApply, SpanWait), []string{ciSpan + " > rollout > rollback"})},
	} {
		t.Run(test.name, func(t *testing.T) {
			traces := map[string]string{}
			for kill := range len(test.steps) + 1 {
				for _, sent := range []bool{false, true} {
					// A Canary and a trace of its own for each point of each course.
					states := course(test.steps...)
					uid := types.UID(fmt.Sprint(test.name, kill, sent))
					rollout := states[0].Status.Rollout
					traceparent := test.traceparent
					if traceparent != "" {
						own, _, _ := IDs(uid, rollout, "")
						traceparent = strings.Replace(ciParent, ciTrace, own, 1)
					}
					trace, parent, err := IDs(uid, rollout, traceparent)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range states {
						s.UID, s.Status.Rollout.TraceID, s.Status.Rollout.ParentSpanID = uid, trace, parent
					}
					t.Setenv(envTracesProtocol, "grpc")
					sends(t, grpc, func(r *Recorder) {
						for n := range kill {
							if n == kill-1 && !sent {
								return
							}
							r.StatusWritten(states[n], states[n+1])
						}
					})
					t.Setenv(envTracesProtocol, "http/protobuf")
					sends(t, web, func(r *Recorder) {
						// What it finds is what the API server has kept.
						r.Resume(throughJSON(t, states[kill]))
						for n := kill; n < len(test.steps); n++ {
							r.StatusWritten(throughJSON(t, states[n]), states[n+1])
						}
					})
					traces[trace] = fmt.Sprintf("killed at step %d, sent %t", kill, sent)
				}
			}
			for trace, when := range traces {
				var got jaegerTrace
				for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
					if found := askTraces(t, j.QueryURL+"/api/traces/"+trace); len(found) == 1 {
						got = found[0]
					}
					if slices.Equal(tree(got), sorted(test.want)) || time.Now().After(deadline) {
						break
					}
				}
				if diff := cmp.Diff(sorted(test.want), tree(got)); diff != "" {
					t.Fatalf("%s: want, got:\n%s", when, diff)
				}
			}
			// Again when everything has long arrived: nothing came late and nothing is double.
			for trace, when := range traces {
				found := askTraces(t, j.QueryURL+"/api/traces/"+trace)
				if len(found) != 1 {
					t.Fatalf("%s: %d traces", when, len(found))
				}
				if diff := cmp.Diff(sorted(test.want), tree(found[0])); diff != "" {
					t.Errorf("%s: want, got:\n%s", when, diff)
				}
				checkJaegerTrace(t, when, found[0], test.name == "gate failed")
			}
		})
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func checkJaegerTrace(t *testing.T, when string, tr jaegerTrace, failed bool) {
	t.Helper()
	for _, s := range tr.Spans {
		if name := tr.Processes[s.ProcessID].ServiceName; name != serviceName {
			t.Errorf("%s: %s is of service %s", when, s.OperationName, name)
		}
		// The job's span is not there, which Jaeger remarks.
		for _, w := range s.Warnings {
			if !strings.Contains(w, ciSpan) {
				t.Errorf("%s: warning on %s: %s", when, s.OperationName, w)
			}
		}
		if tag(s.Tags, AttrNamespace) != "prod" || tag(s.Tags, AttrCanary) != "reviews" {
			t.Errorf("%s: %s has tags %v", when, s.OperationName, s.Tags)
		}
		if !failed || s.OperationName != SpanGate || tag(s.Tags, AttrBatch) != "2" {
			continue
		}
		var links []string
		for _, ref := range s.References {
			if ref.RefType == "FOLLOWS_FROM" {
				links = append(links, ref.TraceID)
			}
		}
		if diff := cmp.Diff([]string{ciSpan, ciTrace}, sorted(links)); diff != "" {
			t.Errorf("%s: links: want, got:\n%s", when, diff)
		}
		if tag(s.Tags, "error") != "true" || tag(s.Tags, AttrVerdict) != "Fail" || !strings.Contains(tag(s.Tags, AttrFailedChecks), "error-rate") {
			t.Errorf("%s: the failed gate has tags %v", when, s.Tags)
		}
		var values []string
		for _, l := range s.Logs {
			if tag(l.Fields, "event") == EventCheck {
				values = append(values, tag(l.Fields, AttrCheck)+" "+tag(l.Fields, AttrCheckValue)+" "+tag(l.Fields, AttrCheckNewBad))
			}
		}
		if diff := cmp.Diff([]string{"error-rate 10% 9"}, values); diff != "" {
			t.Errorf("%s: checks: want, got:\n%s", when, diff)
		}
	}
}
