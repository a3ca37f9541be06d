package exporter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

// takeSlot is the environment variable that makes the test binary another
// program: one where a component took a slot of client-go before us.
const takeSlot = "EXPORTER_TEST_TAKE_SLOT"

type foreignLeader struct{}

func (foreignLeader) NewLeaderMetric() leaderelection.LeaderMetric { return silentLeader{} }

type silentLeader struct{}

func (silentLeader) On(string)                {}
func (silentLeader) Off(string)               {}
func (silentLeader) SlowpathExercised(string) {}

type foreignResult struct{}

func (foreignResult) Increment(context.Context, string, string, string) {}

func TestMain(m *testing.M) {
	switch os.Getenv(takeSlot) {
	case "":
		goleak.VerifyTestMain(m)
		return
	case "workqueue":
		workqueue.SetProvider(newWorkqueues("foreign"))
	case "rest":
		metrics.Register(metrics.RegisterOpts{RequestResult: foreignResult{}})
	case "leader":
		leaderelection.SetProvider(foreignLeader{})
	}
	reg := prometheus.NewRegistry()
	err := Install(reg, "test")
	families, gatherErr := reg.Gather()
	if err == nil || gatherErr != nil || len(families) != 0 {
		os.Stderr.WriteString("no error, or something was registered\n")
		os.Exit(3)
	}
	os.Stderr.WriteString(err.Error())
	os.Exit(7)
}

func TestInstallFailsWhenASlotIsTaken(t *testing.T) {
	for slot, want := range map[string]string{
		"workqueue": "work queue metrics would be missing: another component already called workqueue.SetProvider",
		"rest":      "REST client metrics would be missing: another component already called client-go/tools/metrics.Register",
		"leader":    "leader election metrics would be missing: another component already called leaderelection.SetProvider",
	} {
		t.Run(slot, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), takeSlot+"="+slot)
			out, err := cmd.CombinedOutput()
			exit := &exec.ExitError{}
			if !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Fatalf("%v: %s", err, out)
			}
			if !strings.HasPrefix(string(out), want) || strings.Contains(string(out), "\n") {
				t.Errorf("error:\n%s\nwant only %s", out, want)
			}
		})
	}
}

// Install takes the slots of this test binary, so that there is one test of it.
func TestInstall(t *testing.T) {
	reg := prometheus.NewRegistry()
	if err := Install(reg, "application"); err != nil {
		t.Fatal(err)
	}
	if err := Install(prometheus.NewRegistry(), "second"); err == nil {
		t.Error("installed twice without an error")
	}

	q := workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[string]{Name: "applications"})
	defer q.ShutDown()
	q.Add("a")
	q.Add("b")
	item, _ := q.Get()
	q.AddAfter("c", time.Hour)
	q.Done(item)
	unnamed := workqueue.NewTyped[string]()
	defer unnamed.ShutDown()
	unnamed.Add("a")

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	}))
	defer api.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{}); err == nil {
		t.Fatal("found")
	}
	client.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: probeLock{}, Name: "application-lease",
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil || elector == nil {
		t.Fatal(err)
	}

	host := strings.TrimPrefix(api.URL, "http://")
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP leader_election_master_status Whether this process holds the lease of that name: 1 leader, 0 standby.
# TYPE leader_election_master_status gauge
leader_election_master_status{name="application-lease"} 0
# HELP rest_client_requests_total Requests to the API server, by status code, or code <error> when there was no response.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="404",host="`+host+`",method="GET"} 1
# HELP workqueue_adds_total Items added to the queue.
# TYPE workqueue_adds_total counter
workqueue_adds_total{controller="application",name="applications"} 2
# HELP workqueue_depth Items waiting in the queue. Items that wait for a delay to pass are not among them.
# TYPE workqueue_depth gauge
workqueue_depth{controller="application",name="applications"} 1
# HELP workqueue_retries_total Items added with a delay, be it a retry after an error or a planned return.
# TYPE workqueue_retries_total counter
workqueue_retries_total{controller="application",name="applications"} 1
`), "leader_election_master_status", "rest_client_requests_total", "workqueue_adds_total", "workqueue_depth", "workqueue_retries_total"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{
		"workqueue_queue_duration_seconds", "workqueue_work_duration_seconds", "workqueue_unfinished_work_seconds",
		"workqueue_longest_running_processor_seconds", "rest_client_request_duration_seconds",
	} {
		if n, err := testutil.GatherAndCount(reg, name); err != nil || n != 1 {
			t.Errorf("%s: %d series (%v)", name, n, err)
		}
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestWorkqueuesOfTheirOwn(t *testing.T) {
	reg := prometheus.NewRegistry()
	w, err := NewWorkqueues(reg, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewWorkqueues(reg, ""); err == nil {
		t.Error("registered twice without an error")
	}
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q", MetricsProvider: w})
	defer q.ShutDown()
	q.Add(1)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP workqueue_depth Items waiting in the queue. Items that wait for a delay to pass are not among them.
# TYPE workqueue_depth gauge
workqueue_depth{controller="q",name="q"} 1
`), "workqueue_depth"); err != nil {
		t.Error(err)
	}
}
