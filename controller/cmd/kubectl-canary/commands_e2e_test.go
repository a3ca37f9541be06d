//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestWithoutTheCRD(t *testing.T) {
	for _, got := range []result{env.listBefore, env.statusBefore} {
		if got.code != 1 || !strings.Contains(got.err, "this cluster does not know the kind Canary; install its CustomResourceDefinition") {
			t.Error(got)
		}
	}
}

func TestReading(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.expect(0, "", "no Canaries in namespace SPACE", "list")
	s.create()
	s.expect(0, "no status yet", "", "status", "reviews")
	s.status(at(v1alpha1.PhaseAwaitingApproval, 1, available), judged(v1alpha1.VerdictPass, "0.05%", "not worse", 1, 2104, "0.1%", "0.05%"))
	s.expect(0, "NAME      TYPE           PHASE              BATCH   NEW   OLD   VERDICT   AGE\nreviews   CanaryDeploy   AwaitingApproval   1/4     1/1   7/7   Pass      ", "", "list")
	s.expect(0, "MESSAGE\nreviews", "", "list", "-o", "wide")
	s.expect(0, "\n"+s.name+"   reviews   CanaryDeploy", "", "list", "-A")
	s.expect(0, "canary.canarycontroller.tech.com/reviews\n", "", "list", "-o", "name")
	var list v1alpha1.CanaryList
	got := s.expect(0, "", "", "list", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Items) != 1 || list.Items[0].Kind != "Canary" {
		t.Errorf("%v\n%s", err, got)
	}
	for width, extra := range map[int][]string{80: nil, 160: {"COLUMNS=160"}} {
		got := s.expectWith(extra, 0, "Waits for  a person's approval", "", "status", "reviews")
		longest := 0
		for line := range strings.Lines(got.out) {
			longest = max(longest, len([]rune(strings.TrimSuffix(line, "\n"))))
		}
		if longest != width || strings.Contains(got.out, "\x1b") {
			t.Errorf("the longest line is %d, want %d:\n%s", longest, width, got)
		}
	}
	var c v1alpha1.Canary
	got = s.expect(0, "", "", "status", "reviews", "-o", "yaml")
	if err := yaml.UnmarshalStrict([]byte(got.out), &c); err != nil || c.Status.Gate.Checks[0].New.Total != 2104 {
		t.Errorf("%v\n%s", err, got)
	}
	s.expectWith([]string{"LANG=C"}, 0, "reviews-v1 -> reviews-v2", "", "status", "reviews")
	s.expect(3, "", "error: Canary SPACE/nobody not found\n", "status", "nobody")
	s.expect(3, "", "error: Canary SPACE/nobody not found\n", "approve", "nobody")
}

func TestWhy(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create()
	s.status(at(v1alpha1.PhaseRolledBack, 2, "rolled back: the gate failed batch 2"), judged(v1alpha1.VerdictFail, "5.1%", "worse than the limit", 61, 1203, "4%", "5.1%"),
		decided("Hold", v1alpha1.VerdictNoData, 50, "error-rate: "+few), decided("Rollback", v1alpha1.VerdictFail, 20, "error-rate: 61 of 1203 bad"),
		turned("the gate failed batch 2"), ended(v1alpha1.OutcomeRolledBack))
	got := s.expect(0, "gate, batch 2: Rollback (Fail). error-rate: 61 of 1203 bad\n", "", "why", "reviews")
	order := []string{"rollout began", "batch 1 of 4 began", "batch 1 available after 10s", "batch 1 finished", "batch 2 of 4 began", "Hold (NoData)", "Rollback (Fail)", "rollback began: the gate failed batch 2", "RolledBack, after", "Trace      4bf92f3577b34da6a3ce929d0e0e4736\n"}
	from := 0
	for _, part := range order {
		i := strings.Index(got.out[from:], part)
		if i < 0 {
			t.Fatalf("%q is missing or too early:\n%s", part, got)
		}
		from += i
	}
	s.expect(0, "Trace      http://jaeger:16686/trace/4bf92f3577b34da6a3ce929d0e0e4736\n", "", "why", "reviews", "--jaeger-url=http://jaeger:16686/")
	s.expectWith([]string{"CANARY_JAEGER_URL=http://env"}, 0, `"traceURL": "http://env/trace/4bf92f3577b34da6a3ce929d0e0e4736"`, "", "why", "reviews", "-o", "json")
}

