package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// programs are the paths of what the demo runs.
type programs struct {
	lab, prometheus, jaeger, operator, plugin, goHello, bookinfo string
	// These say whether the servers are such as carry web pages.
	prometheusPages, jaegerPages bool
}

// root is the repository's top directory.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(filepath.Dir(file), "deploy", "kustomize", "base")); err != nil {
		return "", errors.New("run the demo inside the repository, such as by make demo")
	}
	return filepath.Dir(file), nil
}

// build finds or builds every program. It has no deadline: a first build takes
// minutes, and says how far it is.
func (d *demo) build(ctx context.Context) error {
	top, err := root(ctx)
	if err != nil {
		return err
	}
	if err := os.Chdir(top); err != nil {
		return err
	}
	if !d.ownCluster() {
		if d.programs.lab, err = servers.Ensure(ctx, servers.LabServer, servers.Options{Root: top, Progress: os.Stderr}); err != nil {
			return err
		}
		d.saw("lab: %s", d.programs.lab)
		if d.programs.jaeger, d.programs.jaegerPages, err = d.server(ctx, servers.Jaeger, servers.Options{Root: top}); err != nil {
			return err
		}
	}
	d.programs.prometheus, d.programs.prometheusPages, err = d.server(ctx, servers.Prometheus, servers.Options{Root: top, Program: d.options.prometheus})
	if err != nil {
		return err
	}
	return d.goBuild(ctx)
}

// server finds or builds a server, and reports whether it is one that was not built from
// its module, and so has its web pages.
func (d *demo) server(ctx context.Context, s servers.Server, o servers.Options) (path string, pages bool, err error) {
	built, err := servers.Path(ctx, s, o)
	if err != nil {
		return "", false, err
	}
	o.PreferPATH, o.Progress = true, os.Stderr
	path, err = servers.Ensure(ctx, s, o)
	if err != nil {
		return "", false, err
	}
	d.saw("%s: %s", s.Name, path)
	return path, path != built, nil
}

// goBuild builds the programs of the product's own module that the demo runs. The go command's cache makes it quick when nothing has changed.
func (d *demo) goBuild(ctx context.Context) error {
	begun := time.Now()
	packages := []string{"./controller/cmd/canary-controller"}
	if !d.ownCluster() {
		packages = append(packages, "./controller/cmd/kubectl-canary", "./deploy/examples/go-hello", "./deploy/examples/bookinfo")
	}
	d.note("go build %s", strings.Join(packages, " "))
	if err := os.MkdirAll(d.binDir(), 0o755); err != nil {
		return err
	}
	args := append([]string{"build", "-o", d.binDir() + string(filepath.Separator)}, packages...)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the operator and the applications: %w\n%s", err, out)
	}
	d.programs.operator = filepath.Join(d.binDir(), "canary-controller")
	d.programs.plugin = filepath.Join(d.binDir(), "kubectl-canary")
	d.programs.goHello = filepath.Join(d.binDir(), "go-hello")
	d.programs.bookinfo = filepath.Join(d.binDir(), "bookinfo")
	d.saw("built after %s", time.Since(begun).Round(100*time.Millisecond))
	return nil
}
