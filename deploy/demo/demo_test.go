package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want options
		err  string
	}{
		"nothing":    {want: options{image: defaultImage, deadline: 3 * time.Minute}},
		"everything": {args: []string{"--once", "--kubeconfig=k", "--prometheus=p", "--image=i", "--step-deadline=5s", "--keep"}, want: options{once: true, kubeconfig: "k", prometheus: "p", image: "i", deadline: 5 * time.Second, keep: true}},
		"argument":   {args: []string{"once"}, err: `unexpected argument "once"`},
		"deadline":   {args: []string{"--step-deadline=0s"}, err: "-step-deadline 0s: must be positive"},
		"unknown":    {args: []string{"--twice"}, err: "flag provided but not defined: -twice"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			got, err := parse(c.args, &said)
			if c.err != "" {
				if err == nil || !strings.Contains(said.String(), c.err) {
					t.Fatalf("error %v, said %q; want %q", err, said.String(), c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %+v (%v), want %+v", got, err, c.want)
			}
		})
	}
}

func canary(phase v1alpha1.Phase, batch string, total int32, newer, older *v1alpha1.WorkloadStatus) *v1alpha1.Canary {
	return &v1alpha1.Canary{Status: v1alpha1.CanaryStatus{Phase: phase, Batch: batch, TotalReplicas: total, New: newer, Old: older, Message: "so it is"}}
}

func replicasOf(available, wanted int32) *v1alpha1.WorkloadStatus {
	return &v1alpha1.WorkloadStatus{AvailableReplicas: available, Replicas: wanted}
}

func TestRow(t *testing.T) {
	for name, c := range map[string]struct {
		canary *v1alpha1.Canary
		want   string
	}{
		"nothing yet":   {canary(v1alpha1.PhasePending, "", 0, nil, nil), "batch -    new  0/0  old  0/0"},
		"first batch":   {canary(v1alpha1.PhaseProgressing, "1/4", 4, replicasOf(0, 1), replicasOf(4, 4)), "batch 1/4  new ▫··· 0/1  old ■■■■ 4/4"},
		"done":          {canary(v1alpha1.PhaseCompleted, "4/4", 4, replicasOf(4, 4), nil), "batch 4/4  new ■■■■ 4/4  old ···· 0/0"},
		"surplus":       {canary(v1alpha1.PhaseRollingBack, "2/2", 2, replicasOf(3, 2), replicasOf(0, 2)), "batch 2/2  new ■■■ 3/2  old ▫▫ 0/2"},
		"many replicas": {canary(v1alpha1.PhaseProgressing, "2/3", 100, replicasOf(40, 50), replicasOf(60, 60)), "batch 2/3  new 40/50  old 60/60"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row(c.canary); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestScreenAppendsWithoutColourWhereThereIsNoTerminal(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) })
	s.begin("Begin")
	s.command("kubectl", "patch", "-p", `{"a":"it's"}`)
	s.row(canary(v1alpha1.PhaseAwaitingApproval, "1/4", 4, replicasOf(1, 1), replicasOf(3, 3)))
	s.saw("seen %d", 1)
	want := "\n1. Begin\n" +
		"   $ kubectl patch -p '{\"a\":\"it'\\''s\"}'\n" +
		"   03:04:05  batch 1/4  new ■··· 1/1  old ■■■· 3/3  AwaitingApproval\n" +
		"   ok seen 1\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestReached(t *testing.T) {
	bad := errors.New("not as it should be")
	for name, c := range map[string]struct {
		phase, want v1alpha1.Phase
		also        error
		done        bool
		err         string
	}{
		"there":           {phase: v1alpha1.PhaseCompleted, want: v1alpha1.PhaseCompleted, done: true},
		"there but wrong": {phase: v1alpha1.PhaseCompleted, want: v1alpha1.PhaseCompleted, also: bad, done: true, err: "not as it should be"},
		"on its way":      {phase: v1alpha1.PhaseProgressing, want: v1alpha1.PhaseCompleted},
		"failed":          {phase: v1alpha1.PhaseFailed, want: v1alpha1.PhaseCompleted, err: "the phase is Failed, not Completed: so it is"},
		"invalid":         {phase: v1alpha1.PhaseInvalid, want: v1alpha1.PhaseCompleted, err: "the phase is Invalid, not Completed: so it is"},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := reached(canary(c.phase, "1/1", 1, nil, nil), c.want, func(*v1alpha1.Canary) error { return c.also })
			if done != c.done || (err == nil) != (c.err == "") || (err != nil && err.Error() != c.err) {
				t.Errorf("%t, %v; want %t, %q", done, err, c.done, c.err)
			}
		})
	}
}

