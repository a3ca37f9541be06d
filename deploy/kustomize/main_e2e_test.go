//go:build e2e

package kustomize

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// patience bounds failures only: tests go on as soon as the state is there.
const patience = 2 * time.Minute

var lab *servers.Lab

// The lab runs the operator and go-hello as the manifests say, as pods.
func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kustomize:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "canary-kustomize-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "../../controller/cmd/canary-controller", "../examples/go-hello")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the operator and go-hello: %w\n%s", err, out)
	}
	lab, err = servers.StartLab(ctx, servers.LabOptions{
		Options: servers.Options{Progress: os.Stderr}, Name: "kustomize", Audit: true, MaxRestartPeriod: time.Second,
		Images: []servers.Image{
			{Name: "ghcr.io/canarycontroller/canary-controller:*", Executable: filepath.Join(dir, "canary-controller")},
			{Name: "ghcr.io/canarycontroller/go-hello:*", Executable: filepath.Join(dir, "go-hello")},
		},
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lab.Stop()) }()
	return m.Run(), nil
}

// kubectl runs kubectl as the administrator and fails the test when it fails.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := lab.Kubectl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refused expects kubectl to fail with a message that has every one of the words.
func refused(t *testing.T, words []string, args ...string) {
	t.Helper()
	out, err := lab.Kubectl(t.Context(), args...)
	if err == nil {
		t.Errorf("kubectl %s: done, want it refused: %s", strings.Join(args, " "), out)
		return
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl %s: %v; want it to say %q", strings.Join(args, " "), err, want)
		}
	}
}

// field waits until kubectl get shows the wanted value.
func field(t *testing.T, want, path string, object ...string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got, err := lab.Kubectl(t.Context(), append([]string{"get", "-o", "jsonpath=" + path}, object...)...)
		if err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			status, _ := lab.Kubectl(t.Context(), append([]string{"get", "-o", "yaml"}, object...)...)
			t.Fatalf("%s of %v is %q (%v), not %q within %s\n%s", path, object, got, err, want, patience, status)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// request is what the tests need of an entry of the API server's audit log; see
// https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
type request struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ImpersonatedUser        struct{ Username string }
	ObjectRef               struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus          struct{ Code int }
}

// requests are those that a user has made so far.
func requests(t *testing.T, user string) []request {
	t.Helper()
	text, err := os.ReadFile(lab.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	var found []request
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		// The last line may be half written.
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.User.Username == user && r.ImpersonatedUser.Username == "" {
			found = append(found, r)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
