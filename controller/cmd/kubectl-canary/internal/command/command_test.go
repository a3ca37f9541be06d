package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var moment = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// canary is one that waits for the approval of its second batch of four.
func canary(name string, edits ...func(*v1alpha1.Canary)) *v1alpha1.Canary {
	c := &v1alpha1.Canary{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "prod", ResourceVersion: "7", Generation: 2, CreationTimestamp: metav1.NewTime(moment.Add(-time.Hour))}}
	c.Spec.Info = v1alpha1.CanaryInfo{
		Type: v1alpha1.CanaryDeploy, TotalBatches: new(intstr.FromString("4")), CurrentBatch: new(intstr.FromString("1")), PauseType: v1alpha1.PauseEach,
		NewDeploymentYaml: "metadata: {name: web-v2}", OldDeploymentYaml: "metadata: {name: web-v1}",
	}
	c.Status = v1alpha1.CanaryStatus{
		ObservedGeneration: 2, Phase: v1alpha1.PhaseAwaitingApproval, CurrentBatch: 1, Batch: "1/4", Message: "batch 1 is available",
		Rollout: &v1alpha1.RolloutStatus{ID: "v1-abc", StartedAt: metav1.NewTime(moment)},
		Batches: []v1alpha1.BatchStatus{{Target: 1, AvailableAt: new(metav1.NewTime(moment))}},
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func phase(p v1alpha1.Phase) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) { c.Status.Phase = p }
}

func gated(verdict v1alpha1.Verdict) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Spec.Gate = &v1alpha1.Gate{}
		c.Status.Phase = v1alpha1.PhaseAnalyzing
		c.Status.Gate = &v1alpha1.GateStatus{Batch: 1, Verdict: verdict, Checks: []v1alpha1.CheckStatus{{Name: "errors", Verdict: verdict, Message: "12 requests"}}}
	}
}

// run is one run of the program with a fake API server.
type run struct {
	t        *testing.T
	client   *fake.Clientset
	out, err lockedBuffer
	env      map[string]string
	in       string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRun(t *testing.T, objects ...runtime.Object) *run {
	return &run{t: t, client: fake.NewSimpleClientset(objects...), env: map[string]string{"LANG": "C.UTF-8"}}
}

func (r *run) exec(ctx context.Context, args ...string) int {
	a := newApp(Invocation{
		Args: append([]string{"kubectl-canary"}, args...), Version: "test", In: strings.NewReader(r.in), Out: &r.out, Err: &r.err,
		Getenv: func(name string) string { return r.env[name] },
	})
	a.canaries, a.space, a.tick = r.client, "prod", time.Millisecond
	a.now = func() time.Time { return moment }
	return a.run(ctx)
}

// expect runs a command and holds its exit code and parts of what it prints.
func (r *run) expect(code int, out, err string, args ...string) {
	r.t.Helper()
	if got := r.exec(r.t.Context(), args...); got != code {
		r.t.Errorf("%v ends with %d, want %d\n%s%s", args, got, code, r.out.String(), r.err.String())
	}
	if !strings.Contains(r.out.String(), out) || !strings.Contains(r.err.String(), err) {
		r.t.Errorf("%v prints\n%s%s\nwant %q and %q", args, r.out.String(), r.err.String(), out, err)
	}
}

func (r *run) get(name string) *v1alpha1.Canary {
	r.t.Helper()
	c, err := r.client.CanarycontrollerV1alpha1().Canaries("prod").Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *run) patches() []clienttesting.PatchAction {
	var list []clienttesting.PatchAction
	for _, action := range r.client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			list = append(list, patch)
		}
	}
	return list
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"bogus":                                  `unknown command or argument "bogus"`,
		"status":                                 "the name of a Canary is required",
		"status a b":                             "one name is expected, not 2: a b",
		"status web --nonsense":                  "unknown flag: --nonsense",
		"status web -o table":                    `-o is "table", it must be one of json, yaml`,
		"status web --wait=Complete":             `--wait: "Complete" is no phase`,
		"status web --timeout=1s":                "--timeout goes with --wait",
		"status web -w --timeout=-1s":            "must not be negative",
		"status web --width=5":                   "--width is 5, it must be at least 20",
		"status web --color=pink":                `--color is "pink"`,
		"list web":                               `unknown command or argument "web"`,
		"list -o xml":                            `-o is "xml"`,
		"approve":                                "the name of a Canary is required",
		"approve web --batch=0":                  "--batch is 0, it must be at least 1",
		"approve web --batch=x":                  "invalid argument",
		"approve web --yes":                      "--yes goes with --without-evidence",
		"approve web --dry-run=maybe":            `--dry-run is "maybe"`,
		"approve web --wait --dry-run=server":    "--wait makes no sense with --dry-run",
		"pause web --wait":                       "unknown flag: --wait",
		"rollback web --timeout=5s":              "--timeout goes with --wait",
		"why web --jaeger-url=ftp://x":           "must be an http or https URL",
		"lint":                                   "a file is required",
		"new":                                    "the name of one Deployment is required",
		"new web":                                "--image is required",
		"new web --image=":                       "is not [CONTAINER=]IMAGE",
		"new web --image=a:1 --gate-max=1%":      "needs both --gate-preset and --gate-max",
		"new web --image=a:1 --pause-type=Never": `--pause-type is "Never"`,
		"new web --image=a:1 --batches=1 --total-batches=3": "exclude each other",
		"version x": `unknown command or argument "x"`,
	} {
		t.Run(args, func(t *testing.T) {
			r := newRun(t)
			r.expect(exitUsage, "", want, strings.Fields(args)...)
			if !strings.Contains(r.err.String(), "See 'kubectl canary") {
				t.Errorf("no word of --help: %s", r.err.String())
			}
		})
	}
}

