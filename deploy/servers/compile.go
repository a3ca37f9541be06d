package servers

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	lockPeriod = 200 * time.Millisecond
	// keepOthers is how long a program built from something else is kept.
	keepOthers = 24 * time.Hour
)

func stale(info fs.FileInfo) bool { return time.Since(info.ModTime()) > keepOthers }

// flags are the go command's, without the output. Trimming paths would make
// the compiled packages useless to every other build of the same module. Debug
// information is not linked, so none is compiled, as in the Makefile's tests,
// which share the packages.
func (b *build) flags() []string {
	flags := []string{"-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=" + strings.Join(append([]string{"-s", "-w"}, b.server.LDFlags...), " ")}
	if len(b.server.Tags) > 0 {
		flags = append(flags, "-tags="+strings.Join(b.server.Tags, ","))
	}
	return flags
}

// goEnv is the environment of the go command: the user's, but without a
// workspace and flags meant for the product's own module.
func goEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOFLAGS=") && !strings.HasPrefix(v, "GOWORK=") {
			env = append(env, v)
		}
	}
	return append(env, "GOWORK=off", "GOFLAGS=")
}

// compile builds the program and moves it into the cache. The lock is held, so
// that whatever another build has left is of one that was killed.
func (b *build) compile(ctx context.Context) error {
	prefix := filepath.Join(filepath.Dir(b.target), ".build-"+b.server.Name+"-")
	left, err := filepath.Glob(prefix + "*")
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing what a killed build left: %w", err)
		}
	}
	dir, err := os.MkdirTemp(filepath.Split(prefix))
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, b.server.Name)
	args := append([]string{"build", "-v"}, b.flags()...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", out, b.server.Package)...)
	cmd.Dir, cmd.Env = b.module, goEnv()
	// The go command removes its work directory and ends its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	show := startProgress(b.progress, b.server.Name, time.Now())
	cmd.Stdout, cmd.Stderr = show, show
	err = cmd.Run()
	show.stop(err)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, show.complaints())
	}
	return os.Rename(out, b.target)
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// isPackage reports whether a line of "go build -v" names a package it
// compiles; other lines are downloads and complaints.
func isPackage(line []byte) bool {
	return len(line) > 0 && line[0] != '#' && !bytes.ContainsAny(line, " \t:()")
}
