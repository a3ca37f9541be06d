package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// TestMain lets the thread be that package servers forks from in the tests with a real Jaeger.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/canarycontroller/canary-controller/deploy/servers.fork"))
}

// fake is an OTLP client that answers as it is told and keeps what it took.
type fake struct {
	mu      sync.Mutex
	got     [][]*tracepb.Span
	calls   int
	stopped bool
	// answer is called for each upload, from 1; nil accepts all.
	answer func(ctx context.Context, call int) error
}

func (f *fake) Start(context.Context) error { return nil }

func (f *fake) Stop(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	return nil
}

func (f *fake) UploadTraces(ctx context.Context, list []*tracepb.ResourceSpans) error {
	f.mu.Lock()
	f.calls++
	call := f.calls
	f.mu.Unlock()
	if f.answer != nil {
		if err := f.answer(ctx, call); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, list[0].ScopeSpans[0].Spans)
	return nil
}

func (f *fake) names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, batch := range f.got {
		for _, s := range batch {
			names = append(names, s.Name)
		}
	}
	return names
}

// withEnv puts an environment in place of the process's.
func withEnv(t *testing.T, values map[string]string) {
	t.Helper()
	before := environment
	environment = func(name string) string { return values[name] }
	t.Cleanup(func() { environment = before })
}

func recorder(t *testing.T, client *fake, c Config) (*Recorder, *prometheus.Registry) {
	t.Helper()
	withEnv(t, nil)
	reg := prometheus.NewPedanticRegistry()
	c.Registerer = reg
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Endpoint = "http://collector.invalid:4317"
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.client = client
	r.backoff = backoff{first: time.Millisecond, longest: 4 * time.Millisecond, refusals: time.Minute}
	r.now = func() time.Time { return at(100).Time }
	return r, reg
}

// start runs r and returns how to end it.
func start(t *testing.T, r *Recorder) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case err = <-done:
			case <-time.After(30 * time.Second):
				err = errors.New("Run does not return")
			}
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come true", what)
		}
	}
}

func checkMetrics(t *testing.T, reg *prometheus.Registry, sent, failed, dropped int) {
	t.Helper()
	want := fmt.Sprintf(`
# HELP canary_trace_spans_total Spans of rollouts by what became of them: sent to the collector, failed because it refused them, or dropped because the queue was full or the process ended.
# TYPE canary_trace_spans_total counter
canary_trace_spans_total{result="dropped"} %d
canary_trace_spans_total{result="failed"} %d
canary_trace_spans_total{result="sent"} %d
# HELP canary_trace_queued_spans Spans of rollouts that wait to be sent.
# TYPE canary_trace_queued_spans gauge
canary_trace_queued_spans 0
`, dropped, failed, sent)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestMetricsAreClean(t *testing.T) {
	_, reg := recorder(t, &fake{}, Config{})
	checkMetrics(t, reg, 0, 0, 0)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if _, err := New(Config{Registerer: reg}); err == nil {
		t.Error("two recorders share a registerer")
	}
}

var completed = []string{SpanApply, SpanWait, "batch 1", SpanRollout}

func completedCourse() []*v1alpha1.Canary {
	return course(applied(1), available(2), finished(3), over(4, v1alpha1.OutcomeCompleted))
}

func TestSendsWhatEnded(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{})
	states := completedCourse()
	// What is written before Run begins waits for it.
	r.StatusWritten(states[0], states[1])
	stop := start(t, r)
	for n := 1; n < len(states)-1; n++ {
		r.StatusWritten(states[n], states[n+1])
		r.StatusWritten(states[n+1], states[n+1])
	}
	eventually(t, "sending", func() bool { return len(client.names()) == 4 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(completed, client.names()); diff != "" {
		t.Error(diff)
	}
	if !client.stopped {
		t.Error("the client was not stopped")
	}
	checkMetrics(t, reg, 4, 0, 0)
}

// TestWhatWasMissedIsSentOnce holds that it does not matter which changes the Recorder
// hears of, and how often, as long as it hears of the last.
func TestWhatWasMissedIsSentOnce(t *testing.T) {
	states := course(applied(1), available(2), finished(3), over(4, v1alpha1.OutcomeCompleted), goingBack(50, "requested"), over(60, v1alpha1.OutcomeRolledBack), replaced(70), applied(71))
	want := []string{"apply", "apply", "batch 1", "rollback", "rollout", "wait available"}
	for missed := range 1 << (len(states) - 2) {
		client := &fake{}
		r, _ := recorder(t, client, Config{})
		from := 0
		for n := 1; n < len(states); n++ {
			// The change to another attempt is not missed: nothing else tells of the former one.
			if n < len(states)-2 && missed>>(n-1)&1 == 1 {
				continue
			}
			before := states[n-1]
			if n%2 == 0 {
				before = states[from]
			}
			for range 2 {
				r.StatusWritten(before, states[n])
			}
			from = n
		}
		if err := start(t, r)(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, sortedNames(client)); diff != "" {
			t.Fatalf("missed %b: want, got:\n%s", missed, diff)
		}
	}
}

func sortedNames(client *fake) []string { return slices.Sorted(slices.Values(client.names())) }

// TestResumeFromAStaleCache holds that a Canary resumed in an older state is told the rest
// with its next change, whichever comes first.
func TestResumeFromAStaleCache(t *testing.T) {
	states := completedCourse()
	for _, late := range []bool{false, true} {
		client := &fake{}
		r, _ := recorder(t, client, Config{})
		if late {
			r.StatusWritten(states[3], states[4])
		}
		r.Resume(states[1])
		stop := start(t, r)
		eventually(t, "sending", func() bool { return len(client.names()) > 0 })
		r.StatusWritten(states[3], states[4])
		if err := stop(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(completed, client.names()); diff != "" {
			t.Error(diff)
		}
	}
}

// TestWhatDidNotFitComesLater holds that spans dropped for want of room are sent when the
// Canary changes again.
func TestWhatDidNotFitComesLater(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{QueueSize: 2})
	states := completedCourse()
	other := course(applied(1), available(2))
	for _, c := range other {
		c.UID = "uid-2"
	}
	r.StatusWritten(other[1], other[2])
	r.StatusWritten(states[2], states[3])
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 2 })
	r.StatusWritten(states[3], states[4])
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(append([]string{SpanApply, SpanWait}, completed...), client.names()); diff != "" {
		t.Error(diff)
	}
	checkMetrics(t, reg, 6, 0, 3)
}

