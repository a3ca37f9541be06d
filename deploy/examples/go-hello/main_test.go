package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func env(pairs ...string) func(string) string {
	return func(key string) string {
		for _, p := range pairs {
			if k, v, _ := strings.Cut(p, "="); k == key {
				return v
			}
		}
		return ""
	}
}

func TestReadConfig(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want config
		err  string
	}{
		"defaults":      {env: []string{"VERSION=v1"}, want: config{version: "v1", address: ":8080"}},
		"everything":    {env: []string{"VERSION=v2", "POD_IP=127.10.0.7", "PORT=9000", "DRAIN=3s"}, want: config{version: "v2", address: "127.10.0.7:9000", drain: 3 * time.Second}},
		"IPv6":          {env: []string{"VERSION=v1", "POD_IP=fd00::7"}, want: config{version: "v1", address: "[fd00::7]:8080"}},
		"no version":    {err: "VERSION: must be set"},
		"no port":       {env: []string{"VERSION=v1", "PORT=http"}, err: `PORT: "http" is not a port number`},
		"port 0":        {env: []string{"VERSION=v1", "PORT=0"}, err: `PORT: "0" is not a port number`},
		"port too high": {env: []string{"VERSION=v1", "PORT=65536"}, err: `PORT: "65536" is not a port number`},
		"no duration":   {env: []string{"VERSION=v1", "DRAIN=5"}, err: `DRAIN: "5" is not a duration`},
		"negative":      {env: []string{"VERSION=v1", "DRAIN=-1s"}, err: `DRAIN: "-1s" is not a duration`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readConfig(env(c.env...))
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Fatalf("error %v, want one beginning with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestServeAndDrain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	c := config{version: "v7", drain: 2 * time.Second}
	go func() { ended <- serve(ctx, listener, c, slog.New(slog.DiscardHandler)) }()
	base := "http://" + listener.Addr().String()

	for path, want := range map[string]string{
		"/": "hello from go-hello v7\n", "/version": `{"version":"v7"}` + "\n", "/healthz": "ok\n", "/readyz": "ok\n",
	} {
		if code, body := get(t, base+path); code != http.StatusOK || body != want {
			t.Errorf("GET %s: %d %q, want 200 %q", path, code, body, want)
		}
	}
	if code, _ := get(t, base+"/nothing"); code != http.StatusNotFound {
		t.Errorf("GET /nothing: %d, want 404", code)
	}

	stop()
	if code, _ := get(t, base+"/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("GET /readyz while draining: %d, want 503", code)
	}
	if code, _ := get(t, base+"/version"); code != http.StatusOK {
		t.Errorf("GET /version while draining: %d, want 200", code)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if _, err := net.DialTimeout("tcp", listener.Addr().String(), time.Second); err == nil {
		t.Error("still listening after the end")
	}
}

func TestStartReportsTheAddressInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	err = start(t.Context(), env("VERSION=v1", "POD_IP=127.0.0.1", "PORT="+port), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("error %v, want address already in use", err)
	}
}
