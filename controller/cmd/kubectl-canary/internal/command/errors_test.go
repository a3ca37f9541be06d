package command

import (
	"encoding/json"
	"errors"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestErrorsAreClear(t *testing.T) {
	resource := v1alpha1.Resource("canaries")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no CRD":          {apierrors.NewGenericServerResponse(404, "get", resource, "web", "404 page not found", 0, true), "this cluster does not know the kind Canary; install its CustomResourceDefinition"},
		"forbidden":       {apierrors.NewForbidden(resource, "web", errors.New("no")), "reading Canary prod/web: you are not allowed to: canaries.canarycontroller.tech.com \"web\" is forbidden: no"},
		"unauthorized":    {apierrors.NewUnauthorized("expired"), "does not accept your credentials: expired"},
		"unreachable":     {&url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")}, `cannot reach the API server: Get "https://x": connection refused`},
		"anything else":   {apierrors.NewInternalError(errors.New("etcd")), "reading Canary prod/web: Internal error occurred: etcd"},
		"too many":        {apierrors.NewTooManyRequestsError("slow down"), "slow down"},
		"not what it was": {apierrors.NewBadRequest("strange\nthing"), "the API server refuses it: strange thing"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, canary("web"))
			r.client.PrependReactor("get", "canaries", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			r.expect(exitError, "", tc.want, "status", "web")
		})
	}
	r := newRun(t, canary("web"))
	r.client.PrependReactor("patch", "canaries", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resource, "web", errors.New("no"))
	})
	r.expect(exitError, "", "pausing Canary prod/web: you are not allowed to", "pause", "web")
}

func TestCompletion(t *testing.T) {
	r := newRun(t, canary("web"), canary("api", phase(v1alpha1.PhaseCompleted)))
	r.expect(exitDone, "api\tCompleted\nweb\tAwaitingApproval\n:4\n", "", "__complete", "approve", "")
	newRun(t, canary("web")).expect(exitDone, ":4\n", "", "__complete", "approve", "web", "")
	newRun(t).expect(exitDone, "RolledBack\n", "", "__complete", "status", "--wait", "")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		newRun(t).expect(exitDone, "kubectl-canary", "", "completion", shell)
	}
}

func TestLint(t *testing.T) {
	r := newRun(t)
	r.expect(exitError, "../lint/testdata/invalid.yaml:spec.info.type: is given twice (line 9)\n", "", "lint", "../lint/testdata/valid.yaml", "../lint/testdata/invalid.yaml")
	newRun(t).expect(exitDone, "2 Canaries checked, nothing found\n", "note: ../lint/testdata/valid.yaml: document 1 is not a Canary", "lint", "../lint/testdata/valid.yaml")
	newRun(t).expect(exitError, "", "error: reading missing.yaml: open missing.yaml: no such file or directory", "lint", "missing.yaml")
	r = newRun(t)
	r.in = "apiVersion: canarycontroller.tech.com/v1alpha1\nkind: Canary\nspec: {}\n"
	r.expect(exitError, "standard input:spec.info.type: Unsupported value", "", "lint", "-")
	r = newRun(t)
	r.expect(exitError, `"field": "spec.info.type"`, "", "lint", "-o", "json", "../lint/testdata/invalid.yaml")
	if !json.Valid([]byte(r.out.String())) {
		t.Errorf("not JSON: %s", r.out.String())
	}
}

func TestVersion(t *testing.T) {
	newRun(t).expect(exitDone, "kubectl-canary test (go1.", "", "version")
	newRun(t).expect(exitDone, `"version": "test"`, "", "version", "-o", "json")
}