func TestHelpNamesExitCodes(t *testing.T) {
	for _, command := range []string{"", "status", "approve", "pause", "resume", "rollback", "retry", "why", "new"} {
		r := newRun(t)
		r.expect(exitDone, exitHelp, "", strings.Fields(command+" --help")...)
	}
}

func TestList(t *testing.T) {
	other := canary("api")
	other.Namespace = "test"
	objects := []runtime.Object{canary("web"), other}
	for name, tc := range map[string]struct {
		args []string
		out  string
		err  string
	}{
		"a table":         {[]string{"list"}, "NAME   TYPE           PHASE              BATCH   NEW   OLD   VERDICT   AGE\nweb    CanaryDeploy   AwaitingApproval   1/4     -     -     -         60m\n", ""},
		"all namespaces":  {[]string{"list", "-A", "--no-headers"}, "prod   web   CanaryDeploy   AwaitingApproval   1/4   -   -   -   60m\ntest   api   CanaryDeploy", ""},
		"wide":            {[]string{"list", "-o", "wide"}, "MESSAGE\nweb    CanaryDeploy   AwaitingApproval   1/4     -     -     -         60m   batch 1 is available\n", ""},
		"names":           {[]string{"list", "-o", "name"}, "canary.canarycontroller.tech.com/web\n", ""},
		"none":            {[]string{"list", "-l", "app=x"}, "", "no Canaries in namespace prod"},
		"none everywhere": {[]string{"list", "-A", "-l", "app=x"}, "", "no Canaries in any namespace"},
	} {
		t.Run(name, func(t *testing.T) { newRun(t, objects...).expect(exitDone, tc.out, tc.err, tc.args...) })
	}
	for _, format := range []string{"json", "yaml"} {
		r := newRun(t, objects...)
		r.expect(exitDone, "", "", "list", "-A", "-o", format)
		var list v1alpha1.CanaryList
		if err := yaml.UnmarshalStrict([]byte(r.out.String()), &list); err != nil || list.Kind != "CanaryList" || len(list.Items) != 2 || list.Items[0].Kind != "Canary" {
			t.Errorf("%s: %v\n%s", format, err, r.out.String())
		}
	}
	r := newRun(t)
	r.expect(exitDone, `"items": []`, "", "list", "-o", "json")
}

func TestListReadsAllPages(t *testing.T) {
	r := newRun(t)
	r.client.PrependReactor("list", "canaries", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		page := &v1alpha1.CanaryList{Items: []v1alpha1.Canary{*canary("page-" + options.Continue)}}
		if options.Limit != pageSize {
			t.Errorf("asked for %d", options.Limit)
		}
		if options.Continue == "" {
			page.Continue = "two"
		}
		return true, page, nil
	})
	r.expect(exitDone, "canary.canarycontroller.tech.com/page-\ncanary.canarycontroller.tech.com/page-two\n", "", "list", "-o", "name")
}

