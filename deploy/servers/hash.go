package servers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// hash names everything the program is built from: the module files, its own
// sources, those of modules that directories inside it replace, the tags, the
// flags and the Go version.
func (b *build) hash(ctx context.Context) (string, error) {
	h := sha256.New()
	version, err := b.goVersion(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s\n%s\n%s\n", version, b.server.Package, strings.Join(b.flags(), " "))
	files := []string{"go.mod", "go.sum"}
	modules, err := b.replacements(ctx)
	if err != nil {
		return "", err
	}
	if b.server.Sources {
		modules = append(modules, ".")
	}
	for _, module := range modules {
		own, err := sources(filepath.Join(b.module, module))
		if err != nil {
			return "", err
		}
		for _, name := range own {
			files = append(files, filepath.Join(module, name))
		}
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(b.module, name))
		if errors.Is(err, fs.ErrNotExist) && name == "go.sum" {
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s\n", name, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// replacements are the directories, relative to the module's, that stand in for
// other modules.
func (b *build) replacements(ctx context.Context) ([]string, error) {
	out, err := b.ask(ctx, "mod", "edit", "-json")
	if err != nil {
		return nil, fmt.Errorf("asking for what is replaced: %w", err)
	}
	var file struct {
		Replace []struct {
			New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return nil, fmt.Errorf("reading what is replaced: %w", err)
	}
	var dirs []string
	for _, r := range file.Replace {
		if r.New.Version == "" {
			dirs = append(dirs, filepath.FromSlash(r.New.Path))
		}
	}
	return dirs, nil
}

// goVersion is the version of Go that the module would be built with, and the
// platform.
func (b *build) goVersion(ctx context.Context) (string, error) {
	out, err := b.ask(ctx, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOEXPERIMENT", "CGO_ENABLED")
	if err != nil {
		return "", fmt.Errorf("asking for the Go version: %w", err)
	}
	return string(out), nil
}

// ask is what the go command says in the module's directory.
func (b *build) ask(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = b.module, goEnv()
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return bytes.TrimSpace(out), err
}

// sources are the Go files of the module that go into a build, without its
// nested modules.
func sources(module string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path == module {
				return nil
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return fs.SkipDir
			}
			if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			rel, err := filepath.Rel(module, path)
			if err != nil {
				return err
			}
			files = append(files, rel)
		}
		return nil
	})
	sort.Strings(files)
	return files, err
}
