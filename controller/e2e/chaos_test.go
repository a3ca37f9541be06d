//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// alone returns a namespace that no operator but the test's own works in, for tests that
// restart the API server or measure time. They are not parallel: parallel tests wait until
// they are over, and so does the operator of all namespaces.
func alone(t *testing.T) *space {
	t.Helper()
	if env.shared.op != nil {
		t.Fatal("the shared operator runs already: a parallel test began too early")
	}
	return env.newSpace(t)
}

// TestSurvivesKillsAndAPIServerRestarts kills the operator with SIGKILL at 20 random
// moments of a rollout, and the API server twice. The rollout must end as if nothing had
// happened: no batch skipped, no change told twice, no capacity given up.
func TestSurvivesKillsAndAPIServerRestarts(t *testing.T) {
	needsLab(t, "it restarts the API server")
	s := alone(t)
	const total = 24
	s.deploy(v("old", total))
	// One replica a batch: more batches than kills, each as long as a pod takes to start.
	c := canaryOf(v1alpha1.CanaryDeploy, slowStart{v("new", total)}, v("old", total))
	c.Spec.Info.PauseType, c.Spec.Info.TotalBatches = v1alpha1.PauseNone, new(intstr.FromInt32(total))
	s.create(c)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	watch := s.watchDeployments()
	var moments []string
	const kills = 20
	for kill := range kills {
		op := s.operate("--namespace", s.name, "--leader-elect=false")
		s.wait("the operator", op.ready)
		// Kills are spread over the whole rollout, whose pods take a second to become available.
		moment := time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		<-moment
		op.signal(syscall.SIGKILL)
		if now, err := s.canary("release"); err == nil && now.Status.Phase != v1alpha1.PhaseCompleted {
			moments = append(moments, now.Status.Batch)
		}
		if kill == 6 || kill == 13 {
			// The watch ends with the API server it is connected to.
			watch.stop()
			watch.neverBelow(total)
			if err := s.lab.RestartAPIServer(s.ctx, kill == 13); err != nil {
				t.Fatal(err)
			}
			watch = s.watchDeployments()
		}
	}
	t.Logf("batches at the kills: %v", moments)
	if len(moments) < kills {
		t.Errorf("only %d of %d kills fell into the rollout", len(moments), kills)
	}

	s.operate("--namespace", s.name, "--leader-elect=false")
	done := s.phase(v1alpha1.PhaseCompleted)
	s.wait("the new version", s.replicas("new", total, total))
	s.wait("the old version to go", s.gone("old"))
	watch.stop()
	watch.neverBelow(total)

	var targets, want []int32
	for n, batch := range done.Status.Batches {
		want = append(want, int32(n+1))
		targets = append(targets, batch.Target)
		if batch.FinishedAt == nil || batch.AvailableAt == nil {
			t.Errorf("batch %d is not finished: %+v", n+1, batch)
		}
	}
	if len(targets) != total || !slices.Equal(targets, want) {
		t.Errorf("targets are %v, want 1 to %d", targets, total)
	}
	counts := map[string]int{}
	for _, event := range s.events() {
		reason, _, _ := strings.Cut(event, ":")
		switch v1alpha1.Reason(reason) {
		case v1alpha1.ReasonDeploymentCreated, v1alpha1.ReasonDeploymentRepaired, v1alpha1.ReasonApplyFailed:
		default:
			counts[event]++
		}
	}
	for event, count := range counts {
		if count > 1 {
			t.Errorf("told %d times: %s", count, event)
		}
	}
}

// slowStart is a manifest whose pods take a second to become ready.
type slowStart struct{ manifest }

func (m slowStart) String() string {
	m.env = map[string]string{"HOLLOW_READY_DELAY": "1s"}
	return m.manifest.String()
}

// lease is quick leader election for tests.
func lease(s *space) []string {
	return []string{
		"--namespace", s.name, "--leader-election-namespace", s.name,
		"--leader-elect-lease-duration", "4s", "--leader-elect-renew-deadline", "3s", "--leader-elect-retry-period", "500ms",
	}
}

