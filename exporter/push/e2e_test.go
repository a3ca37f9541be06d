//go:build e2e

package push

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestRealPushgateway runs a job against the Pushgateway that the environment
// variable CANARY_PUSHGATEWAY names, such as that of Debian's package
// prometheus-pushgateway. Nothing in this repository builds one; where there is
// none, the tests against newGateway are what there is.
func TestRealPushgateway(t *testing.T) {
	program := os.Getenv("CANARY_PUSHGATEWAY")
	if program == "" {
		t.Skip("CANARY_PUSHGATEWAY names no Pushgateway")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--web.listen-address="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})
	metrics := func() string {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
		resp, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return ""
		}
		return string(body)
	}
	eventually(t, func() bool { return metrics() != "" })

	r, c := registry(t)
	p := pusher(t, Config{URL: "http://" + address, Job: "release check", Grouping: map[string]string{"pipeline": "shop/web"}, Gatherer: r, Linger: time.Minute})
	done := make(chan error)
	runCtx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- p.run(runCtx, func(context.Context) error { c.Add(7); return nil })
	}()
	const series = `checks_total{instance="",job="release check",pipeline="shop/web"} 7`
	const outcome = `batch_job_success{instance="",job="release check",pipeline="shop/web"} 1`
	eventually(t, func() bool { return strings.Contains(metrics(), outcome) })
	if !strings.Contains(metrics(), series) {
		t.Errorf("%s is missing", series)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if strings.Contains(metrics(), "release check") {
		t.Error("the group was left behind")
	}
}
