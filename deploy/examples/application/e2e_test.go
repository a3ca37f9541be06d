//go:build e2e

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// patience bounds failures only: tests go on as soon as a wanted state is there.
const patience = 2 * time.Minute

// lab is a real cluster, see deploy/lab. It is built unless it is in the cache.
type lab struct {
	*servers.Lab
	t      *testing.T
	config *rest.Config
}

func startLab(t *testing.T) *lab {
	t.Helper()
	started, err := servers.StartLab(t.Context(), servers.LabOptions{Options: servers.Options{Progress: os.Stderr}, Name: "application"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	l := &lab{Lab: started, t: t}
	if l.config, err = clientcmd.BuildConfigFromFlags("", started.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return l
}

// try runs kubectl.
func (l *lab) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command(l.Program, append([]string{"kubectl", "--dir", l.Dir, "--"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}

func (l *lab) kubectl(args ...string) string {
	l.t.Helper()
	out, err := l.try("", args...)
	if err != nil {
		l.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// until polls a kubectl command until it prints what is wanted.
func (l *lab) until(want string, args ...string) {
	l.t.Helper()
	var out string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if out, _ = l.try("", args...); out == want {
			return
		}
	}
	l.t.Fatalf("kubectl %s: got %q, want %q\n%s", strings.Join(args, " "), out, want, l.kubectl("get", "applications,deployments,services,pods", "-o", "wide"))
}

const (
	condition = `jsonpath={.status.conditions[?(@.type=="Available")].status} {.status.conditions[?(@.type=="Available")].reason}`
	available = `jsonpath={.status.availableReplicas} {.status.conditions[?(@.type=="Available")].status} {.status.conditions[?(@.type=="Available")].reason}`
)

// TestLab runs the controller, with the rights that rbac.yaml gives it and no
// more, against a real API server.
func TestLab(t *testing.T) {
	l := startLab(t)
	// The lab is the test's; what the controller starts must end with it.
	// client-go keeps idle HTTP/2 connections, and their readers, for as long as the process lives.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"))
	l.kubectl("apply", "-f", "crd.yaml", "-f", "rbac.yaml")
	l.kubectl("wait", "--for=condition=Established", "crd/applications.examples.canarycontroller.tech.com")

	config := rest.CopyConfig(l.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:application-system:application-controller",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- runWith(ctx, options{metrics: address, workers: 2}, config) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	}()

	// The sample becomes a Deployment and a Service, and its status follows.
	l.kubectl("apply", "-f", "application.yaml")
	l.until("2 True AsDesired", "get", "application", "hello", "-o", available)
	l.until("lab/hollow:v1 8080 GREETING=hello", "get", "deployment", "hello", "-o",
		`jsonpath={.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].ports[0].containerPort} {.spec.template.spec.containers[0].env[0].name}={.spec.template.spec.containers[0].env[0].value}`)
	l.until("8080 http", "get", "service", "hello", "-o", `jsonpath={.spec.ports[0].port} {.spec.ports[0].targetPort}`)

	// Changes of the Application are carried out.
	l.kubectl("patch", "application", "hello", "--type=merge", "-p", `{"spec":{"replicas":3,"image":"lab/hollow:v2"}}`)
	l.until("3 True AsDesired", "get", "application", "hello", "-o", available)
	l.until("lab/hollow:v2 3", "get", "deployment", "hello", "-o", `jsonpath={.spec.template.spec.containers[0].image} {.spec.replicas}`)

	// What others change or delete is put right; what is not the
	// controller's is left to them.
	l.kubectl("annotate", "deployment", "hello", "team=shop")
	l.kubectl("set", "image", "deployment/hello", "application=lab/hollow:rogue")
	l.until("lab/hollow:v2 shop", "get", "deployment", "hello", "-o", `jsonpath={.spec.template.spec.containers[0].image} {.metadata.annotations.team}`)
	l.kubectl("delete", "service", "hello")
	l.until("8080", "get", "service", "hello", "-o", `jsonpath={.spec.ports[0].port}`)

	// Pods that never get ready are not available.
	l.kubectl("patch", "application", "hello", "--type=merge", "-p", `{"spec":{"env":[{"name":"HOLLOW_NEVER_READY","value":"1"}]}}`)
	l.until("False Progressing", "get", "application", "hello", "-o", condition)
	l.kubectl("patch", "application", "hello", "--type=merge", "-p", `{"spec":{"env":[]}}`)
	l.until("3 True AsDesired", "get", "application", "hello", "-o", available)

	// Somebody else's Deployment of the same name is not touched, and no
	// longer in the way once it is gone.
	l.kubectl("create", "deployment", "theirs", "--image=lab/hollow:theirs")
	if out, err := l.try(strings.Replace(sample(t), "name: hello", "name: theirs", 1), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	l.until("False NameTaken", "get", "application", "theirs", "-o", condition)
	l.until("lab/hollow:theirs", "get", "deployment", "theirs", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	l.kubectl("delete", "deployment", "theirs")
	l.until("2 True AsDesired", "get", "application", "theirs", "-o", available)

	// What cannot work is refused with the field's name, by the CRD or, what
	// the schema cannot tell, in the status.
	for _, tc := range []struct{ old, new, want string }{
		{"port: 8080", "port: 70000", "spec.port"},
		{"replicas: 2", "replicas: -1", "spec.replicas"},
		{"name: hello", "name: 1hello", "metadata.name"},
		{"image: lab/hollow:v1", "image: ''", "spec.image"},
	} {
		out, err := l.try(strings.Replace(sample(t), tc.old, tc.new, 1), "apply", "-f", "-")
		if err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: got %v %q, want a refusal naming %s", tc.new, err, out, tc.want)
		}
	}
	l.kubectl("patch", "application", "theirs", "--type=merge", "-p", `{"spec":{"env":[{"name":"NOT=A NAME","value":"1"}]}}`)
	l.until("False Refused", "get", "application", "theirs", "-o", condition)

	// The metrics are those that every controller's dashboards know.
	for _, want := range []string{
		`workqueue_adds_total{controller="application",name="application"}`,
		`workqueue_depth{controller="application",name="application"} 0`,
		`workqueue_work_duration_seconds_count{controller="application",name="application"}`,
		`rest_client_requests_total{code="200",`,
		`go_goroutines`,
		`application_replicas{namespace="default",application="hello",state="available"} 3`,
		`application_available{namespace="default",application="hello"} 1`,
		`application_available{namespace="default",application="theirs"} 0`,
	} {
		scraped(t, address, want, true)
	}

	// With the Application goes what it owned, and its series.
	l.kubectl("delete", "application", "hello", "theirs")
	scraped(t, address, "application_replicas{", false)
	l.until("", "get", "deployments,pods", "-o", "name")
	l.until("service/kubernetes", "get", "services", "-o", "name")
}

func sample(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("application.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// scraped polls /metrics until it has, or no longer has, the text.
func scraped(t *testing.T, address, text string, want bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); strings.Contains(scrape(t, address), text) != want; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("/metrics has %q: %v, want %v\n%s", text, !want, want, scrape(t, address))
		}
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://%s/metrics", address))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s, %v", resp.Status, err)
	}
	return string(body)
}
