package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

// assets sets KUBEBUILDER_ASSETS to a directory with an etcd and a kube-apiserver, and
// returns what was run from it since.
func assets(t *testing.T) (used func() []string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(dir, "used")
	for _, name := range []string{cluster.Etcd, cluster.APIServer} {
		script := fmt.Sprintf("#!/bin/sh\necho %[1]s >>'%[2]s'\nexec '%[3]s' %[1]s \"$@\"\n", name, note, self)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	return func() []string {
		text, err := os.ReadFile(note)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(strings.FieldsSeq(string(text)))
	}
}

// Two labs run side by side and do not touch each other, neither while they
// run nor when they end, in order or not.
func TestTwoLabs(t *testing.T) {
	base := t.TempDir()
	images := imageTable(t, base)
	first := upLab(t, filepath.Join(base, "one"), "--images", images, "--name", "one")
	used := assets(t)
	second := upLab(t, filepath.Join(base, "two"), "--images", images, "--name", "two")
	if got := used(); !slices.Equal(got, []string{cluster.Etcd, cluster.APIServer}) {
		t.Errorf("of KUBEBUILDER_ASSETS %q ran, want etcd and kube-apiserver", got)
	}
	var ips []string
	for _, l := range []*testLab{first, second} {
		// The pod leaves a process in a session of its own, which neither the
		// process group nor the parent-death signal reaches.
		l.apply(t, single("stay", "sh", `, command: [sh, -c, "setsid sleep 1000 & echo started; wait"]`))
		eventually(t, patience, func(ctx context.Context) error {
			p, err := l.pod(ctx, "stay")
			if err != nil || p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%v: not running", err)
			}
			if out := l.run(t, "logs", "stay"); out != "started\n" {
				return fmt.Errorf("output %q", out)
			}
			ips = append(ips, p.Status.PodIP)
			return nil
		})
	}
	a, b := netip.MustParseAddr(ips[0]), netip.MustParseAddr(ips[1])
	if netip.PrefixFrom(a, 20).Masked().Contains(b) {
		t.Errorf("both labs use one range: %s, %s", a, b)
	}
	t.Run("a running lab's directory is refused", func(t *testing.T) {
		if out, err := labCommand("up", "--dir", first.dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "already") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("killed", func(t *testing.T) { testKilled(t, first, images) })
	t.Run("stopped", func(t *testing.T) {
		state := labState(t, second)
		second.stop(t)
		nothingLeft(t, second.dir, state)
	})
	t.Run("another directory is refused", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := labCommand("up", "--dir", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "neither empty nor a lab's directory") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func labState(t *testing.T, l *testLab) cluster.State {
	t.Helper()
	state, err := cluster.ReadState(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// testKilled kills a lab's supervisor with SIGKILL and starts another in its
// directory: nothing of the first may be there then, and nothing of the second
// after lab down.
func testKilled(t *testing.T, l *testLab, images string) {
	state := labState(t, l)
	old, err := process.Marked(l.dir)
	if err != nil || len(old) < 6 {
		t.Fatalf("%d processes of the lab, %v; want the four servers and the pod's two", len(old), err)
	}
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-l.done
	next := upLab(t, l.dir, "--images", images, "--name", "one")
	for _, id := range old {
		if id.Alive() {
			t.Errorf("process %d of the killed lab lives on", id.Pid)
		}
	}
	closed(t, state)
	state = labState(t, next)
	next.run(t, "down")
	if _, err := os.Stat(next.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there after lab down: %v", err)
	}
	nothingLeft(t, next.dir, state)
}

func nothingLeft(t *testing.T, dir string, state cluster.State) {
	t.Helper()
	left, err := process.Marked(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("processes left: %v, %v", left, err)
	}
	closed(t, state)
}

// closed checks that nothing listens where the lab did.
func closed(t *testing.T, state cluster.State) {
	t.Helper()
	for _, address := range []string{state.Server, state.Control} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.DialTimeout("tcp", u.Host, time.Second); err == nil {
			_ = conn.Close()
			t.Errorf("something listens on %s", u.Host)
		}
	}
}
