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
	lab, prometheus, jaeger, operator, goHello, bookinfo string
	// prometheusPages says whether the Prometheus is one that carries web pages.
	prometheusPages bool
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
		if d.programs.jaeger, err = servers.Ensure(ctx, servers.Jaeger, servers.Options{Root: top, PreferPATH: true, Progress: os.Stderr}); err != nil {
			return err
		}
		d.saw("jaeger: %s", d.programs.jaeger)
	}
	built, err := servers.Path(ctx, servers.Prometheus, servers.Options{Root: top})
	if err != nil {
		return err
	}
	d.programs.prometheus, err = servers.Ensure(ctx, servers.Prometheus, servers.Options{
		Root: top, Program: d.options.prometheus, PreferPATH: true, Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	d.programs.prometheusPages = d.programs.prometheus != built
	d.saw("prometheus: %s", d.programs.prometheus)
	bin := filepath.Join(d.dir, "bin")
	d.programs.operator = filepath.Join(bin, "canary-controller")
	d.programs.goHello = filepath.Join(bin, "go-hello")
	d.programs.bookinfo = filepath.Join(bin, "bookinfo")
	for program, pkg := range map[string]string{
		d.programs.operator: "./controller/cmd/canary-controller", d.programs.goHello: "./deploy/examples/go-hello",
		d.programs.bookinfo: "./deploy/examples/bookinfo",
	} {
		if err := d.goBuild(ctx, program, pkg); err != nil {
			return err
		}
	}
	return nil
}

// goBuild builds a program of the product's own module. The go command's cache
// makes it quick when nothing has changed.
func (d *demo) goBuild(ctx context.Context, program, pkg string) error {
	begun := time.Now()
	d.note("go build %s", pkg)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, pkg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	d.saw("%s, after %s", filepath.Base(program), time.Since(begun).Round(100*time.Millisecond))
	return nil
}
