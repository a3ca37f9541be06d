//go:build e2e

package kustomize

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	canary      = "go-hello-canary"
	clusterWide = "system:serviceaccount:canary-system:canary-controller"
	oneOnly     = "system:serviceaccount:tech-prod:canary-controller"
)

// The subtests build on each other: the operator for the whole cluster, what
// people may do beside it, then the operator for one namespace in its place.
func TestManifests(t *testing.T) {
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the base installs", testInstall},
		{"every example is accepted", testExamplesAccepted},
		{"a canary goes through under the ServiceAccount's rights", testRelease},
		{"the operator was refused nothing", func(t *testing.T) { assertNothingRefused(t, clusterWide) }},
		{"the operator may do nothing else", testNothingElse},
		{"the policy binds authors", testPolicy},
		{"secure metrics are for who may read them", testSecureMetrics},
		{"the single-namespace overlay works in its namespace only", testSingleNamespace},
		{"the base uninstalls", testUninstall},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatalf("%q failed, and what follows builds on it", step.name)
		}
	}
}

func testInstall(t *testing.T) {
	kubectl(t, "apply", "-k", "base")
	kubectl(t, "wait", "--for=condition=Established", "crd/canaries.canarycontroller.tech.com", "--timeout=1m")
	kubectl(t, "-n", "canary-system", "rollout", "status", "deployment/canary-controller", "--timeout=2m")
	// The API server compiles the policy's expressions against the types they name.
	field(t, "{}", "{.status.typeChecking}", "validatingadmissionpolicy", "canary-author-may-write-deployments.canarycontroller.tech.com")
	// Applied once more, nothing changes: a generation counts the changes of a spec.
	kubectl(t, "apply", "-k", "base")
	field(t, "1", "{.metadata.generation}", "-n", "canary-system", "deployment/canary-controller")
	field(t, "1", "{.metadata.generation}", "-n", "canary-system", "poddisruptionbudget/canary-controller")
	kubectl(t, "apply", "--dry-run=server", "-f", "components/network-policy/network-policy.yaml")
}

func testExamplesAccepted(t *testing.T) {
	files, err := filepath.Glob("../examples/go-hello/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("examples %v, %v", files, err)
	}
	kubectl(t, "apply", "-f", "../examples/go-hello/namespace.yaml")
	for _, file := range files {
		kubectl(t, "apply", "--dry-run=server", "-f", file)
	}
}

func testRelease(t *testing.T) {
	phase := func(want string) {
		t.Helper()
		field(t, want, "{.status.phase}", "-n", "tech-prod", "canary", canary)
	}
	kubectl(t, "apply", "-f", "../examples/go-hello/normal-deploy.yaml")
	phase("Completed")
	kubectl(t, "apply", "-f", "../examples/go-hello/canary-first.yaml")
	phase("AwaitingApproval")
	field(t, "1 3", "{.status.new.availableReplicas} {.status.old.availableReplicas}", "-n", "tech-prod", "canary", canary)
	kubectl(t, "-n", "tech-prod", "patch", "canary", canary, "--type=merge", "-p", `{"spec":{"info":{"currentBatch":"2"}}}`)
	phase("Completed")
	field(t, "4", "{.status.availableReplicas}", "-n", "tech-prod", "deployment", "go-hello-v2")
	field(t, "", "{.metadata.name}", "-n", "tech-prod", "deployment", "go-hello-v1", "--ignore-not-found")
	field(t, "Finished Finished Finished Finished",
		"{.status.info.batch1Status} {.status.info.batch2Status} {.status.info.batch3Status} {.status.info.batch4Status}", "-n", "tech-prod", "canary", canary)

	made := requests(t, clusterWide)
	for _, want := range []struct{ verb, resource string }{{"patch", "deployments"}, {"delete", "deployments"}, {"create", "events"}} {
		if !slices.ContainsFunc(made, func(r request) bool { return r.Verb == want.verb && r.ObjectRef.Resource == want.resource }) {
			t.Errorf("%s never did %s %s: was it another operator?", clusterWide, want.verb, want.resource)
		}
	}
}

