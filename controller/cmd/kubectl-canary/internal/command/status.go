package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/goal"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
)

type statusFlags struct {
	watch  bool
	until  string
	output string
	waitFlags
}

func (a *app) statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show where a rollout stands and what it waits for",
		Long: `Show batches, replicas, each check of the gate with its evidence, and what the
rollout waits for and why. With -w the view is redrawn in place until Ctrl-C; without
a terminal a line tells each change. With --wait it ends when a phase is reached.

` + exitHelp,
		Example:           "  kubectl canary status web -w\n  kubectl canary status web --wait=Completed --timeout=30m",
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.status(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "Follow the rollout until Ctrl-C, or until what --wait names")
	cmd.Flags().StringVar(&f.until, "wait", "", "Wait for a phase, or for one of several separated by commas: Completed, RolledBack, AwaitingApproval, ...")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "How long to wait or to watch, such as 10m; 0 is without limit")
	outputFlag(cmd, &f.output, "json", "yaml")
	var phases []string
	for _, phase := range v1alpha1.Phases() {
		phases = append(phases, string(phase))
	}
	if err := cmd.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
	return cmd
}

func (a *app) status(ctx context.Context, name string, f statusFlags) error {
	f.wait = f.until != "" || f.watch
	for _, check := range []error{a.screen.check(), checkOutput(f.output, "json", "yaml"), f.check()} {
		if check != nil {
			return check
		}
	}
	w := watching{timeout: f.timeout}
	if f.until != "" {
		phases, err := goal.Parse(f.until)
		if err != nil {
			return usage("--wait: %w", err)
		}
		w.goal = &goal.Goal{Phases: phases}
	}
	client, c, err := a.get(ctx, name)
	if err != nil {
		return err
	}
	if !f.watch {
		if w.goal != nil {
			var waited error
			if c, waited = a.waitFor(ctx, client, c, *w.goal, f.timeout); waited != nil {
				return waited
			}
		}
		return a.show(c, f.output)
	}
	switch terminal := a.terminal(); {
	case f.output != "":
		w.show = a.objects(f.output)
	case terminal == nil:
		w.show = a.lines(a.Out)
	default:
		screen := &live{out: terminal}
		defer screen.close()
		w.show, w.redraw = a.redraw(screen), true
	}
	_, err = a.observe(ctx, client, c, w)
	return err
}

// get reads a Canary of the namespace in use.
func (a *app) get(ctx context.Context, name string) (versioned.Interface, *v1alpha1.Canary, error) {
	namespace, err := a.namespace()
	if err != nil {
		return nil, nil, err
	}
	client, err := a.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err := client.CanarycontrollerV1alpha1().Canaries(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		object := fmt.Sprintf("Canary %s/%s", namespace, name)
		return nil, nil, a.explain(err, "reading "+object, object)
	}
	return client, c, nil
}

func (a *app) show(c *v1alpha1.Canary, output string) error {
	if output != "" {
		return write(a.Out, output, named(c))
	}
	o, _ := a.drawing()
	_, err := io.Copy(a.Out, strings.NewReader(view.Status(c, o)))
	return err
}

// objects shows each change as a whole object.
func (a *app) objects(format string) func(before, now *v1alpha1.Canary, trouble error) error {
	tell := a.lines(io.Discard)
	return func(before, now *v1alpha1.Canary, trouble error) error {
		if trouble != nil {
			return tell(before, now, trouble)
		}
		if before != nil && before.ResourceVersion == now.ResourceVersion {
			return nil
		}
		if format == "yaml" {
			fmt.Fprintln(a.Out, "---")
		}
		return write(a.Out, format, named(now))
	}
}

// redraw shows the view in place.
func (a *app) redraw(screen *live) func(before, now *v1alpha1.Canary, trouble error) error {
	return func(_, now *v1alpha1.Canary, trouble error) error {
		o, height := a.drawing()
		text := view.Status(now, o)
		if trouble != nil {
			text += view.Notice("cannot see the Canary, trying on: "+tidy(trouble), o)
		}
		ellipsis := "…"
		if o.ASCII {
			ellipsis = "..."
		}
		return screen.draw(text, o.Width, height, ellipsis)
	}
}
