package servers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fake is a repository with one tiny server in it.
func fake(t *testing.T, source string) (Server, Options) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/tiny\n\ngo 1.26\n", "main.go": source} {
		write(t, filepath.Join(root, "tiny", name), text)
	}
	return Server{Name: "tiny", Module: "tiny", Package: ".", Sources: true}, Options{Root: root, Cache: filepath.Join(root, "cache")}
}

func ensure(t *testing.T, s Server, o Options) string {
	t.Helper()
	path, err := Ensure(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const hello = "package main\n\nfunc main() { print(\"hello\") }\n"

func TestEnsureBuildsOnce(t *testing.T) {
	s, o := fake(t, hello)
	var shown bytes.Buffer
	o.Progress = &shown
	path := ensure(t, s, o)
	if out, err := exec.Command(path).CombinedOutput(); err != nil || string(out) != "hello" {
		t.Fatalf("the program says %q, %v", out, err)
	}
	if text := shown.String(); !strings.Contains(text, "building tiny") || !strings.Contains(text, "built tiny: ") {
		t.Errorf("progress %q", text)
	}
	shown.Reset()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if again := ensure(t, s, o); again != path {
		t.Errorf("the second time it is %s, want %s", again, path)
	}
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) || shown.Len() > 0 {
		t.Errorf("built again: %v, progress %q", err, shown.String())
	}
	if where, err := Path(t.Context(), s, o); err != nil || where != path {
		t.Errorf("Path = %s, %v; want %s", where, err, path)
	}
}

// Whatever the program is built from changes where it is kept; other files do
// not.
func TestHashFollowsInputs(t *testing.T) {
	s, o := fake(t, hello)
	where := func(s Server) string {
		path, err := Path(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	put := func(name, text string) {
		t.Helper()
		write(t, filepath.Join(o.Root, "tiny", name), text)
	}
	first := where(s)
	for _, same := range []string{"README.md", "main_test.go", "testdata/x.go", ".hidden/x.go"} {
		put(same, "package main\n")
		if got := where(s); got != first {
			t.Errorf("%s changes the place", same)
		}
	}
	seen := map[string]string{first: "the beginning"}
	changed := func(what string, s Server) {
		got := where(s)
		if old, ok := seen[got]; ok {
			t.Errorf("%s: the same place as %s", what, old)
		}
		seen[got] = what
	}
	tagged := s
	tagged.Tags = []string{"x"}
	changed("a tag", tagged)
	linked := s
	linked.LDFlags = []string{"-X=main.x=y"}
	changed("a flag of the linker", linked)
	put("sub/sub.go", "package sub\n")
	changed("a package", s)
	put("sub/sub.go", "package sub // changed\n")
	changed("a source", s)
	put("go.sum", "x\n")
	changed("go.sum", s)
	put("go.mod", "module example.com/other\n\ngo 1.26\n")
	changed("go.mod", s)
	put("nested/go.mod", "module example.com/nested\n")
	put("nested/x.go", "package nested\n")
	if _, ok := seen[where(s)]; !ok {
		t.Error("a nested module changes the place")
	}
	put("go.mod", "module example.com/other\n\ngo 1.26\n\nreplace example.com/nested => ./nested\n")
	changed("a replacement", s)
	put("nested/x.go", "package nested // changed\n")
	changed("a source of a replacement", s)
	s.Sources = false
	changed("a dependency's program", s)
	put("nested/x.go", "package nested // changed again\n")
	changed("a source of a replacement of a dependency's program", s)
}

func TestEnsureShowsTheCompilersError(t *testing.T) {
	s, o := fake(t, "package main\n\nfunc main() { nothing() }\n")
	_, err := Ensure(t.Context(), s, o)
	if err == nil || !strings.Contains(err.Error(), "undefined: nothing") || !strings.Contains(err.Error(), "building tiny") {
		t.Fatalf("error %v", err)
	}
	left, err := filepath.Glob(filepath.Join(o.Cache, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "tiny.lock" {
		t.Errorf("left in the cache: %v, %v; want the lock only", left, err)
	}
}

func TestEnsureAtOnce(t *testing.T) {
	s, o := fake(t, hello)
	var wg sync.WaitGroup
	var mu sync.Mutex
	built := 0
	for range 4 {
		wg.Go(func() {
			var shown bytes.Buffer
			o := o
			o.Progress = &shown
			if _, err := Ensure(t.Context(), s, o); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(shown.String(), "built tiny") {
				built++
			}
		})
	}
	wg.Wait()
	if built != 1 {
		t.Errorf("built %d times, want once", built)
	}
}

func TestEnsureIsCancelled(t *testing.T) {
	s, o := fake(t, hello)
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), filepath.Join(o.Cache, "tiny.lock"), func() { t.Error("waits for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Who is told to wait loses patience at once.
	shown := &impatient{cancel: cancel}
	o.Progress = shown
	if _, err := Ensure(ctx, s, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if want := "waiting for another process that builds tiny\n"; shown.String() != want {
		t.Errorf("progress %q, want %q", shown.String(), want)
	}
}

// impatient cancels a context at the first thing it is told.
type impatient struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (i *impatient) Write(text []byte) (int, error) {
	i.cancel()
	return i.Buffer.Write(text)
}

func TestEnsurePrefersWhatIsGiven(t *testing.T) {
	s, o := fake(t, "not Go at all")
	dir := t.TempDir()
	program := filepath.Join(dir, "tiny")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("flag", func(t *testing.T) {
		o := o
		o.Program = program
		if got := ensure(t, s, o); got != program {
			t.Errorf("got %s", got)
		}
	})
	t.Run("environment", func(t *testing.T) {
		t.Setenv("CANARY_TINY", program)
		if got := ensure(t, s, o); got != program {
			t.Errorf("got %s", got)
		}
		t.Setenv("CANARY_TINY", filepath.Join(dir, "missing"))
		if _, err := Ensure(t.Context(), s, o); err == nil || !strings.Contains(err.Error(), "CANARY_TINY") {
			t.Errorf("error %v, want one that names the variable", err)
		}
	})
	t.Run("PATH", func(t *testing.T) {
		t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		o := o
		if _, err := Ensure(t.Context(), s, o); err == nil {
			t.Error("the program on PATH is taken without being preferred")
		}
		o.PreferPATH = true
		if got := ensure(t, s, o); got != program {
			t.Errorf("got %s", got)
		}
	})
}

func TestOldProgramsAreDropped(t *testing.T) {
	s, o := fake(t, hello)
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		t.Fatal(err)
	}
	old, recent := filepath.Join(o.Cache, "tiny-old"), filepath.Join(o.Cache, "tiny-recent")
	for _, path := range []string{old, recent} {
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	killed := filepath.Join(o.Cache, ".build-tiny-1")
	if err := os.Mkdir(killed, 0o755); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	ensure(t, s, o)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old program is still there: %v", err)
	}
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("what a killed build left is still there: %v", err)
	}
	if _, err := os.Stat(recent); err != nil {
		t.Errorf("the recent program is gone: %v", err)
	}
}

func TestByName(t *testing.T) {
	for _, s := range All() {
		if got, err := ByName(s.Name); err != nil || got.Package != s.Package {
			t.Errorf("ByName(%s) = %+v, %v", s.Name, got, err)
		}
		if root, err := findRoot(s.Module); err != nil || root == "" {
			t.Errorf("the module of %s is not found: %v", s.Name, err)
		}
	}
	if _, err := ByName("grafana"); err == nil || !strings.Contains(err.Error(), "prometheus") {
		t.Errorf("error %v, want one that lists the servers", err)
	}
}

// The version stamped into the lab is the one it is made of.
func TestKubernetesVersion(t *testing.T) {
	root, err := findRoot(LabServer.Module)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(LabServer.Module), "go.mod"))
	if err != nil || !strings.Contains(string(text), "\tk8s.io/kubernetes "+kubernetesVersion+"\n") {
		t.Errorf("the lab's go.mod does not require k8s.io/kubernetes %s (%v)", kubernetesVersion, err)
	}
}