func TestApprove(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(func(c *v1alpha1.Canary) { c.Spec.Gate = nil })
	s.expect(1, "", "error: Canary SPACE/reviews: the rollout has not begun", "approve", "reviews")
	s.status(at(v1alpha1.PhaseAwaitingApproval, 1, available))
	before := s.get()
	s.expect(0, "Canary SPACE/reviews: batch 2 of 4 approved (currentBatch was 1) (server dry run)\n", "", "approve", "reviews", "--dry-run=server")
	if after := s.get(); after.ResourceVersion != before.ResourceVersion {
		t.Error("a dry run changed something")
	}
	s.expect(0, "Canary SPACE/reviews: batch 2 of 4 approved (currentBatch was 1)\n", "", "approve", "reviews")
	s.expect(0, "Canary SPACE/reviews: batch 2 is approved already\n", "", "approve", "reviews")
	after := s.get()
	if *after.Spec.Info.CurrentBatch != intstr.FromString("2") {
		t.Errorf("currentBatch is %#v", after.Spec.Info.CurrentBatch)
	}
	managers := map[string]bool{}
	for _, entry := range after.ManagedFields {
		managers[entry.Manager] = true
	}
	if !managers["kubectl-canary"] {
		t.Errorf("the field managers are %v", managers)
	}
	s.expect(1, "", "error: Canary SPACE/reviews: --batch is 5, the rollout has 4 batches", "approve", "reviews", "--batch", "5")
	s.status(at(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released"))
	s.expect(1, "", "error: Canary SPACE/reviews: the rollout is completed, nothing waits for approval\n", "approve", "reviews")
	s.expect(2, "", "error: the name of a Canary is required\nSee 'kubectl canary approve --help'.\n", "approve")
}

// TestApproveWhileOthersWrite approves while the status changes all the time: the patch is
// bound to what was looked at, and is made again until it fits.
func TestApproveWhileOthersWrite(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(func(c *v1alpha1.Canary) { c.Spec.Gate = nil })
	s.status(at(v1alpha1.PhaseAwaitingApproval, 1, available))
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		api := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name)
		for n := int32(0); ctx.Err() == nil; n++ {
			if c, err := api.Get(ctx, "reviews", metav1.GetOptions{}); err == nil {
				c.Status.New.AvailableReplicas = n
				_, _ = api.UpdateStatus(ctx, c, metav1.UpdateOptions{})
			}
		}
	})
	s.expect(0, "batch 2 of 4 approved", "", "approve", "reviews")
	s.expect(0, "paused", "", "pause", "reviews")
	stop()
	writer.Wait()
	if c := s.get(); c.Spec.Info.CurrentBatch.String() != "2" || !c.Spec.Paused {
		t.Errorf("the spec is %+v", c.Spec)
	}
}

