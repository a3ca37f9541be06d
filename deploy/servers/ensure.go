package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// Options say where a server may come from. The zero value builds it, or
// takes it from the cache.
type Options struct {
	// Root is the repository. Default: the one around the working directory,
	// else the one this package was compiled from.
	Root string
	// Cache is where built programs are kept. Default: canary-controller/bin
	// in the user's cache directory.
	Cache string
	// Program is a program to use instead, such as a flag's value.
	Program string
	// PreferPATH takes a program of the server's name on PATH. Released
	// binaries carry their web pages, which one built from its module lacks.
	PreferPATH bool
	// Progress shows a build's progress. A terminal gets one line that is
	// rewritten, anything else a line now and then. Default: silence.
	Progress io.Writer
}

// Ensure returns the path of the server's program: opts.Program, the one the
// environment variable [Server.Env] names, the one on PATH if preferred, the
// cached one, or one that it builds, in this order.
//
// It is safe to call from several processes at once: one builds, the others
// wait. An error of the build carries the go command's output.
func Ensure(ctx context.Context, s Server, opts Options) (string, error) {
	for _, given := range []struct{ path, source string }{
		{opts.Program, "the given program"}, {os.Getenv(s.Env()), s.Env()},
	} {
		if given.path != "" {
			path, err := exec.LookPath(given.path)
			if err != nil {
				return "", fmt.Errorf("%s for %s: %w", given.source, s.Name, err)
			}
			return filepath.Abs(path)
		}
	}
	if opts.PreferPATH {
		if path, err := exec.LookPath(s.Name); err == nil {
			return filepath.Abs(path)
		}
	}
	b, err := newBuild(ctx, s, opts)
	if err != nil {
		return "", err
	}
	return b.ensure(ctx)
}

// Path is where Ensure keeps or would keep the built server.
func Path(ctx context.Context, s Server, opts Options) (string, error) {
	b, err := newBuild(ctx, s, opts)
	if err != nil {
		return "", err
	}
	return b.target, nil
}

// build is one server's way into the cache.
type build struct {
	server   Server
	module   string // the module's directory
	target   string // the program's path in the cache
	progress io.Writer
}

func newBuild(ctx context.Context, s Server, opts Options) (*build, error) {
	root := opts.Root
	if root == "" {
		var err error
		if root, err = findRoot(s.Module); err != nil {
			return nil, fmt.Errorf("building %s: %w", s.Name, err)
		}
	}
	cache := opts.Cache
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("finding a place to keep %s: %w", s.Name, err)
		}
		cache = filepath.Join(user, "canary-controller", "bin")
	}
	b := &build{server: s, module: filepath.Join(root, filepath.FromSlash(s.Module)), progress: opts.Progress}
	if b.progress == nil {
		b.progress = io.Discard
	}
	hash, err := b.hash(ctx)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", s.Name, err)
	}
	b.target = filepath.Join(cache, s.Name+"-"+hash)
	return b, nil
}

// findRoot is the nearest directory at or above the working directory that
// has the module in it, else the one this file was compiled from.
func findRoot(module string) (string, error) {
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(module), "go.mod"))
		return err == nil
	}
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if has(dir) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		if dir := filepath.Dir(filepath.Dir(filepath.Dir(file))); has(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no %s/go.mod in %s or above it: run this inside the repository", module, start)
}

// ensure builds the program unless it is there.
func (b *build) ensure(ctx context.Context) (string, error) {
	if isProgram(b.target) {
		return b.target, nil
	}
	if err := os.MkdirAll(filepath.Dir(b.target), 0o755); err != nil {
		return "", fmt.Errorf("building %s: %w", b.server.Name, err)
	}
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(b.target), b.server.Name+".lock"), func() {
		fmt.Fprintf(b.progress, "waiting for another process that builds %s\n", b.server.Name)
	})
	if err != nil {
		return "", fmt.Errorf("building %s: %w", b.server.Name, err)
	}
	defer unlock()
	if isProgram(b.target) {
		return b.target, nil
	}
	if err := b.compile(ctx); err != nil {
		return "", fmt.Errorf("building %s: %w", b.server.Name, err)
	}
	return b.target, b.dropOthers()
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// dropOthers removes programs built from something else, which nothing will
// ask for again: but only such as have not been used for a day.
func (b *build) dropOthers() error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(b.target), b.server.Name+"-*"))
	if err != nil {
		return err
	}
	for _, other := range others {
		info, err := os.Stat(other)
		if other == b.target || err != nil || !stale(info) {
			continue
		}
		if err := os.Remove(other); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("dropping an old %s: %w", b.server.Name, err)
		}
	}
	return nil
}

// lock takes an exclusive lock on the file in path. waiting is called once if
// another process has it.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if first {
			waiting()
		}
		if err := pause(ctx, lockPeriod); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
}
