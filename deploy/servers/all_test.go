package servers

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// several is a repository with more tiny servers than are built at once.
func several(t *testing.T) ([]Server, Options) {
	t.Helper()
	s, o := fake(t, hello)
	all := []Server{s}
	for _, name := range []string{"second", "third", "fourth"} {
		other := s
		other.Name = name
		all = append(all, other)
	}
	return all, o
}

func TestEnsureAllKeepsTheOrder(t *testing.T) {
	all, o := several(t)
	var shown bytes.Buffer
	o.Progress = &shown
	paths, err := EnsureAll(t.Context(), all, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if want := ensure(t, s, o); paths[i] != want {
			t.Errorf("path %d is %s, want %s", i, paths[i], want)
		}
	}
	text := slices.Collect(strings.Lines(shown.String()))
	if len(text) != 2*len(all) || !strings.HasPrefix(text[0], "building tiny ") || !strings.HasPrefix(text[1], "built tiny: ") {
		t.Errorf("the first was not built alone, before the others: %q", text)
	}
	if again, err := EnsureAll(t.Context(), all, o); err != nil || !slices.Equal(again, paths) {
		t.Errorf("the second time %v, %v; want %v", again, err, paths)
	}
	if none, err := EnsureAll(t.Context(), nil, o); err != nil || len(none) != 0 {
		t.Errorf("of no servers: %v, %v", none, err)
	}
}

func TestEnsureAllEndsWithTheFirstError(t *testing.T) {
	for broken := range 2 {
		all, o := several(t)
		all[broken].Package = "./missing"
		paths, err := EnsureAll(t.Context(), all, o)
		if err == nil || !strings.Contains(err.Error(), "building "+all[broken].Name) {
			t.Errorf("server %d is broken: %v, %v", broken, paths, err)
		}
	}
	all, o := several(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := EnsureAll(ctx, all, o); !errors.Is(err, context.Canceled) {
		t.Errorf("of a context that is done: %v", err)
	}
}

// What a build needs is there before it, so that it needs no proxy.
func TestDownloadsAhead(t *testing.T) {
	all, o := several(t)
	last := &all[len(all)-1]
	last.Module = "needy"
	proxy := filepath.Join(t.TempDir(), "example.com", "needed", "@v")
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	for name, text := range map[string]string{"go.mod": needed, "needed.go": "package needed\n"} {
		w, err := z.Create("example.com/needed@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(o.Root, "needy", "go.mod"):  "module example.com/needy\n\ngo 1.26\n",
		filepath.Join(o.Root, "needy", "main.go"): "package main\n\nimport _ \"example.com/needed\"\n\nfunc main() { print(\"hello\") }\n",
		filepath.Join(proxy, "list"):              "v1.0.0\n",
		filepath.Join(proxy, "v1.0.0.info"):       `{"Version":"v1.0.0"}`,
		filepath.Join(proxy, "v1.0.0.mod"):        needed,
		filepath.Join(proxy, "v1.0.0.zip"):        zipped.String(),
	} {
		write(t, path, text)
	}
	goCommand := func(args ...string) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = filepath.Join(o.Root, "needy"), goEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOPROXY", "file://"+filepath.Join(proxy, "..", "..", ".."))
	goCommand("mod", "tidy")
	// It is read-only, so that only the go command can remove it.
	goCommand("clean", "-modcache")
	t.Cleanup(func() { goCommand("clean", "-modcache") })

	download(t.Context(), *last, o)
	t.Setenv("GOPROXY", "off")
	if _, err := EnsureAll(t.Context(), all, o); err != nil {
		t.Errorf("without a proxy: %v", err)
	}
}

const needed = "module example.com/needed\n\ngo 1.26\n"