func TestApproveWithoutEvidence(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create()
	c := s.status(at(v1alpha1.PhaseAwaitingApproval, 2, "batch 2 waits for a person"), judged(v1alpha1.VerdictNoData, "0%", few, 0, 12, "0%"), gatePaused)
	s.expect(1, "", "error: Canary SPACE/reviews: the gate has paused batch 2: NoData: error-rate is NoData: "+few+"; --without-evidence lets it through", "approve", "reviews")
	s.expect(2, "", "the gate says NoData: error-rate is NoData: "+few+"; without a terminal to confirm on, --yes is needed", "approve", "reviews", "--without-evidence")
	if after := s.get(); after.ResourceVersion != c.ResourceVersion {
		t.Error("a refusal changed something")
	}
	s.expect(0, "Canary SPACE/reviews: batch 2 let through without evidence, batch 3 approved\n", "", "approve", "reviews", "--without-evidence", "--yes")
	after := s.get()
	if got, want := after.Annotations[v1alpha1.AnnotationPromote], c.Status.Rollout.ID+"/2"; got != want || after.Spec.Info.CurrentBatch.String() != "3" {
		t.Errorf("the annotation is %q, want %q; currentBatch %s", got, want, after.Spec.Info.CurrentBatch)
	}
	s.status()
	s.expect(0, "Canary SPACE/reviews: batch 2 is let through already\n", "", "approve", "reviews", "--without-evidence", "--yes")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create()
	s.status(at(v1alpha1.PhaseProgressing, 2, "batch 2: 2 of 3 replicas"))
	s.expect(0, "Canary SPACE/reviews: paused; what runs keeps running\n", "", "pause", "reviews")
	s.expect(0, "Canary SPACE/reviews: is paused already\n", "", "pause", "reviews")
	if !s.get().Spec.Paused {
		t.Error("it is not paused")
	}
	s.expect(0, "resumed (server dry run)\n", "", "resume", "reviews", "--dry-run=server")
	s.expect(0, "Canary SPACE/reviews: resumed\n", "", "resume", "reviews")
	s.expect(0, "Canary SPACE/reviews: is not paused\n", "", "resume", "reviews")
	if s.get().Spec.Paused {
		t.Error("it is still paused")
	}
	s.status(at(v1alpha1.PhaseRollingBack, 2, "rolling back"), turned("the gate failed"))
	s.expect(1, "", "spec.paused does not hold a rollback", "pause", "reviews")
}