func (s *space) leader() string {
	l, err := s.kube.CoordinationV1().Leases(s.name).Get(s.ctx, "canary-controller", metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func TestOneOfTwoOperatorsActsAndTheOtherTakesOver(t *testing.T) {
	s := alone(t)
	first := s.operate(lease(s)...)
	s.wait("the first to lead", func() error {
		if s.leader() == "" || !strings.Contains(first.output(), "Workers started") {
			return fmt.Errorf("no leader")
		}
		return nil
	})
	leader := s.leader()
	second := s.operate(lease(s)...)
	s.wait("the second to be ready", second.ready)

	s.deploy(v("old", 4))
	s.create(canaryOf(v1alpha1.CanaryDeploy, v("new", 4), v("old", 4)))
	s.phase(v1alpha1.PhaseAwaitingApproval)
	if strings.Contains(second.output(), "Workers started") {
		t.Error("both operators work")
	}
	killed := time.Now()
	first.signal(syscall.SIGKILL)
	s.approve(2)
	s.phase(v1alpha1.PhaseCompleted)
	if s.leader() == leader {
		t.Error("the killed operator still holds the lease")
	}
	s.wait("the second to have taken over", func() error {
		if !strings.Contains(second.output(), "Workers started") {
			return fmt.Errorf("no workers")
		}
		return nil
	})
	// Lease duration, and one retry with its jitter.
	t.Logf("completed %s after the kill, the lease lasts 4 s", time.Since(killed).Round(100*time.Millisecond))
	lease, err := s.kube.CoordinationV1().Leases(s.name).Get(s.ctx, "canary-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if handover := lease.Spec.AcquireTime.Sub(killed); handover > 4*time.Second+3*time.Second {
		t.Errorf("handed over after %s, the lease lasts 4 s", handover)
	}

	// SIGTERM drains, gives the lease back at once and ends with 0.
	if code := second.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM ended with %d", code)
	}
	if holder := s.leader(); holder != "" {
		t.Errorf("the lease is still held by %s", holder)
	}
}

func TestLosingTheLeaseEndsTheProcess(t *testing.T) {
	s := alone(t)
	op := s.operate(lease(s)...)
	s.wait("a leader", func() error {
		if s.leader() == "" {
			return fmt.Errorf("none")
		}
		return nil
	})
	// Somebody else takes it.
	s.wait("the theft", func() error {
		l, err := s.kube.CoordinationV1().Leases(s.name).Get(s.ctx, "canary-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.Spec.HolderIdentity, l.Spec.RenewTime = new("thief"), &metav1.MicroTime{Time: time.Now().Add(time.Minute)}
		_, err = s.kube.CoordinationV1().Leases(s.name).Update(s.ctx, l, metav1.UpdateOptions{})
		return err
	})
	select {
	case <-op.done:
	case <-time.After(patience):
		t.Fatal("the operator works on without the lease")
	}
	if code := op.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("ended with %d, want 1", code)
	}
	log := op.output()
	stopped, exiting := strings.Index(log, "Workers stopped"), strings.Index(log, "lost the leader election lease")
	if stopped < 0 || exiting < 0 || exiting < stopped {
		t.Errorf("work did not stop before the end:\n%s", log)
	}
}

// TestFinishedCanariesCostNothing counts requests at the API server while 200 finished
// Canaries do nothing for 60 seconds.
func TestFinishedCanariesCostNothing(t *testing.T) {
	needsLab(t, "it reads the API server's audit log")
	s := apart(t)
	const count = 200
	op := s.operate("--namespace", s.name, "--leader-election-namespace", s.name, "--workers", "8",
		"--kube-api-qps", "300", "--kube-api-burst", "600", "--resync", "20s")
	s.wait("the operator", op.ready)
	for n := range count {
		c := canaryOf(v1alpha1.CanaryDeploy, v(fmt.Sprintf("new-%d", n), 0), nil)
		if n%2 == 1 {
			c.Spec.Info.Type = v1alpha1.NormalDeploy
		}
		c.Name = fmt.Sprintf("release-%d", n)
		s.create(c)
	}
	s.wait("all to finish", func() error {
		list, err := s.canaries.CanarycontrollerV1alpha1().Canaries(s.name).List(s.ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		unfinished := slices.DeleteFunc(list.Items, func(c v1alpha1.Canary) bool { return c.Status.Phase == v1alpha1.PhaseCompleted })
		if len(unfinished) > 0 {
			return fmt.Errorf("%d of %d are not: %s is %s", len(unfinished), count, unfinished[0].Name, unfinished[0].Status.Phase)
		}
		return nil
	})
	// Events are written behind the status; they belong to the rollouts, not to idling.
	s.wait("the writes to end", func() error {
		before := s.operatorWrites()
		time.Sleep(2 * time.Second)
		if after := s.operatorWrites(); after != before {
			return fmt.Errorf("%d writes more", after-before)
		}
		return nil
	})
	before := s.operatorWrites()
	// The span is what the test is about, not a wait for something.
	time.Sleep(time.Minute)
	if writes := s.operatorWrites() - before; writes != 0 {
		t.Errorf("%d writes in 60 s of idling", writes)
	}
	list, err := s.kube.AppsV1().Deployments(s.name).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != count {
		t.Errorf("%d Deployments, want %d", len(list.Items), count)
	}
}

// operatorWrites counts the operator's writes in the audit log, lease renewals and other
// tests' namespaces aside.
func (s *space) operatorWrites() int {
	s.Helper()
	file, err := os.Open(s.lab.AuditLog)
	if err != nil {
		s.Fatal(err)
	}
	defer file.Close()
	writes, lines := 0, 0
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var entry struct {
			Verb, UserAgent string
			ObjectRef       struct{ Resource, Namespace string }
		}
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil {
			continue
		}
		lines++
		if !strings.HasPrefix(entry.UserAgent, v1alpha1.FieldManager) || entry.ObjectRef.Resource == "leases" {
			continue
		}
		if of := entry.ObjectRef.Namespace; of != "" && of != s.name {
			continue
		}
		switch entry.Verb {
		case "create", "update", "patch", "delete":
			writes++
		}
	}
	if lines == 0 || scanner.Err() != nil {
		s.Fatalf("reading the audit log %s: %d lines, %v", s.lab.AuditLog, lines, scanner.Err())
	}
	return writes
}
