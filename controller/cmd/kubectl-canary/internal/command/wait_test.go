package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// patience bounds what a test waits for; a test that passes does not use it up.
const patience = 20 * time.Second

// controller plays the operator: it answers each state of the Canary that it sees with the
// next of its statuses, until they are used up.
func (r *run) controller(steps ...func(*v1alpha1.Canary)) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	done := make(chan struct{})
	api := r.client.CanarycontrollerV1alpha1().Canaries("prod")
	go func() {
		defer close(done)
		// The command reads first, and then watches: only then is there somebody to tell.
		for !r.watched() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		for n, step := range steps {
			c, err := api.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return
			}
			c.ResourceVersion = fmt.Sprint(100 + n)
			c.Status.ObservedGeneration = c.Generation
			step(c)
			if _, err := api.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (r *run) watched() bool {
	for _, action := range r.client.Actions() {
		if action.GetVerb() == "watch" {
			return true
		}
	}
	return false
}

func batch(n int32, p v1alpha1.Phase) func(*v1alpha1.Canary) {
	return func(c *v1alpha1.Canary) {
		c.Status.CurrentBatch, c.Status.Batch, c.Status.Phase = n, fmt.Sprintf("%d/4", n), p
		c.Status.Message = fmt.Sprintf("batch %d %s", n, p)
	}
}

func TestWaitAndItsExitCodes(t *testing.T) {
	const progressing, awaiting, completed = v1alpha1.PhaseProgressing, v1alpha1.PhaseAwaitingApproval, v1alpha1.PhaseCompleted
	const rolling, rolled, failedPhase = v1alpha1.PhaseRollingBack, v1alpha1.PhaseRolledBack, v1alpha1.PhaseFailed
	answered := func(c *v1alpha1.Canary) { c.Status.Rollout.Retry = c.Annotations[v1alpha1.AnnotationRetry] }
	for name, tc := range map[string]struct {
		c        *v1alpha1.Canary
		args     string
		steps    []func(*v1alpha1.Canary)
		code     int
		out, err string
	}{
		"approve": {canary("web"), "approve web --wait", []func(*v1alpha1.Canary){batch(1, progressing), batch(2, progressing), batch(2, awaiting)}, exitDone,
			"Canary prod/web: AwaitingApproval: batch 2 AwaitingApproval\n", "Progressing  batch 2/4"},
		"approve, complete":     {canary("web"), "approve web --wait", []func(*v1alpha1.Canary){batch(2, progressing), batch(4, completed)}, exitDone, "Canary prod/web: Completed: batch 4 Completed\n", ""},
		"approve, rolled back":  {canary("web"), "approve web --wait", []func(*v1alpha1.Canary){batch(2, rolling), batch(2, rolled)}, exitOtherwise, "", "error: Canary prod/web did not come to its end or the next approval: RolledBack, batch 2/4: batch 2 RolledBack\n"},
		"rollback":              {canary("web"), "rollback web --wait", []func(*v1alpha1.Canary){batch(1, rolling), batch(1, rolled)}, exitDone, "Canary prod/web: RolledBack: batch 1 RolledBack\n", ""},
		"rollback, overtaken":   {canary("web"), "rollback web --wait", []func(*v1alpha1.Canary){batch(1, rolling), batch(4, completed)}, exitOtherwise, "", "did not come to RolledBack: Completed"},
		"retry":                 {canary("web", phase(rolled)), "retry web --wait", []func(*v1alpha1.Canary){func(c *v1alpha1.Canary) { answered(c); batch(1, progressing)(c) }, batch(1, awaiting)}, exitDone, "Canary prod/web: AwaitingApproval", ""},
		"retry, the same again": {canary("web", phase(rolled)), "retry web --wait", []func(*v1alpha1.Canary){func(c *v1alpha1.Canary) { answered(c); batch(1, progressing)(c) }, batch(1, failedPhase)}, exitOtherwise, "", "Failed"},
		"resume":                {canary("web", phase(progressing), func(c *v1alpha1.Canary) { c.Spec.Paused = true }), "resume web --wait", []func(*v1alpha1.Canary){batch(1, awaiting)}, exitDone, "AwaitingApproval", ""},
		"status":                {canary("web"), "status web --wait=Completed,RolledBack", []func(*v1alpha1.Canary){batch(2, progressing), batch(2, rolled)}, exitDone, "Canary prod/web", ""},
		"status, otherwise":     {canary("web"), "status web --wait=completed", []func(*v1alpha1.Canary){batch(2, progressing), batch(2, rolled)}, exitOtherwise, "", "did not come to Completed: RolledBack"},
		"status, timeout":       {canary("web"), "status web --wait=Completed --timeout=30ms", nil, exitTimeout, "", "error: timed out after 30ms waiting for Completed; Canary prod/web is AwaitingApproval, batch 1/4: batch 1 is available\n"},
		"watch, timeout":        {canary("web"), "status web -w --timeout=30ms", nil, exitTimeout, "2026-11-30T10:00:00Z  AwaitingApproval  batch 1/4  batch 1 is available\n", "timed out after 30ms"},
		"watch until":           {canary("web"), "status web -w --wait=Completed", []func(*v1alpha1.Canary){batch(2, progressing), batch(4, completed)}, exitDone, "2026-11-30T10:00:00Z  Completed  batch 4/4  batch 4 Completed\n", ""},
		"approve, timeout":      {canary("web"), "approve web --wait --timeout=30ms", []func(*v1alpha1.Canary){batch(1, progressing)}, exitTimeout, "batch 2 of 4 approved", "timed out after 30ms"},
		"status, at once":       {canary("web", phase(completed)), "status web --wait=Completed", nil, exitDone, "Canary prod/web", ""},
		"approve, paused by gate": {canary("web"), "approve web --wait", []func(*v1alpha1.Canary){func(c *v1alpha1.Canary) {
			batch(2, awaiting)(c)
			c.Status.Gate = &v1alpha1.GateStatus{Batch: 2, PausedAt: new(metav1.NewTime(moment)), Message: "too few requests"}
		}}, exitOtherwise, "", "the gate has paused batch 2 for a person: too few requests"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, tc.c)
			defer r.controller(tc.steps...)()
			r.expect(tc.code, tc.out, tc.err, strings.Fields(tc.args)...)
		})
	}
}

