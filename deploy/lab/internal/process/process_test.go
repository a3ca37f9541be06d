package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tail := "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20"
	for stat, want := range map[string]uint64{
		"12 (cat) " + tail:          4242,
		"12 (a b) c) " + tail:       4242,
		"12 (tmux: server) " + tail: 4242,
		"12 (x) S 1 2":              0,
		"":                          0,
	} {
		ticks, state, err := parseStat(stat)
		if (err == nil) != (want != 0) || ticks != want || want != 0 && state != 'S' {
			t.Errorf("parseStat(%q) = %d %c %v, want %d", stat, ticks, state, err, want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (cat) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20")
	f.Fuzz(func(t *testing.T, stat string) { _, _, _ = parseStat(stat) })
}

func TestIdentity(t *testing.T) {
	self, err := Self()
	if err != nil || !self.Alive() {
		t.Fatalf("this process: %+v, %v", self, err)
	}
	if other := (Identity{Pid: self.Pid, StartTicks: self.StartTicks + 1}); other.Alive() {
		t.Error("a pid with another start time counts as the same process")
	}
}

func TestExit(t *testing.T) {
	s, err := NewSpawner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string][2]int{"exit 0": {0, 0}, "exit 3": {3, 0}, "kill -9 $$": {137, 9}, "kill -15 $$": {143, 15}} {
		p, err := s.Start(exec.Command("sh", "-c", script))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if code, signal := p.Exit(); code != want[0] || signal != want[1] {
			t.Errorf("%s: exit %d, signal %d; want %v", script, code, signal, want)
		}
	}
	if _, err := s.Start(exec.Command("/does/not/exist")); err == nil {
		t.Error("a program that does not exist starts")
	}
	if left, err := os.ReadDir(s.records); err != nil || len(left) != 0 {
		t.Errorf("records left: %v, %v", left, err)
	}
}

// The whole group of a process goes when the process ends.
func TestGroupEndsWithProcess(t *testing.T) {
	dir := t.TempDir()
	s, err := NewSpawner(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Start(exec.Command("sh", "-c", "sleep 1000 & exit 0"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	waitNone(t, dir)
}

// What a killed parent left behind, and what that left behind in groups of
// its own, is found and killed.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "PROCESS_TEST_PARENT="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if marked, err := Marked(dir); err != nil {
			t.Fatal(err)
		} else if len(marked) >= 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the grandchild does not appear")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for {
		if id, err := Identify(child); err != nil || !id.Alive() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the child outlives its parent")
		}
		time.Sleep(10 * time.Millisecond)
	}
	killed, err := Sweep(dir)
	if err != nil || killed < 1 {
		t.Errorf("swept %d, %v; want the grandchild", killed, err)
	}
	waitNone(t, dir)
}

func waitNone(t *testing.T, dir string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		left, err := Marked(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left running: %v", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("PROCESS_TEST_PARENT"); dir != "" {
		actAsParent(dir)
	}
	os.Exit(m.Run())
}

// actAsParent starts a process that starts another in a session of its own,
// and waits to be killed.
func actAsParent(dir string) {
	s, err := NewSpawner(dir)
	if err != nil {
		panic(err)
	}
	p, err := s.Start(exec.Command("sh", "-c", "setsid sleep 1000 & wait"))
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Pid)
	<-p.Done()
}