func assertNothingRefused(t *testing.T, user string) {
	t.Helper()
	for _, r := range requests(t, user) {
		if r.ResponseStatus.Code == 401 || r.ResponseStatus.Code == 403 {
			t.Errorf("refused with %d: %s %s", r.ResponseStatus.Code, r.Verb, r.RequestURI)
		}
	}
}

func testNothingElse(t *testing.T) {
	for _, may := range []struct{ want, verb, what string }{
		{"yes", "patch", "deployments.apps"},
		{"yes", "patch", "canaries.canarycontroller.tech.com/status"},
		{"no", "update", "deployments.apps"},
		{"no", "deletecollection", "deployments.apps"},
		{"no", "create", "canaries.canarycontroller.tech.com"},
		{"no", "delete", "canaries.canarycontroller.tech.com"},
		{"no", "get", "secrets"},
		{"no", "get", "pods"},
		{"no", "create", "pods"},
		{"no", "create", "pods/exec"},
		{"no", "patch", "horizontalpodautoscalers.autoscaling"},
		{"no", "get", "leases.coordination.k8s.io"},
		{"no", "create", "clusterrolebindings.rbac.authorization.k8s.io"},
		{"no", "impersonate", "users"},
	} {
		resource, subresource, _ := strings.Cut(may.what, "/")
		// It exits 1 for no.
		out, _ := lab.Kubectl(t.Context(), "auth", "can-i", may.verb, resource, "--subresource="+subresource, "-n", "tech-prod", "--as", clusterWide)
		if got := strings.TrimSpace(out); got != may.want {
			t.Errorf("may it %s %s: %q, want %q", may.verb, may.what, got, may.want)
		}
	}
}

const people = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: canaries-only, namespace: tech-prod}
rules:
- {apiGroups: [canarycontroller.tech.com], resources: [canaries], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: carol, namespace: tech-prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: canaries-only}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: erin, namespace: tech-prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: erin}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: victor, namespace: tech-prod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: victor}]
`

// carol may write Canaries and no Deployment, erin may both by the role edit,
// victor reads by the role view.
func testPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "people.yaml")
	if err := os.WriteFile(file, []byte(people), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", file)
	first := "../examples/go-hello/canary-first.yaml"
	as := func(user string, args ...string) []string {
		return append([]string{"-n", "tech-prod", "--as", user}, args...)
	}
	patch := func(text string) []string { return []string{"patch", "canary", canary, "--type=merge", "-p", text} }
	policy := []string{"canary-author-may-write-deployments", "a Canary must not give its author more than they have"}

	// erin's rights come from aggregation, which a controller does in its own time.
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		_, err := lab.Kubectl(t.Context(), as("erin", "auth", "can-i", "create", "canaries")...)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the role edit does not let erin create Canaries within %s: %v", patience, err)
		}
	}

	refused(t, policy, as("carol", "apply", "-f", first)...)
	refused(t, policy, as("carol", patch(`{"spec":{"info":{"currentBatch":"3"}}}`)...)...)
	refused(t, policy, as("carol", "annotate", "canary", canary, "canarycontroller.tech.com/retry=1")...)
	refused(t, []string{"user carol may not delete deployments.apps"}, as("carol", "delete", "canary", canary)...)
	kubectl(t, as("carol", "annotate", "canary", canary, "example.com/note=seen")...)
	kubectl(t, as("victor", "get", "canary", canary)...)
	refused(t, []string{`"victor" cannot patch resource "canaries"`}, as("victor", patch(`{"spec":{"paused":true}}`)...)...)

	kubectl(t, as("erin", "apply", "-f", first)...)
	kubectl(t, as("erin", patch(`{"spec":{"info":{"currentBatch":"2"}}}`)...)...)
	refused(t, []string{`cannot patch resource "canaries/status"`},
		as("erin", "patch", "canary", canary, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Failed"}}`)...)

	// The operator's own writes pass, but not one to a spec.
	kubectl(t, as(clusterWide, "annotate", "canary", canary, "example.com/note-")...)
	refused(t, policy, as(clusterWide, patch(`{"spec":{"paused":true}}`)...)...)

	// Who keeps the Deployments needs no right to delete them.
	kubectl(t, as("erin", patch(`{"spec":{"deletionPolicy":"Orphan"}}`)...)...)
	kubectl(t, as("carol", "delete", "canary", canary)...)
	field(t, "go-hello-v2", "{.metadata.name}", "-n", "tech-prod", "deployment", "go-hello-v2")
	kubectl(t, "-n", "tech-prod", "delete", "deployment", "go-hello-v2")
}

