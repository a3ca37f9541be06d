package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bookinfo is the application's binary, built once.
var bookinfo string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bookinfo = filepath.Join(dir, "bookinfo")
	build := exec.Command("go", "build", "-o", bookinfo, "./deploy/examples/bookinfo")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building bookinfo: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// start runs one service as a process and returns where it listens. It is
// stopped with SIGTERM, which must end it cleanly.
func start(t *testing.T, command string, env ...string) string {
	t.Helper()
	cmd := exec.Command(bookinfo, command)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "OTEL_BSP_SCHEDULE_DELAY=100"}, env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	var read sync.WaitGroup
	var text []byte
	read.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			text = append(append(text, lines.Bytes()...), '\n')
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				address <- line.Address
			}
		}
		if err := lines.Err(); err != nil {
			t.Errorf("reading what %s writes: %v", command, err)
		}
	})
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stopping %s: %v", command, err)
		}
		read.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, text)
		}
		if t.Failed() {
			t.Logf("%s wrote\n%s", command, text)
		}
	})
	select {
	case a := <-address:
		return a
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not serve", command)
		return ""
	}
}

// startApp starts the four services with recorders in front of all but
// productpage, and returns productpage's address.
func startApp(t *testing.T, env ...string) (productpage string, seen map[string]*recorder) {
	t.Helper()
	seen = map[string]*recorder{}
	seen["ratings"] = recordGRPC(t, start(t, "ratings", env...))
	seen["details"] = recordHTTP(t, start(t, "details", env...))
	seen["reviews"] = recordHTTP(t, start(t, "reviews", append(env, "VERSION=v2", "RATINGS="+seen["ratings"].address)...))
	return start(t, "productpage", append(env, "DETAILS="+seen["details"].address, "REVIEWS="+seen["reviews"].address)...), seen
}

// browse asks for the page with these headers and returns the response's.
func browse(t *testing.T, address string, headers map[string]string) http.Header {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/productpage", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("productpage: %s %v\n%s", resp.Status, err, body)
	}
	return resp.Header
}