// TestForgetsDeletedCanaries holds that nothing is kept of what is gone.
func TestForgetsDeletedCanaries(t *testing.T) {
	r, _ := recorder(t, &fake{}, Config{})
	states := course(applied(1), available(2), deleted(9))
	r.StatusWritten(states[0], states[2])
	if len(r.told) != 1 {
		t.Errorf("%d Canaries are known", len(r.told))
	}
	r.Deleted(states[3])
	r.StatusWritten(states[2], states[3])
	if len(r.told) != 0 {
		t.Errorf("%d Canaries are known still", len(r.told))
	}
}

func TestResume(t *testing.T) {
	states := completedCourse()
	for _, test := range []struct {
		name string
		now  int
		c    *v1alpha1.Canary
		want int
	}{
		{"under way", 1e6, states[2], 2},
		{"just ended", 60, states[4], 4},
		{"ended within the hour", 4 + 3600, states[4], 4},
		{"ended before", 4 + 3601, states[4], 0},
		{"going back", 1e6, course(applied(1), goingBack(4, "requested"))[2], 3},
		{"nothing to tell", 60, canary(), 0},
		{"no trace", 60, &v1alpha1.Canary{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := &fake{}
			r, reg := recorder(t, client, Config{})
			r.now = func() time.Time { return at(test.now).Time }
			r.Resume(test.c)
			if err := start(t, r)(); err != nil {
				t.Error(err)
			}
			if got := client.names(); len(got) != test.want {
				t.Errorf("sent %v, want %d spans", got, test.want)
			}
			checkMetrics(t, reg, test.want, 0, 0)
		})
	}
}

// TestResumeOfMany holds that what is sent again needs no room in the queue.
func TestResumeOfMany(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{QueueSize: 5, BatchSize: 3})
	for i := range 200 {
		c := completedCourse()[4]
		c.UID = types.UID(fmt.Sprint(i))
		r.Resume(c)
	}
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 800 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, batch := range client.got {
		if len(batch) > 3 {
			t.Fatalf("a batch of %d spans", len(batch))
		}
	}
	checkMetrics(t, reg, 800, 0, 0)
}

func TestDeleted(t *testing.T) {
	client := &fake{}
	r, reg := recorder(t, client, Config{})
	states := course(applied(1), available(2), deleted(9))
	r.StatusWritten(states[1], states[2])
	r.Deleted(states[2])
	r.Deleted(states[3])
	if err := start(t, r)(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(completed, client.names()); diff != "" {
		t.Error(diff)
	}
	if states[3].DeletionTimestamp == nil {
		t.Error("the Canary was changed")
	}
	checkMetrics(t, reg, 4, 0, 0)
}

// TestNeverBlocks holds that without a collector statuses go on being written, and that
// what does not fit is counted.
func TestNeverBlocks(t *testing.T) {
	var log bytes.Buffer
	r, reg := recorder(t, &fake{}, Config{QueueSize: 9, FlushTimeout: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 100 {
		c := completedCourse()[4]
		c.UID = types.UID(fmt.Sprint(i))
		r.StatusWritten(nil, c)
	}
	if got := testutil.ToFloat64(r.metrics.queued); got != 8 {
		t.Errorf("%g spans are queued", got)
	}
	if got := strings.Count(log.String(), "queue of spans is full"); got != 1 {
		t.Errorf("logged %d times:\n%s", got, log.String())
	}
	if err := start(t, r)(); err != nil {
		t.Error(err)
	}
	checkMetrics(t, reg, 8, 0, 392)
}

func TestOff(t *testing.T) {
	withEnv(t, nil)
	r, err := New(Config{})
	if err != nil || r.Enabled() {
		t.Fatalf("enabled without an endpoint, %v", err)
	}
	states := completedCourse()
	r.StatusWritten(states[0], states[4])
	r.Resume(states[4])
	r.Deleted(states[4])
	if len(r.queue)+len(r.resumed) > 0 {
		t.Error("something is queued that nobody sends")
	}
	if err := start(t, r)(); err != nil {
		t.Error(err)
	}
}
