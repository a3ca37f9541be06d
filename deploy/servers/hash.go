package servers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
// sources, the tags, the flags and the Go version.
func (b *build) hash(ctx context.Context) (string, error) {
	h := sha256.New()
	version, err := b.goVersion(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s\n%s\n%s\n", version, b.server.Package, strings.Join(b.flags(), " "))
	files := []string{"go.mod", "go.sum"}
	if b.server.Sources {
		own, err := sources(b.module)
		if err != nil {
			return "", err
		}
		files = append(files, own...)
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

// goVersion is the version of Go that the module would be built with, and the
// platform.
func (b *build) goVersion(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOEXPERIMENT", "CGO_ENABLED")
	cmd.Dir, cmd.Env = b.module, goEnv()
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("asking for the Go version: %w", err)
	}
	return string(bytes.TrimSpace(out)), nil
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
