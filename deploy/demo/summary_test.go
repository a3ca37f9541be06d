package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestReadTally(t *testing.T) {
	text := `# TYPE http_client_request_duration_seconds histogram
http_client_request_duration_seconds_bucket{http_request_method="GET",http_response_status_code="200",le="+Inf"} 90
http_client_request_duration_seconds_sum{http_request_method="GET",http_response_status_code="200"} 1
http_client_request_duration_seconds_count{http_request_method="GET",http_response_status_code="200"} 90
http_client_request_duration_seconds_bucket{http_request_method="GET",http_response_status_code="404",le="+Inf"} 3
http_client_request_duration_seconds_sum{http_request_method="GET",http_response_status_code="404"} 1
http_client_request_duration_seconds_count{http_request_method="GET",http_response_status_code="404"} 3
http_client_request_duration_seconds_bucket{http_request_method="GET",http_response_status_code="502",le="+Inf"} 5
http_client_request_duration_seconds_sum{http_request_method="GET",http_response_status_code="502"} 1
http_client_request_duration_seconds_count{http_request_method="GET",http_response_status_code="502"} 5
http_client_request_duration_seconds_bucket{http_request_method="GET",http_response_status_code="",le="+Inf"} 2
http_client_request_duration_seconds_sum{http_request_method="GET",http_response_status_code=""} 1
http_client_request_duration_seconds_count{http_request_method="GET",http_response_status_code=""} 2
`
	got, err := readTally(strings.NewReader(text))
	if want := (tally{Requests: 100, Failed: 7}); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	if since := got.since(tally{Requests: 40, Failed: 2}); since.String() != "5 of 60" {
		t.Errorf("since then %s", since)
	}
	if got, err := readTally(strings.NewReader("")); err != nil || got != (tally{}) {
		t.Errorf("without metrics: %+v (%v)", got, err)
	}
	if _, err := readTally(strings.NewReader("{")); err == nil || !strings.Contains(err.Error(), "reading the load generator's metrics") {
		t.Errorf("what is no metrics: %v", err)
	}
}

func TestWriteTable(t *testing.T) {
	var out bytes.Buffer
	err := writeTable(&out, "   ", []outcome{
		{release: "reviews v1 → v2", decision: "promoted", evidence: "4 x Pass: new 0 of 1349 bad (0%)", took: 40400 * time.Millisecond, users: tally{Requests: 3719}},
		{release: "reviews v2 → v3", decision: "rolled back in batch 1", evidence: "Fail", took: 9 * time.Second, users: tally{Requests: 1113, Failed: 15}},
	})
	want := `   RELEASE          DECISION                EVIDENCE                          TIME  FAILED FOR USERS
   reviews v1 → v2  promoted                4 x Pass: new 0 of 1349 bad (0%)  40s   0 of 3719
   reviews v2 → v3  rolled back in batch 1  Fail                              9s    15 of 1113
`
	if err != nil || out.String() != want {
		t.Errorf("got (%v)\n%s\nwant\n%s", err, out.String(), want)
	}
}