func TestReplicasAre(t *testing.T) {
	c := canary(v1alpha1.PhaseAwaitingApproval, "1/4", 4, replicasOf(1, 1), replicasOf(3, 3))
	if err := replicasAre(c, 1, 3); err != nil {
		t.Error(err)
	}
	if err := replicasAre(c, 2, 3); err == nil || !strings.Contains(err.Error(), "new has 1 and old 3 available replicas, not 2 and 3") {
		t.Errorf("error %v", err)
	}
}

func TestScrapeConfig(t *testing.T) {
	text, err := scrapeConfig("/t", "canary-controller", "bookinfo")
	if err != nil {
		t.Fatal(err)
	}
	want := `global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
- file_sd_configs:
  - files:
    - /t/canary-controller.json
  job_name: canary-controller
- file_sd_configs:
  - files:
    - /t/bookinfo.json
  job_name: bookinfo
`
	if string(text) != want {
		t.Errorf("got\n%s", text)
	}
}

func TestReadNumber(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want float64
		err  string
	}{
		"a number":  {body: `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2.5"]}]}}`, want: 2.5},
		"no data":   {body: `{"status":"success","data":{"resultType":"vector","result":[]}}`, err: "no data"},
		"an error":  {body: `{"status":"error","error":"bad query"}`, err: "prometheus: bad query"},
		"no sample": {body: `{"status":"success","data":{"result":[{"value":[1,2]}]}}`, err: "prometheus: [1 2] is not a sample"},
		"no JSON":   {body: `<html>`, err: "reading Prometheus's answer: invalid character '<' looking for beginning of value"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readNumber([]byte(c.body))
			if got != c.want || (err == nil) != (c.err == "") || (err != nil && err.Error() != c.err) {
				t.Errorf("%g, %v; want %g, %q", got, err, c.want, c.err)
			}
		})
	}
}

// pipeCloser tells what a process printed, and that its output was closed.
type pipeCloser struct {
	bytes.Buffer
	closed chan struct{}
}

func (p *pipeCloser) Close() error { close(p.closed); return nil }

func TestProcessStopsWithItsGroup(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := &pipeCloser{closed: make(chan struct{})}
	p, err := start(dir, "group", out, []string{"WORD=hello"}, sh, "-c", `echo "$WORD"; echo late >&2; sleep 1000 & wait`)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.tail(5), "late"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("log %q", p.tail(5))
		}
	}
	if err := p.stop(context.Background()); err != nil {
		t.Error(err)
	}
	<-out.closed
	if out.String() != "hello\n" {
		t.Errorf("printed %q, want hello", out.String())
	}
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(-p.cmd.Process.Pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its process group is still there")
		}
	}
	if p.log != filepath.Join(dir, "group.log") {
		t.Errorf("log in %s", p.log)
	}
}

func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{"": "\n", "a": "a\n", "a\nb\nc\n": "b\nc\n", "a\nb": "a\nb\n"} {
		if got := lastLines([]byte(text), 2); got != want {
			t.Errorf("last 2 lines of %q: %q, want %q", text, got, want)
		}
	}
}

func TestRunReportsWhatIsMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	err := run(t.Context(), options{deadline: time.Second}, newScreen(io.Discard, time.Now))
	if err == nil || !strings.Contains(err.Error(), "run the demo inside the repository") {
		t.Errorf("error %v", err)
	}
}