func TestWatchAsObjects(t *testing.T) {
	r := newRun(t, canary("web"))
	defer r.controller(batch(2, v1alpha1.PhaseProgressing), batch(4, v1alpha1.PhaseCompleted))()
	r.expect(exitDone, "", "", "status", "web", "-w", "--wait=Completed", "-o", "yaml")
	if n := strings.Count(r.out.String(), "---\napiVersion: canarycontroller.tech.com/v1alpha1\nkind: Canary\n"); n != 3 {
		t.Errorf("%d objects, want 3:\n%s", n, r.out.String())
	}
}

func TestDeletedWhileWatched(t *testing.T) {
	r := newRun(t, canary("web"))
	stop := r.controller(func(*v1alpha1.Canary) {
		if err := r.client.CanarycontrollerV1alpha1().Canaries("prod").Delete(context.WithoutCancel(t.Context()), "web", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	defer stop()
	r.expect(exitNotFound, "", "error: Canary prod/web was deleted\n", "status", "web", "-w")
}

func TestInterrupted(t *testing.T) {
	r := newRun(t, canary("web"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		for !r.watched() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if code := r.exec(ctx, "status", "web", "-w"); code != exitInterrupted || !strings.Contains(r.err.String(), "interrupted\n") {
		t.Errorf("ends with %d: %s", code, r.err.String())
	}
}

// TestWatchOverFailures lets the API server go away, forget the version and refuse to be
// watched: the wait goes on and says once what is the matter.
func TestWatchOverFailures(t *testing.T) {
	r := newRun(t, canary("web"))
	watches, gets := 0, 0
	r.client.PrependWatchReactor("canaries", func(clienttesting.Action) (bool, watch.Interface, error) {
		watches++
		w := watch.NewFakeWithChanSize(1, false)
		switch watches {
		case 1:
			w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		case 2:
			w.Stop()
		case 3:
			return true, nil, &url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")}
		default:
			return true, nil, apierrors.NewForbidden(v1alpha1.Resource("canaries"), "", errors.New("no watching"))
		}
		return true, w, nil
	})
	r.client.PrependReactor("get", "canaries", func(clienttesting.Action) (bool, runtime.Object, error) {
		gets++
		switch {
		case gets == 4:
			return true, nil, &url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")}
		case gets > 6:
			return true, canary("web", batch(4, v1alpha1.PhaseCompleted), func(c *v1alpha1.Canary) { c.ResourceVersion = "99" }), nil
		}
		return false, nil, nil
	})
	r.expect(exitDone, "Completed", `cannot see the Canary, trying on: Get "https://x": connection refused`, "status", "web", "--wait=Completed")
	if strings.Contains(r.err.String(), "no watching") {
		t.Errorf("where watching is not allowed, reading does: %s", r.err.String())
	}

	r = newRun(t, canary("web"))
	r.client.PrependWatchReactor("canaries", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, &url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")}
	})
	first := true
	r.client.PrependReactor("get", "canaries", func(clienttesting.Action) (bool, runtime.Object, error) {
		if first {
			first = false
			return false, nil, nil
		}
		return true, nil, &url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")}
	})
	r.expect(exitTimeout, "", "timed out after 50ms: the API server cannot be reached: Get", "status", "web", "--wait=Completed", "--timeout=50ms")
	if n := strings.Count(r.err.String(), "trying on"); n != 1 {
		t.Errorf("the trouble is told %d times:\n%s", n, r.err.String())
	}
}
