package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	// once ends the demo after its last step instead of waiting for Ctrl-C.
	once bool
	// kubeconfig is the user's own cluster, to be used in place of the lab.
	kubeconfig string
	// prometheus is the program to use; empty means one on PATH, else a built one.
	prometheus string
	// image is the repository of the go-hello image in the user's own cluster.
	image string
	// deadline bounds each step.
	deadline time.Duration
	// keep leaves the directory with the logs.
	keep bool
}

const defaultImage = "ghcr.io/canarycontroller/go-hello"

func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.BoolVar(&o.once, "once", false, "end after the last step instead of staying up until Ctrl-C")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "use the cluster of this kubeconfig instead of the lab; says what it skips")
	f.StringVar(&o.prometheus, "prometheus", "", "the Prometheus to use (default: the one on PATH, else one that is built, which has no web pages)")
	f.StringVar(&o.image, "image", defaultImage, "with -kubeconfig: the repository to pull go-hello's tags v1 and v2 from")
	f.DurationVar(&o.deadline, "step-deadline", 3*time.Minute, "how long each step may take to reach its state")
	f.BoolVar(&o.keep, "keep", false, "keep the directory with the logs of everything that ran")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	if f.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %q", f.Arg(0))
		fmt.Fprintln(errOut, "demo:", err)
		return options{}, err
	}
	if o.deadline <= 0 {
		err := fmt.Errorf("-step-deadline %s: must be positive", o.deadline)
		fmt.Fprintln(errOut, "demo:", err)
		return options{}, err
	}
	return o, nil
}

// Exit codes: a step that did not reach its state is a failure, Ctrl-C before
// the last step what a shell makes of it.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	// Processes are started from this thread: the kernel ends them when the
	// thread ends that started them, and this one lives as long as the program.
	runtime.LockOSThread()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(exitUsage)
	}
	// Further signals change nothing: the demo is cleaning up, which is bounded.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, o, newScreen(os.Stdout, time.Now)); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "demo: interrupted")
			os.Exit(exitInterrupted)
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(exitFailure)
	}
}

// run shows everything and returns when the demo is over and nothing of it runs.
func run(ctx context.Context, o options, s *screen) (err error) {
	d := &demo{options: o, screen: s}
	if d.dir, err = os.MkdirTemp("", "canary-demo-"); err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	d.bookinfo.endpoints = filepath.Join(d.dir, "endpoints")
	defer func() {
		// Cleaning up has its own time: ctx may have ended.
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupDeadline)
		defer cancel()
		err = errors.Join(err, d.cleanUp(cleaning))
	}()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := d.release(ctx); err != nil {
		if ctx.Err() == nil {
			d.explain(ctx)
		}
		return err
	}
	for _, end := range []struct {
		title string
		do    func(context.Context) error
	}{{"What was decided, and why", d.summary}, {"Look around", d.urls}} {
		if err := d.within(ctx, end.title, end.do); err != nil {
			return err
		}
	}
	if o.once {
		return nil
	}
	s.note("Everything stays up. Press Ctrl-C to end it.")
	select {
	case <-ctx.Done():
		return nil
	case name := <-d.died:
		return fmt.Errorf("%s ended by itself, see its log above", name)
	}
}