func TestGraph(t *testing.T) {
	now := time.Unix(10_000, 0)
	for name, c := range map[string]struct {
		pages bool
		want  string
	}{
		"with pages":    {true, "http://p/graph?g0.expr=rate%28x%5B1m%5D%29&g0.range_input=15m&g0.tab=0"},
		"without pages": {false, "http://p/api/v1/query_range?end=10000&query=rate%28x%5B1m%5D%29&start=9100&step=5"},
	} {
		if got := graph("http://p", "rate(x[1m])", c.pages, now); got != c.want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"one two  three", 7, []string{"one two", "three"}},
		{"ää ää ää", 5, []string{"ää ää", "ää"}},
		{"a-very-long-word b", 4, []string{"a-very-long-word", "b"}},
	} {
		if got := wrap(c.text, c.width); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q in %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// readTrace reads a trace as Jaeger's query API writes it.
func readTrace(t *testing.T, text string) trace {
	t.Helper()
	var got trace
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

const failedRequest = `{"traceID":"a","spans":[
	{"operationName":"GET /productpage","processID":"p1","tags":[{"key":"span.kind","type":"string","value":"server"},{"key":"http.response.status_code","type":"int64","value":502}]},
	{"operationName":"GET","processID":"p1","references":[{"refType":"CHILD_OF"}],"tags":[{"key":"span.kind","value":"client"},{"key":"http.response.status_code","value":500}]},
	{"operationName":"GET /reviews/{id}","processID":"p2","references":[{"refType":"CHILD_OF"}],"tags":[{"key":"span.kind","value":"server"},{"key":"http.response.status_code","value":500}]}],
	"processes":{"p1":{"serviceName":"productpage"},"p2":{"serviceName":"reviews"}}}`

func TestTraces(t *testing.T) {
	failed := readTrace(t, failedRequest)
	whole := readTrace(t, `{"traceID":"b","processes":{"p1":{"serviceName":"reviews"},"p2":{"serviceName":"details"},"p3":{"serviceName":"productpage"},"p4":{"serviceName":"ratings"},"p5":{"serviceName":"reviews"}}}`)
	under := readTrace(t, `{"spans":[{"processID":"p1","references":[{"refType":"CHILD_OF"}]}],"processes":{"p1":{"serviceName":"canary-controller"}}}`)
	rollout := readTrace(t, `{"spans":[{"processID":"p1","references":[{"refType":"CHILD_OF"}]},{"processID":"p1","references":[{"refType":"FOLLOWS_FROM"}]}],"processes":{"p1":{"serviceName":"canary-controller"}}}`)
	for name, c := range map[string]struct {
		trace                  trace
		failed, through, ended bool
	}{
		"failed request":       {failed, true, false, false},
		"half of it":           {readTrace(t, strings.Replace(failedRequest, "502", "200", 1)), false, false, false},
		"through all services": {whole, false, true, false},
		"rollout under way":    {under, false, false, false},
		"rollout":              {rollout, false, false, true},
	} {
		if c.trace.failedInReviews() != c.failed || c.trace.throughAllServices() != c.through || c.trace.rolloutEnded() != c.ended {
			t.Errorf("%s: %t, %t, %t", name, c.trace.failedInReviews(), c.trace.throughAllServices(), c.trace.rolloutEnded())
		}
	}
}

// What is new is shown once; how the evidence grows, now and then.
func TestToldShowsWhatIsNew(t *testing.T) {
	var out bytes.Buffer
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := newScreen(&out, func() time.Time { return at })
	c := canary(v1alpha1.PhaseAnalyzing, "1/4", 4, replicasOf(1, 1), replicasOf(3, 3))
	c.Status.Rollout = &v1alpha1.RolloutStatus{ID: "v1-a"}
	c.Status.Verdict = v1alpha1.VerdictNoData
	c.Status.Gate = &v1alpha1.GateStatus{Message: "too few", Decisions: []v1alpha1.GateDecision{decided(1, v1alpha1.VerdictNoData, actionHold, nil, nil)}}
	var seen told
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "   03:04:05  batch 1/4  new ■··· 1/1  old ■■■· 3/3  Analyzing\n"},
		{func() {}, ""},
		{func() { c.Status.Gate.Evaluations++; at = at.Add(quietFor - 1) }, ""},
		{func() { at = at.Add(1) }, "   03:04:10  batch 1/4  new ■··· 1/1  old ■■■· 3/3  Analyzing\n             NoData: too few\n"},
		{func() { at = at.Add(quietFor) }, ""},
		{func() {
			c.Status.Gate.Decisions = append(c.Status.Gate.Decisions, decided(1, v1alpha1.VerdictPass, actionPromote, nil, nil))
		}, "             gate, batch 1: Pass, promote: so it was\n"},
		{func() { c.Status.Phase = v1alpha1.PhaseProgressing }, "   03:04:15  batch 1/4  new ■··· 1/1  old ■■■· 3/3  Progressing\n"},
		{func() { c.Status.Rollout.ID, c.Status.Gate = "v1-b", nil }, "   03:04:15  batch 1/4  new ■··· 1/1  old ■■■· 3/3  Progressing\n"},
	} {
		out.Reset()
		step.do()
		seen.show(s, c)
		if out.String() != step.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), step.want)
		}
	}
}

func TestKustomization(t *testing.T) {
	text, err := kustomization("../base", "--a=1", "--b=2")
	want := `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
patches:
- patch: |
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --a=1
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --b=2
  target:
    kind: Deployment
    name: canary-controller
resources:
- ../base
`
	if err != nil || string(text) != want {
		t.Errorf("got (%v)\n%s", err, text)
	}
}

// kustomize reads no absolute paths, and follows symbolic links before it goes up.
func TestRelative(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", "c/d"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "a", "b"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := relative(filepath.Join(dir, "link"), filepath.Join(dir, "c", "d"))
	if err != nil || got != "../../c/d" {
		t.Errorf("got %q (%v)", got, err)
	}
	if _, err := relative(dir, filepath.Join(dir, "missing")); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
