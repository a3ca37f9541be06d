package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
)

func TestKubectlArgs(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, other} {
		if err := (cluster.State{Kubeconfig: d + "/k"}).Write(d); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := "--kubeconfig="+dir+"/k", "--kubeconfig="+other+"/k"
	for _, tc := range []struct {
		labDir, kubeconfig string
		args, want         []string
	}{
		{dir, "", []string{"get", "pods"}, []string{ours, "get", "pods"}},
		{dir, "", []string{"--", "get", "--", "x"}, []string{ours, "get", "--", "x"}},
		{dir, "", []string{"--dir=" + other, "--", "get"}, []string{theirs, "get"}},
		{dir, "", []string{"--dir", other, "get"}, []string{theirs, "get"}},
		{dir, "/mine", []string{"get"}, []string{ours, "get"}},
		{"", "/mine", []string{"get"}, []string{"get"}},
		{dir, "", []string{"get", "--kubeconfig=/x"}, []string{"get", "--kubeconfig=/x"}},
		{dir, "", []string{"--kubeconfig", "/x", "get"}, []string{"--kubeconfig", "/x", "get"}},
	} {
		t.Setenv("LAB_DIR", tc.labDir)
		t.Setenv("KUBECONFIG", tc.kubeconfig)
		if got, err := KubectlArgs(tc.args); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%v becomes %v, %v; want %v", tc.args, got, err, tc.want)
		}
	}
	t.Setenv("LAB_DIR", filepath.Join(dir, "none"))
	if _, err := KubectlArgs([]string{"get"}); err == nil || !strings.Contains(err.Error(), "no lab in") {
		t.Errorf("error %v", err)
	}
}

func TestFindLogs(t *testing.T) {
	logs := t.TempDir()
	for _, d := range []string{"ns_web_1/main", "ns_web_2/main", "ns_two_3/a", "ns_two_3/b"} {
		if err := os.MkdirAll(filepath.Join(logs, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(logs, "ns_web_1"), past, past); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, container, want, err string }{
		{name: "web", want: "ns_web_2/main"},
		{name: "two", container: "b", want: "ns_two_3/b"},
		{name: "two", err: "choose one with -c: a, b"},
		{name: "none", err: "no output of a pod ns/none"},
	} {
		got, err := findLogs(logs, "ns", tc.name, tc.container)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil || got != filepath.Join(logs, tc.want) {
			t.Errorf("%s: %s, %v; want %s", tc.name, got, err, tc.want)
		}
	}
}

func TestUpRefusesBadFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--nodes=0": "--nodes 0", "--port=70000": "--port 70000", "--max-restart-period=1ms": "--max-restart-period 1ms",
	} {
		c := upCommand()
		c.SetArgs([]string{"--dir=" + t.TempDir(), flag})
		c.SilenceUsage, c.SilenceErrors = true, true
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that names it", flag, err)
		}
	}
}
