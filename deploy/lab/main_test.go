package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The test binary is the lab, and the program of the pods, too: linking
// Kubernetes twice would take longer than the tests do.
const (
	envMain = "LAB_TEST_MAIN"
	envApp  = "LAB_TEST_APP"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envApp) != "":
		app()
	case os.Getenv(envMain) != "":
		main()
	default:
		os.Exit(m.Run())
	}
}

// app is a web server that says where it runs. It ends at SIGTERM, or not.
func app() {
	if os.Getenv("CRASH") != "" {
		fmt.Println("crashing on purpose")
		os.Exit(7)
	}
	begun := time.Now()
	fmt.Printf("serving on %s as %s\n", os.Getenv("LISTEN"), os.Getenv("NAME"))
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(os.Getenv("UNREADY_FILE")); err == nil {
			http.Error(w, "told to be unready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) {
		if os.Getenv("DIES") != "" && time.Since(begun) > time.Second {
			http.Error(w, "dead", http.StatusInternalServerError)
		}
	})
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		<-terminated
		fmt.Println("got SIGTERM")
		if os.Getenv("STUBBORN") == "" {
			os.Exit(0)
		}
	}()
	fmt.Println(http.ListenAndServe(os.Getenv("LISTEN"), mux))
	os.Exit(1)
}

// imageTable has the app under names that say how it behaves.
func imageTable(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("images:\n")
	for name, extra := range map[string]string{"app": "", "crash": `, CRASH: "1"`, "dies": `, DIES: "1"`, "stubborn": `, STUBBORN: "1"`} {
		fmt.Fprintf(&text, "- {name: '%s:*', executable: %q, env: {%s: '1', LISTEN: '$(POD_IP):8080'%s}}\n", name, self, envApp, extra)
	}
	text.WriteString("- {name: sh, executable: /bin/sh}\n")
	path := filepath.Join(dir, "images.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testLab is a lab that a test started.
type testLab struct {
	dir    string
	cmd    *exec.Cmd
	client kubernetes.Interface
	done   chan struct{}
	stderr *bytes.Buffer
}

func labCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envMain+"=1")
	return cmd
}

// upLab starts a lab in dir and waits until it is ready. The test stops it.
func upLab(t *testing.T, dir string, args ...string) *testLab {
	t.Helper()
	l := &testLab{dir: dir, done: make(chan struct{}), stderr: &bytes.Buffer{}}
	l.cmd = labCommand(append([]string{"up", "--dir", dir}, args...)...)
	l.cmd.Stderr = l.stderr
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = l.cmd.Wait()
		close(l.done)
	}()
	t.Cleanup(func() { l.stop(t) })
	if err != nil {
		<-l.done
		t.Fatalf("the lab did not start: %v\n%s", err, l.stderr)
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if l.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *testLab) stop(t *testing.T) {
	t.Helper()
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.done:
	case <-time.After(time.Minute):
		t.Error("the lab does not stop within a minute")
		_ = l.cmd.Process.Kill()
		<-l.done
	}
}

// run runs a command of the lab.
func (l *testLab) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := labCommand(append([]string{args[0], "--dir=" + l.dir}, args[1:]...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (l *testLab) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return l.run(t, append([]string{"kubectl", "--"}, args...)...)
}

func (l *testLab) apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	l.kubectl(t, "apply", "-f", file)
}

// eventually polls until check returns nothing to complain about.
func eventually(t *testing.T, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", within, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
