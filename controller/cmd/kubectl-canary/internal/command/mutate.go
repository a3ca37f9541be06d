package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/change"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/goal"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
)

// fieldManager is who the API server records as the author of changes.
const fieldManager = "kubectl-canary"

// attemptsLimit is how often a change is tried when others write at the same time.
const attemptsLimit = 20

// mutateFlags are those of every command that changes a Canary.
type mutateFlags struct {
	dryRun string
	output string
	yes    bool
	waitFlags
}

func (f *mutateFlags) bind(cmd *cobra.Command) {
	dryRunFlag(cmd, &f.dryRun)
	outputFlag(cmd, &f.output, "json", "yaml")
}

func dryRunFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "dry-run", "none", "none, client (say what would change, send nothing) or server (let the API server check it, change nothing)")
	if err := cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "client", "server"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

func checkDryRun(value string) error {
	switch value {
	case "none", "client", "server":
		return nil
	}
	return usage("--dry-run is %q, it must be none, client or server", value)
}

func (f *mutateFlags) check() error {
	if err := checkDryRun(f.dryRun); err != nil {
		return err
	}
	if f.dryRun != "none" && f.wait {
		return usage("--wait makes no sense with --dry-run: nothing will change")
	}
	if err := checkOutput(f.output, "json", "yaml"); err != nil {
		return err
	}
	return f.waitFlags.check()
}

// mutation is a command that changes a Canary.
type mutation struct {
	flags *mutateFlags
	doing string
	// decide is asked again when somebody else has changed the Canary meanwhile.
	decide func(*v1alpha1.Canary) (change.Change, error)
	// goal is what --wait waits for; nil for commands without it.
	goal func(*v1alpha1.Canary, change.Change) goal.Goal
}

func (a *app) mutate(ctx context.Context, name string, m mutation) error {
	if err := m.flags.check(); err != nil {
		return err
	}
	client, c, err := a.get(ctx, name)
	if err != nil {
		return err
	}
	object := "Canary " + view.Name(c)
	api := client.CanarycontrollerV1alpha1().Canaries(c.Namespace)
	agreed := ""
	var done change.Change
	for attempt := 1; ; attempt++ {
		if done, err = m.decide(c); err != nil {
			var refusal *change.Refusal
			if errors.As(err, &refusal) {
				return failed(exitError, "%s: %s", object, tidy(refusal))
			}
			return err
		}
		if done.Patch == nil {
			break
		}
		if done.Confirm != "" && done.Confirm != agreed && !m.flags.yes && m.flags.dryRun == "none" {
			if err := a.confirm(object, done); err != nil {
				return err
			}
			agreed = done.Confirm
		}
		if m.flags.dryRun == "client" {
			break
		}
		options := metav1.PatchOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict}
		if m.flags.dryRun == "server" {
			options.DryRun = []string{metav1.DryRunAll}
		}
		patched, err := api.Patch(ctx, name, types.MergePatchType, done.Patch, options)
		if err == nil {
			c = patched
			break
		}
		if !apierrors.IsConflict(err) || attempt == attemptsLimit {
			return a.explain(err, m.doing+" "+object, object)
		}
		if c, err = api.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return a.explain(err, "reading "+object, object)
		}
	}
	line := fmt.Sprintf("%s: %s", object, strings.Join(strings.Fields(done.Summary), " "))
	switch {
	case done.Patch == nil:
	case m.flags.dryRun != "none":
		line += " (" + m.flags.dryRun + " dry run)"
	}
	if m.flags.output == "" {
		fmt.Fprintln(a.Out, line)
	} else {
		fmt.Fprintln(a.Err, line)
	}
	if m.flags.wait && m.goal != nil {
		if c, err = a.waitFor(ctx, client, c, m.goal(c, done), m.flags.timeout); err != nil {
			return err
		}
		if m.flags.output == "" {
			fmt.Fprintf(a.Out, "%s: %s\n", object, standing(c))
		}
	}
	if m.flags.output != "" {
		return write(a.Out, m.flags.output, named(c))
	}
	return nil
}

func standing(c *v1alpha1.Canary) string {
	text := string(c.Status.Phase)
	if c.Status.Message != "" {
		text += ": " + strings.Join(strings.Fields(c.Status.Message), " ")
	}
	return text
}

// confirm asks a person whether to do what the gate does not.
func (a *app) confirm(object string, done change.Change) error {
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usage("%s: the gate says %s; without a terminal to confirm on, --yes is needed to go on without evidence", object, done.Confirm)
	}
	fmt.Fprintf(a.Err, "%s, batch %d. The gate says:\n  %s\nLet it through without evidence? Type yes: ", object, done.Batch, strings.Join(strings.Fields(done.Confirm), " "))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(strings.ToLower(answer)) != "yes" {
		if err != nil {
			fmt.Fprintln(a.Err)
		}
		return failed(exitError, "%s: not confirmed, nothing is changed", object)
	}
	return nil
}

// rolloutID is the rollout that a wait is about, empty while that is not certain.
func rolloutID(c *v1alpha1.Canary) string {
	if c.Status.Rollout == nil || c.Status.Phase == v1alpha1.PhaseInvalid {
		return ""
	}
	return c.Status.Rollout.ID
}