func TestStatusAndWhy(t *testing.T) {
	newRun(t, canary("web")).expect(exitDone, "Waits for  a person's approval", "", "status", "web")
	newRun(t, canary("web")).expect(exitNotFound, "", "error: Canary prod/api not found", "status", "api")
	newRun(t, canary("web")).expect(exitNotFound, "", "error: Canary prod/api not found", "why", "api")
	newRun(t, canary("web")).expect(exitNotFound, "", "error: Canary prod/api not found", "approve", "api")
	traced := canary("web", func(c *v1alpha1.Canary) { c.Status.Rollout.TraceID = "abcd" })
	newRun(t, traced).expect(exitDone, "Trace      abcd\n", "", "why", "web")
	newRun(t, traced).expect(exitDone, "Trace      http://jaeger/trace/abcd\n", "", "why", "web", "--jaeger-url", "http://jaeger/")
	r := newRun(t, traced)
	r.env[jaegerEnv] = "http://other"
	r.expect(exitDone, `"traceURL": "http://other/trace/abcd"`, "", "why", "web", "-o", "json")

	r = newRun(t, canary("web"))
	r.env["LANG"] = "C"
	r.expect(exitDone, "Canary prod/web", "", "status", "web", "--color=always")
	if strings.ContainsFunc(r.out.String(), func(c rune) bool { return c > 127 }) || !strings.Contains(r.out.String(), "\x1b[") {
		t.Errorf("not ASCII in colour: %s", r.out.String())
	}
	r = newRun(t, canary("web"))
	r.env["COLUMNS"] = "160"
	r.expect(exitDone, strings.Repeat(" ", 120)+"", "", "status", "web")
	r = newRun(t, canary("web"))
	r.expect(exitDone, "", "", "status", "web", "-o", "yaml")
	var c v1alpha1.Canary
	if err := yaml.UnmarshalStrict([]byte(r.out.String()), &c); err != nil || c.Kind != "Canary" || c.Status.Phase != v1alpha1.PhaseAwaitingApproval {
		t.Errorf("%v\n%s", err, r.out.String())
	}
}