func TestRollbackAndRetry(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(func(c *v1alpha1.Canary) { c.Spec.Info.CurrentBatch = new(intstr.FromInt32(3)) })
	s.status(at(v1alpha1.PhaseProgressing, 2, "batch 2: 2 of 3 replicas"))
	s.expect(1, "", "the rollout is under way (Progressing)", "retry", "reviews")
	s.expect(0, "rollback to reviews-v1 requested (type was CanaryDeploy) (server dry run)\n", "", "rollback", "reviews", "--dry-run=server")
	s.expect(0, "Canary SPACE/reviews: rollback to reviews-v1 requested (type was CanaryDeploy)\n", "", "rollback", "reviews")
	s.expect(0, "Canary SPACE/reviews: a rollback is requested already\n", "", "rollback", "reviews")
	promoted := s.get()
	promoted.Annotations = map[string]string{v1alpha1.AnnotationPromote: promoted.Status.Rollout.ID + "/1"}
	if _, err := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Update(t.Context(), promoted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.status(at(v1alpha1.PhaseRolledBack, 2, "rolled back"), turned("requested by spec.info.type CanaryRollback"), ended(v1alpha1.OutcomeRolledBack))
	s.expect(0, "Canary SPACE/reviews: is rolled back already: requested by spec.info.type CanaryRollback\n", "", "rollback", "reviews")
	s.expect(0, "Canary SPACE/reviews: retry requested, type set back from CanaryRollback to CanaryDeploy, approvals start again (currentBatch was 3), evidence counts again\n", "", "retry", "reviews")
	c := s.get()
	if _, left := c.Annotations[v1alpha1.AnnotationPromote]; left || c.Spec.Info.Type != v1alpha1.CanaryDeploy || *c.Spec.Info.CurrentBatch != intstr.FromInt32(1) || c.Annotations[v1alpha1.AnnotationRetry] == "" {
		t.Errorf("the Canary is %v %+v", c.Annotations, c.Spec.Info)
	}
	s.expect(0, "a retry is requested already\n", "", "retry", "reviews")

	first := newSpace(t)
	first.create(func(c *v1alpha1.Canary) { c.Spec.Info.OldDeploymentYaml = "" })
	first.expect(1, "", "there is no old version to go back to", "rollback", "reviews")
}

// TestWaiting holds every exit code of a wait, with the operator's part played by the test.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from     []func(*v1alpha1.Canary)
		args     []string
		then     [][]func(*v1alpha1.Canary)
		code     int
		out, err string
	}{
		"approve": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseAwaitingApproval, 1, available)}, []string{"approve", "reviews", "--wait", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{at(v1alpha1.PhaseProgressing, 2, "batch 2: 2 of 3 replicas")}, {at(v1alpha1.PhaseAwaitingApproval, 2, "batch 2 is available")}},
			0, "Canary SPACE/reviews: batch 2 of 4 approved (currentBatch was 1)\nCanary SPACE/reviews: AwaitingApproval: batch 2 is available\n", "Progressing  batch 2/4",
		},
		"rollback": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseAwaitingApproval, 1, available)}, []string{"rollback", "reviews", "--wait", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{at(v1alpha1.PhaseRollingBack, 1, "rolling back"), turned("x")}, {at(v1alpha1.PhaseRolledBack, 1, "reviews-v1 is back"), turned("x"), ended(v1alpha1.OutcomeRolledBack)}},
			0, "Canary SPACE/reviews: RolledBack: reviews-v1 is back\n", "",
		},
		"retry that fails again": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseFailed, 1, "batch 1 was not available"), ended(v1alpha1.OutcomeFailed)}, []string{"retry", "reviews", "--wait", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{answered, at(v1alpha1.PhaseProgressing, 1, "batch 1: 0 of 1 replicas")}, {at(v1alpha1.PhaseFailed, 1, "batch 1 was not available"), ended(v1alpha1.OutcomeFailed)}},
			4, "retry requested", "did not come to its end or the next approval: Failed, batch 1/4: batch 1 was not available",
		},
		"resume": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseProgressing, 1, "spec.paused holds the next step")}, []string{"resume", "reviews", "--wait", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{at(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released"), ended(v1alpha1.OutcomeCompleted)}},
			0, "Completed: reviews-v2 is released\n", "",
		},
		"status, reached": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseProgressing, 1, "batch 1")}, []string{"status", "reviews", "--wait=completed,rolledback", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{at(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released"), ended(v1alpha1.OutcomeCompleted)}},
			0, "nothing: the release is complete", "",
		},
		"status, otherwise": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseProgressing, 1, "batch 1")}, []string{"status", "reviews", "--wait=Completed", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{at(v1alpha1.PhaseRolledBack, 1, "the gate failed"), ended(v1alpha1.OutcomeRolledBack)}},
			4, "", "error: Canary SPACE/reviews did not come to Completed: RolledBack, batch 1/4: the gate failed\n",
		},
		"status, timeout": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseProgressing, 1, "batch 1")}, []string{"status", "reviews", "--wait=Completed", "--timeout=300ms"},
			nil, 5, "", "error: timed out after 300ms waiting for Completed; Canary SPACE/reviews is Progressing, batch 1/4: batch 1\n",
		},
		"watch as lines": {
			[]func(*v1alpha1.Canary){at(v1alpha1.PhaseProgressing, 1, "batch 1")}, []string{"status", "reviews", "-w", "--wait=Completed", "--timeout=80s"},
			[][]func(*v1alpha1.Canary){{at(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released")}},
			0, "Z  Completed  batch 4/4  new 8/8  old 0/0  reviews-v2 is released\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create(func(c *v1alpha1.Canary) { c.Spec.Gate, c.Spec.Paused = nil, name == "resume" })
			before := s.status(tc.from...)
			var operator sync.WaitGroup
			operator.Go(func() {
				if tc.args[0] != "status" {
					// What it answers must be there first.
					if err := poll(func() error {
						if s.get().ResourceVersion == before.ResourceVersion {
							return os.ErrNotExist
						}
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
				for _, edits := range tc.then {
					s.status(edits...)
				}
			})
			got := s.expect(tc.code, tc.out, tc.err, tc.args...)
			operator.Wait()
			if strings.Contains(got.out+got.err, "\x1b") {
				t.Errorf("escapes without a terminal: %q", got.out+got.err)
			}
		})
	}
}

func answered(c *v1alpha1.Canary) {
	c.Status.Rollout.Retry = c.Annotations[v1alpha1.AnnotationRetry]
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create()
	s.status(at(v1alpha1.PhaseProgressing, 1, "batch 1"))
	s.expect(1, "", "error: listing Canaries: you are not allowed to: ", "list", "--as=nobody")
	s.expect(1, "", `error: reading Canary SPACE/reviews: you are not allowed to: canaries.canarycontroller.tech.com "reviews" is forbidden: User "nobody" cannot get resource "canaries"`, "status", "reviews", "--as=nobody")

	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"canaries"}, Verbs: []string{"get"}}}}
	if _, err := env.kube.RbacV1().Roles(s.name).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}}}
	if _, err := env.kube.RbacV1().RoleBindings(s.name).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := poll(func() error {
		if got := run(t.Context(), nil, "-n", s.name, "status", "reviews", "--as=reader"); got.code != 0 {
			return os.ErrPermission
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.expect(1, "", "error: pausing Canary SPACE/reviews: you are not allowed to: ", "pause", "reviews", "--as=reader")
	// Who may read but not watch waits as well.
	var operator sync.WaitGroup
	operator.Go(func() { s.status(at(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released")) })
	s.expect(0, "nothing: the release is complete", "", "status", "reviews", "--as=reader", "--wait=Completed", "--timeout=80s")
	operator.Wait()
}

func TestConnections(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.expect(1, "", "error: listing Canaries: cannot reach the API server: ", "list", "--server=https://127.0.0.1:1")
	s.expect(1, "", "error: reading the kubeconfig: stat /missing", "list", "--kubeconfig=/missing")
	s.expect(1, "", `error: reading the kubeconfig: context "other" does not exist`, "list", "--context=other")
	s.expectWith([]string{"KUBECONFIG="}, 1, "", "error: reading the kubeconfig: no kubeconfig; set KUBECONFIG or --kubeconfig\n", "list")
}

// TestAPIServerRestarts waits over a crash of the API server. It is serial: the others
// need one.
func TestAPIServerRestarts(t *testing.T) {
	s := newSpace(t)
	s.create()
	s.status(at(v1alpha1.PhaseProgressing, 1, "batch 1"))
	done := make(chan result, 1)
	go func() {
		done <- run(t.Context(), nil, "-n", s.name, "status", "reviews", "--wait=Completed", "--timeout=80s")
	}()
	if err := env.lab.RestartAPIServer(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := poll(func() error {
		_, err := env.canaries.CanarycontrollerV1alpha1().Canaries(s.name).Get(t.Context(), "reviews", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.status(at(v1alpha1.PhaseCompleted, 4, "reviews-v2 is released"))
	if got := <-done; got.code != 0 || !strings.Contains(got.out, "nothing: the release is complete") {
		t.Error(got)
	}
}

// TestCompletionOfNames asks as kubectl does, by the name under which it looks for it.
func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create()
	s.status(at(v1alpha1.PhaseAwaitingApproval, 1, available))
	link := filepath.Join(t.TempDir(), "kubectl_complete-canary")
	if err := os.Symlink(env.binary, link); err != nil {
		t.Fatal(err)
	}
	got := runAs(t.Context(), link, "-n", s.name, "approve", "")
	if got.code != 0 || !strings.HasPrefix(got.out, "reviews\tAwaitingApproval\n") {
		t.Error(got)
	}
	if got := runAs(t.Context(), env.binary, "-n", s.name, "__complete", "rollback", "rev"); !strings.HasPrefix(got.out, "reviews\tAwaitingApproval\n") {
		t.Error(got)
	}
}
