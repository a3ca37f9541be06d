package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	// The thread that forks is kept for good.
	forks := goleak.IgnoreAnyFunction("github.com/canarycontroller/canary-controller/deploy/servers.fork")
	if err := goleak.Find(forks); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// buildTime is enough for a first build on a small machine.
const buildTime = 30 * time.Minute

// building are the options of a test that may have to build a server first.
func building(t *testing.T) (context.Context, Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTime)
	t.Cleanup(cancel)
	return ctx, Options{Progress: os.Stderr}
}

func stopped(t *testing.T, p *Proc, addresses ...string) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Errorf("stopping %s: %v", p.Name, err)
	}
	select {
	case <-p.Done():
	default:
		t.Errorf("%s runs on after Stop", p.Name)
	}
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			address = u.Host
		}
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close()
			t.Errorf("%s listens on %s after Stop", p.Name, address)
		}
	}
	if _, err := os.Stat(p.Log); !os.IsNotExist(err) {
		t.Errorf("%s left its temporary directory: %v", p.Name, err)
	}
}

func getJSON(t *testing.T, address string, into any) {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v: %s", address, response.Status, err, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("GET %s: %v in %s", address, err, text)
	}
}

func TestStartPrometheus(t *testing.T) {
	ctx, options := building(t)
	const config = "global: {scrape_interval: 1s}\nscrape_configs:\n- {job_name: %s, static_configs: [{targets: [%q]}]}\n"
	p, err := StartPrometheus(ctx, PrometheusOptions{Options: options, Config: "global: {scrape_interval: 1s}\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop() }()
	if err := p.SetConfig(ctx, fmt.Sprintf(config, "self", strings.TrimPrefix(p.URL, "http://"))); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		var answer struct {
			Data struct {
				Result []struct{ Value []any }
			}
		}
		getJSON(t, p.URL+"/api/v1/query?query="+url.QueryEscape(`up{job="self"}`), &answer)
		if r := answer.Data.Result; len(r) == 1 && r[0].Value[1] == "1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus does not scrape itself: %+v", answer)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := p.SetConfig(ctx, "nonsense: true\n"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a bad configuration: error %v, want one that names the field", err)
	}
	stopped(t, p.Proc, p.URL)
}

func TestStartPrometheusReportsBadConfiguration(t *testing.T) {
	ctx, options := building(t)
	_, err := StartPrometheus(ctx, PrometheusOptions{Options: options, Config: "nonsense: true\n"})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("error %v, want one with the log in it", err)
	}
}

func TestStartJaeger(t *testing.T) {
	ctx, options := building(t)
	j, err := StartJaeger(ctx, JaegerOptions{Options: options})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Stop() }()
	now := time.Now().UnixNano()
	span := fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"tried"}}]},
		"scopeSpans":[{"spans":[{"traceId":"0123456789abcdef0123456789abcdef","spanId":"0123456789abcdef","name":"work","kind":2,
		"startTimeUnixNano":"%d","endTimeUnixNano":"%d"}]}]}]}`, now-1000, now)
	response, err := http.Post(j.OTLPHTTP+"/v1/traces", "application/json", strings.NewReader(span))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("sending a span: %s", response.Status)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		var services struct{ Data []string }
		getJSON(t, j.QueryURL+"/api/services", &services)
		if len(services.Data) == 1 && services.Data[0] == "tried" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("services %v, want the one that sent a span", services.Data)
		}
		time.Sleep(100 * time.Millisecond)
	}
	stopped(t, j.Proc, j.QueryURL, j.OTLPGRPC, j.OTLPHTTP)
}

func TestStartLab(t *testing.T) {
	ctx, options := building(t)
	l, err := StartLab(ctx, LabOptions{Options: options, Name: "tried", Audit: true, Output: os.Stderr,
		Images: []Image{{Name: "first:*", Hollow: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Stop() }()
	if out, err := l.Kubectl(ctx, "version"); err != nil || strings.Count(out, ": "+kubernetesVersion) != 2 {
		t.Errorf("versions of client and server: %q, %v; want %s", out, err, kubernetesVersion)
	}
	if err := l.AddImages(Image{Name: "second:1", Executable: "sh", Args: []string{"-c", "echo hello from $POD_IP; exec sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"first:7", "second:1"} {
		name, _, _ := strings.Cut(image, ":")
		if _, err := l.Kubectl(ctx, "run", name, "--image="+image); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Kubectl(ctx, "wait", "pod/"+name, "--for=condition=Ready", "--timeout=60s"); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.RestartAPIServer(ctx, false); err != nil {
		t.Fatal(err)
	}
	out, err := l.Logs(ctx, "default", "second", "")
	if err != nil || !strings.HasPrefix(out, "hello from 127.") {
		t.Errorf("logs %q, %v", out, err)
	}
	audit, err := os.ReadFile(l.AuditLog)
	if err != nil || !strings.Contains(string(audit), `"name":"second"`) {
		t.Errorf("the audit log lacks the pod: %v", err)
	}
	if _, err := l.Kubectl(ctx, "get", "nothing"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("error %v, want kubectl's own words", err)
	}
	stopped(t, l.Proc)
	if _, err := os.Stat(l.Dir); !os.IsNotExist(err) {
		t.Errorf("the lab's directory is still there: %v", err)
	}
}
