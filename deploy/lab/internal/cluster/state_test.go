package cluster

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

func TestPrepareDir(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a new directory becomes a lab's", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a", "b")
		if err := prepareDir(dir, log); err != nil {
			t.Fatal(err)
		}
		if s, err := ReadState(dir); err != nil || s.Supervisor != self || s.Ready {
			t.Errorf("state %+v, %v", s, err)
		}
	})
	t.Run("what a dead lab left is removed", func(t *testing.T) {
		dir := t.TempDir()
		dead := State{Supervisor: process.Identity{Pid: self.Pid, StartTicks: self.StartTicks + 1}}
		if err := dead.Write(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "etcd", "member"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := prepareDir(dir, log); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "etcd")); !os.IsNotExist(err) {
			t.Errorf("the old data is still there: %v", err)
		}
	})
	t.Run("a living lab's is refused", func(t *testing.T) {
		dir := t.TempDir()
		if err := (State{Supervisor: self}).Write(dir); err != nil {
			t.Fatal(err)
		}
		if err := prepareDir(dir, log); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("anything else is refused and kept", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "precious")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := prepareDir(dir, log); err == nil || !strings.Contains(err.Error(), "neither empty nor a lab's directory") {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("the file is gone: %v", err)
		}
	})
}
