package servers

import (
	"context"
	"io"
	"os"
	"sync"
)

// atOnce is how many servers are built beside each other: downloads, links and
// large packages that others wait for leave cores idle.
const atOnce = 2

// EnsureAll is [Ensure] for several servers; the paths come in their order. It
// builds the first one alone, since the others would compile the packages they
// share with it once more, and downloads what the others need meanwhile. The
// first error ends what is still being built.
func EnsureAll(ctx context.Context, all []Server, opts Options) ([]string, error) {
	paths := make([]string, len(all))
	if len(all) == 0 {
		return paths, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var downloads, builds sync.WaitGroup
	defer downloads.Wait()
	defer cancel(nil)
	downloads.Go(func() {
		for _, s := range all[1:] {
			download(ctx, s, opts)
		}
	})
	var err error
	if paths[0], err = Ensure(ctx, all[0], opts); err != nil {
		return nil, err
	}
	beside := opts
	if opts.Progress != nil && len(all) > atOnce {
		beside.Progress = &lines{out: opts.Progress}
	}
	free := make(chan struct{}, atOnce)
	for i, s := range all[1:] {
		free <- struct{}{}
		builds.Go(func() {
			defer func() { <-free }()
			path, err := Ensure(ctx, s, beside)
			if err != nil {
				cancel(err)
			}
			paths[1+i] = path
		})
	}
	builds.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return paths, nil
}

// download fetches the modules that the server's build needs, if it is to be
// built. What goes wrong here the build tells.
func download(ctx context.Context, s Server, opts Options) {
	if os.Getenv(s.Env()) != "" {
		return
	}
	b, err := newBuild(ctx, s, opts)
	if err != nil || isProgram(b.target) {
		return
	}
	_, _ = b.ask(ctx, append(append([]string{"list", "-deps"}, b.flags()...), s.Package)...)
}

// lines is shared by builds beside each other: each writes whole lines, where
// one that is alone on a terminal rewrites its only line.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(text)
}