// The Prometheus ServiceAccount may read the metrics, default may not.
func testSecureMetrics(t *testing.T) {
	kubectl(t, "apply", "-k", "overlays/secure-metrics")
	kubectl(t, "-n", "canary-system", "rollout", "status", "deployment/canary-controller", "--timeout=2m")
	kubectl(t, "-n", "default", "create", "serviceaccount", "prometheus")
	kubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=canary-controller-metrics-reader", "--serviceaccount=default:prometheus")
	// Pods that the rollout replaced may still be there, on their way out.
	field(t, "2", "{.status.replicas}", "-n", "canary-system", "deployment", "canary-controller")
	ip := kubectl(t, "-n", "canary-system", "get", "pods", "-l", "app.kubernetes.io/name=canary-controller",
		"--sort-by=.metadata.creationTimestamp", "-o=jsonpath={.items[-1:].status.podIP}")
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // it makes its own certificate
	}}
	for _, c := range []struct {
		who    string
		status int
	}{{"", http.StatusUnauthorized}, {"default", http.StatusForbidden}, {"prometheus", http.StatusOK}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+net.JoinHostPort(ip, "8080")+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.who != "" {
			r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(kubectl(t, "-n", "default", "create", "token", c.who)))
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != c.status {
			t.Errorf("GET /metrics by %q: %s (%v), want %d", c.who, response.Status, err, c.status)
		}
		if c.status == http.StatusOK && !strings.Contains(string(body), "\nworkqueue_depth{") {
			t.Errorf("no workqueue_depth in:\n%s", body)
		}
	}
	assertNothingRefused(t, clusterWide)
}

func testSingleNamespace(t *testing.T) {
	kubectl(t, "-n", "canary-system", "delete", "deployment/canary-controller", "--wait=true")
	kubectl(t, "delete", "clusterrolebinding/canary-controller", "clusterrole/canary-controller")
	kubectl(t, "apply", "-k", "overlays/single-namespace")
	kubectl(t, "-n", "tech-prod", "rollout", "status", "deployment/canary-controller", "--timeout=2m")
	text, err := os.ReadFile("../examples/go-hello/normal-deploy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.yaml")
	if err := os.WriteFile(elsewhere, []byte(strings.Replace(string(text), "namespace: tech-prod", "namespace: default", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "-f", elsewhere)
	kubectl(t, "apply", "-f", "../examples/go-hello/normal-deploy.yaml")
	field(t, "Completed", "{.status.phase}", "-n", "tech-prod", "canary", canary)
	field(t, "4", "{.status.availableReplicas}", "-n", "tech-prod", "deployment", "go-hello-v1")
	field(t, "", "{.status.phase}", "-n", "default", "canary", canary)
	assertNothingRefused(t, oneOnly)
	if !slices.ContainsFunc(requests(t, oneOnly), func(r request) bool { return r.Verb == "patch" && r.ObjectRef.Resource == "deployments" }) {
		t.Errorf("%s never patched a Deployment", oneOnly)
	}
	for _, r := range requests(t, oneOnly) {
		if r.ObjectRef.Namespace != "tech-prod" && r.ObjectRef.Resource != "" {
			t.Errorf("outside of its namespace: %s %s", r.Verb, r.RequestURI)
		}
	}
	kubectl(t, "-n", "default", "delete", "canary", canary)
	kubectl(t, "-n", "tech-prod", "delete", "canary", canary)
	kubectl(t, "delete", "-k", "overlays/single-namespace", "--ignore-not-found", "--wait=true")
}

func testUninstall(t *testing.T) {
	kubectl(t, "delete", "-k", "overlays/secure-metrics", "--ignore-not-found", "--wait=true")
	refused(t, []string{"NotFound"}, "get", "crd", "canaries.canarycontroller.tech.com")
	refused(t, []string{"NotFound"}, "get", "validatingadmissionpolicy", "canary-author-may-write-deployments.canarycontroller.tech.com")
}