func TestMutations(t *testing.T) {
	for name, tc := range map[string]struct {
		c     *v1alpha1.Canary
		args  string
		out   string
		check func(*v1alpha1.Canary) bool
	}{
		"approve":  {canary("web"), "approve web", "Canary prod/web: batch 2 of 4 approved (currentBatch was 1)\n", func(c *v1alpha1.Canary) bool { return *c.Spec.Info.CurrentBatch == intstr.FromString("2") }},
		"pause":    {canary("web"), "pause web", "Canary prod/web: paused; what runs keeps running\n", func(c *v1alpha1.Canary) bool { return c.Spec.Paused }},
		"resume":   {canary("web", func(c *v1alpha1.Canary) { c.Spec.Paused = true }), "resume web", "Canary prod/web: resumed; it still waits for an approval: kubectl canary approve web\n", func(c *v1alpha1.Canary) bool { return !c.Spec.Paused }},
		"rollback": {canary("web"), "rollback web", "Canary prod/web: rollback to web-v1 requested (type was CanaryDeploy)\n", func(c *v1alpha1.Canary) bool { return c.Spec.Info.Type == v1alpha1.CanaryRollback }},
		"retry": {canary("web", phase(v1alpha1.PhaseRolledBack), func(c *v1alpha1.Canary) { c.Spec.Info.Type = v1alpha1.CanaryRollback }), "retry web",
			"Canary prod/web: retry requested, type set back from CanaryRollback to CanaryDeploy\n", func(c *v1alpha1.Canary) bool {
				return c.Spec.Info.Type == v1alpha1.CanaryDeploy && c.Annotations[v1alpha1.AnnotationRetry] == "2026-11-30T10:00:00Z"
			}},
		"without evidence": {canary("web", gated(v1alpha1.VerdictNoData)), "approve web --without-evidence -y", "Canary prod/web: batch 1 let through without evidence, batch 2 approved\n",
			func(c *v1alpha1.Canary) bool { return c.Annotations[v1alpha1.AnnotationPromote] == "v1-abc/1" }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, tc.c)
			r.expect(exitDone, tc.out, "", strings.Fields(tc.args)...)
			if !tc.check(r.get("web")) {
				t.Errorf("the Canary is %+v", r.get("web").Spec)
			}
			patch := r.patches()[0].(clienttesting.PatchActionImpl)
			if patch.PatchOptions.FieldManager != fieldManager || patch.PatchOptions.FieldValidation != metav1.FieldValidationStrict {
				t.Errorf("patched with %+v", patch.PatchOptions)
			}

			// With a dry run nothing is sent, or the API server is told so.
			r = newRun(t, tc.c)
			r.expect(exitDone, " (client dry run)\n", "", append(strings.Fields(tc.args), "--dry-run=client")...)
			if len(r.patches()) != 0 {
				t.Error("a client dry run sent a patch")
			}
			r = newRun(t, tc.c)
			r.expect(exitDone, " (server dry run)\n", "", append(strings.Fields(tc.args), "--dry-run=server")...)
			if patch := r.patches()[0].(clienttesting.PatchActionImpl); !slices.Equal(patch.PatchOptions.DryRun, []string{metav1.DryRunAll}) {
				t.Errorf("patched with %+v", patch.PatchOptions)
			}
		})
	}
	r := newRun(t, canary("web", phase(v1alpha1.PhaseCompleted)))
	r.expect(exitError, "", "error: Canary prod/web: the rollout is completed, nothing waits for approval\n", "approve", "web")
	if len(r.patches()) > 0 {
		t.Error("a refused command sent a patch")
	}
	r = newRun(t, canary("web"))
	r.expect(exitDone, `"currentBatch": "2"`, "Canary prod/web: batch 2 of 4 approved", "approve", "web", "-o", "json")
	if !json.Valid([]byte(r.out.String())) {
		t.Errorf("not JSON: %s", r.out.String())
	}
}

func TestEvidenceIsNotWaivedUnasked(t *testing.T) {
	r := newRun(t, canary("web", gated(v1alpha1.VerdictFail)))
	r.in = "yes\n"
	r.expect(exitUsage, "", "the gate says Fail: errors is Fail: 12 requests; without a terminal to confirm on, --yes is needed", "approve", "web", "--without-evidence")
	if len(r.patches()) > 0 {
		t.Error("it was approved")
	}
}

// TestConflicts lets others write first, and holds that the batch that the first look saw
// is approved, not a later one.
func TestConflicts(t *testing.T) {
	r := newRun(t, canary("web"))
	attempts := 0
	r.client.PrependReactor("patch", "canaries", func(action clienttesting.Action) (bool, runtime.Object, error) {
		attempts++
		if attempts > 2 {
			return false, nil, nil
		}
		moved := canary("web", func(c *v1alpha1.Canary) {
			c.ResourceVersion = fmt.Sprint(7 + attempts)
			c.Spec.Info.CurrentBatch = new(intstr.FromString(fmt.Sprint(attempts)))
			c.Status.CurrentBatch, c.Status.Batch = int32(attempts), fmt.Sprintf("%d/4", attempts)
		})
		if err := r.client.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource("canaries"), moved, "prod"); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(v1alpha1.Resource("canaries"), "web", errors.New("changed"))
	})
	r.expect(exitDone, "Canary prod/web: batch 2 is approved already\n", "", "approve", "web")
	if attempts != 2 {
		t.Errorf("%d attempts", attempts)
	}
	if got := string(r.patches()[1].GetPatch()); !strings.Contains(got, `"currentBatch":"2"`) || !strings.Contains(got, `"resourceVersion":"8"`) {
		t.Errorf("the second patch is %s", got)
	}

	r = newRun(t, canary("web"))
	r.client.PrependReactor("patch", "canaries", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(v1alpha1.Resource("canaries"), "web", errors.New("changed"))
	})
	r.expect(exitError, "", "approving Canary prod/web", "approve", "web")
	if n := len(r.patches()); n != attemptsLimit {
		t.Errorf("%d attempts, want %d", n, attemptsLimit)
	}
}
