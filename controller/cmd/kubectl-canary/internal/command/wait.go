package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/goal"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
)

// waitFlags bound the time a command waits.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlags) bind(cmd *cobra.Command, until string) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "Wait until "+until)
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "How long to wait, such as 10m; 0 is without limit")
}

func (w *waitFlags) check() error {
	switch {
	case w.timeout < 0:
		return usage("--timeout is %s, it must not be negative", w.timeout)
	case w.timeout > 0 && !w.wait:
		return usage("--timeout goes with --wait")
	}
	return nil
}

// errTimeout is the cause of a context whose --timeout has passed.
var errTimeout = errors.New("timeout")

func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, errTimeout)
}

// watching is what to do while a Canary is followed.
type watching struct {
	// show is called with what is known; before is nil at the first time.
	show func(before, now *v1alpha1.Canary, trouble error) error
	// redraw calls show at every tick, since ages pass without anything changing.
	redraw bool
	// goal ends the watch; nil for never.
	goal    *goal.Goal
	timeout time.Duration
}

// observe follows a Canary from c on. It returns what it saw last, and without an error
// when the goal is reached.
func (a *app) observe(ctx context.Context, client versioned.Interface, c *v1alpha1.Canary, w watching) (*v1alpha1.Canary, error) {
	ctx, cancel := withTimeout(ctx, w.timeout)
	defer cancel()
	if err := w.show(nil, c, nil); err != nil {
		return c, err
	}
	if end, err := a.reached(w.goal, c); end {
		return c, err
	}
	follower := a.follow(ctx, client, c)
	defer follower.close()
	ticks := make(<-chan time.Time)
	if w.redraw {
		ticker := time.NewTicker(a.tick)
		defer ticker.Stop()
		ticks = ticker.C
	}
	var trouble error
	for {
		before := c
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errTimeout) {
				return c, a.timedOut(w, c, trouble)
			}
			return c, context.Cause(ctx)
		case <-ticks:
		case l := <-follower.looks:
			if l.deleted {
				return c, failed(exitNotFound, "Canary %s was deleted", view.Name(c))
			}
			if trouble = l.trouble; trouble == nil {
				c = l.canary
			}
		}
		if err := w.show(before, c, trouble); err != nil {
			return c, err
		}
		if end, err := a.reached(w.goal, c); end {
			return c, err
		}
	}
}

func (a *app) timedOut(w watching, c *v1alpha1.Canary, trouble error) error {
	if trouble != nil {
		return failed(exitTimeout, "timed out after %s: the API server cannot be reached: %s", w.timeout, tidy(trouble))
	}
	what := "the end of the watch"
	where := string(c.Status.Phase) + ": " + c.Status.Message
	if w.goal != nil {
		what = w.goal.String()
		_, where = w.goal.Check(c)
	}
	return failed(exitTimeout, "timed out after %s waiting for %s; Canary %s is %s", w.timeout, what, view.Name(c), where)
}

func (a *app) reached(g *goal.Goal, c *v1alpha1.Canary) (end bool, err error) {
	if g == nil {
		return false, nil
	}
	switch state, where := g.Check(c); state {
	case goal.Reached:
		return true, nil
	case goal.Otherwise:
		return true, failed(exitOtherwise, "Canary %s did not come to %s: %s", view.Name(c), g, where)
	}
	return false, nil
}

// waitFor follows a Canary to a goal, telling on the error stream what changes, and says
// where it stands then.
func (a *app) waitFor(ctx context.Context, client versioned.Interface, c *v1alpha1.Canary, g goal.Goal, timeout time.Duration) (*v1alpha1.Canary, error) {
	return a.observe(ctx, client, c, watching{show: a.lines(a.Err), goal: &g, timeout: timeout})
}

// lines shows changes as lines.
func (a *app) lines(out io.Writer) func(before, now *v1alpha1.Canary, trouble error) error {
	var told string
	return func(before, now *v1alpha1.Canary, trouble error) error {
		if trouble != nil {
			if text := tidy(trouble); text != told {
				told = text
				fmt.Fprintf(a.Err, "%s  cannot see the Canary, trying on: %s\n", a.now().UTC().Format(time.RFC3339), text)
			}
			return nil
		}
		told = ""
		for _, line := range view.Lines(before, now, a.now()) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
		return nil
	}
}