func (a *app) approveCommand() *cobra.Command {
	var f mutateFlags
	var o change.ApproveOptions
	cmd := &cobra.Command{
		Use:   "approve NAME",
		Short: "Let a rollout go on to its next batch",
		Long: `Let a rollout go on to its next batch by raising spec.info.currentBatch.

A gate that has paused for a person is let through too, if what it says now is Pass.
With --without-evidence the batch under judgement is let through whatever the gate
says, for this rollout only; what it says is shown and has to be confirmed.

` + exitHelp,
		Example: "  kubectl canary approve web\n  kubectl canary approve web --batch 3 --wait --timeout 10m\n  kubectl canary approve web --without-evidence",
		Args:    oneName, ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("batch") && o.Batch < 1 {
				return usage("--batch is %d, it must be at least 1", o.Batch)
			}
			if f.yes && !o.WithoutEvidence {
				return usage("--yes goes with --without-evidence")
			}
			return a.mutate(cmd.Context(), args[0], mutation{
				flags: &f, doing: "approving",
				decide: func(c *v1alpha1.Canary) (change.Change, error) {
					done, err := change.Approve(c, o)
					// Another look must not approve another batch than the first one did.
					switch {
					case o.Batch != 0 || done.Batch == 0:
					case done.Override && !o.WithoutEvidence:
						o.Batch = done.Batch + 1
					default:
						o.Batch = done.Batch
					}
					return done, err
				},
				goal: approveGoal,
			})
		},
	}
	f.bind(cmd)
	f.waitFlags.bind(cmd, "the rollout is complete or waits for another approval")
	cmd.Flags().Int32Var(&o.Batch, "batch", 0, "The batch that may start, the next one by default; with --without-evidence the batch that is let through, the current one by default")
	cmd.Flags().BoolVar(&o.WithoutEvidence, "without-evidence", false, "Let the current batch through whatever the gate says")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "Do not ask before --without-evidence")
	return cmd
}

func approveGoal(c *v1alpha1.Canary, done change.Change) goal.Goal {
	g := goal.Goal{Settled: true, RolloutID: rolloutID(c), Batch: done.Batch}
	if done.Override {
		g.Ignore = done.Batch
		g.Batch = done.Batch + 1
	}
	return g
}

func (a *app) pauseCommand() *cobra.Command {
	var f mutateFlags
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Keep batches from advancing",
		Long:  "Keep batches from advancing by setting spec.paused. What runs keeps running.\n\n" + exitHelp,
		Args:  oneName, ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mutate(cmd.Context(), args[0], mutation{flags: &f, doing: "pausing", decide: change.Pause})
		},
	}
	f.bind(cmd)
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	var f mutateFlags
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Let batches advance again after pause",
		Long:  "Let batches advance again after pause, by unsetting spec.paused.\n\n" + exitHelp,
		Args:  oneName, ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mutate(cmd.Context(), args[0], mutation{
				flags: &f, doing: "resuming", decide: change.Resume,
				goal: func(*v1alpha1.Canary, change.Change) goal.Goal { return goal.Goal{Settled: true} },
			})
		},
	}
	f.bind(cmd)
	f.waitFlags.bind(cmd, "the rollout is complete or waits for an approval")
	return cmd
}

func (a *app) rollbackCommand() *cobra.Command {
	var f mutateFlags
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Go back to the old version",
		Long:  "Go back to the old version, from whatever state, by setting spec.info.type to\nCanaryRollback.\n\n" + exitHelp,
		Args:  oneName, ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mutate(cmd.Context(), args[0], mutation{
				flags: &f, doing: "rolling back", decide: change.Rollback,
				goal: func(*v1alpha1.Canary, change.Change) goal.Goal {
					return goal.Goal{Phases: []v1alpha1.Phase{v1alpha1.PhaseRolledBack}}
				},
			})
		},
	}
	f.bind(cmd)
	f.waitFlags.bind(cmd, "the old version is back")
	return cmd
}

func (a *app) retryCommand() *cobra.Command {
	var f mutateFlags
	var keep bool
	cmd := &cobra.Command{
		Use:   "retry NAME",
		Short: "Begin a rolled-back or failed rollout again",
		Long: `Begin a rolled-back or failed rollout again, from its first batch. Approvals given to
the attempt that ended do not count for the new one, unless --keep-approvals is given.
A batch that was let through without evidence needs evidence again.

` + exitHelp,
		Args: oneName, ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.mutate(cmd.Context(), args[0], mutation{
				flags: &f, doing: "retrying",
				decide: func(c *v1alpha1.Canary) (change.Change, error) {
					return change.Retry(c, change.RetryOptions{Value: a.now().UTC().Format(time.RFC3339), KeepApprovals: keep})
				},
				goal: func(_ *v1alpha1.Canary, done change.Change) goal.Goal {
					return goal.Goal{Settled: true, Retry: done.Retry}
				},
			})
		},
	}
	f.bind(cmd)
	f.waitFlags.bind(cmd, "the rollout is complete or waits for an approval")
	cmd.Flags().BoolVar(&keep, "keep-approvals", false, "Let approvals of the attempt that ended count for the new one")
	return cmd
}
