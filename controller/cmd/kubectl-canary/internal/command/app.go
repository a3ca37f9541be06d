package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
)

// Invocation is how the program was started.
type Invocation struct {
	// Args with the program's name first.
	Args    []string
	Version string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Getenv  func(string) string
}

// completionName is the name under which kubectl looks for a plugin's completion.
const completionName = "kubectl_complete-canary"

// app is one run of the program.
type app struct {
	Invocation
	now func() time.Time
	// tick is the time between two drawings of a live view, and between two looks when
	// nothing can be watched.
	tick    time.Duration
	rules   *clientcmd.ClientConfigLoadingRules
	changes clientcmd.ConfigOverrides
	screen  screenFlags
	// clients are made at the first use; tests put theirs here.
	canaries versioned.Interface
	space    string
}

// Run executes a command line and returns its exit code. The end of ctx interrupts it.
func Run(ctx context.Context, inv Invocation) int { return newApp(inv).run(ctx) }

func newApp(inv Invocation) *app {
	return &app{Invocation: inv, now: time.Now, tick: time.Second, rules: clientcmd.NewDefaultClientConfigLoadingRules()}
}

func (a *app) run(ctx context.Context) int {
	root := a.root()
	args := a.Args[1:]
	if strings.TrimSuffix(filepath.Base(a.Args[0]), ".exe") == completionName {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	code := codeOf(err)
	switch {
	case err == nil || errors.Is(err, errShown):
	case code == exitInterrupted:
		fmt.Fprintln(a.Err, "interrupted")
	default:
		fmt.Fprintln(a.Err, "error:", strings.TrimSuffix(err.Error(), "\n"))
		if code == exitUsage {
			fmt.Fprintf(a.Err, "See '%s --help'.\n", cmd.CommandPath())
		}
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-canary",
		Short: "Show and steer canary rollouts",
		Long: `Show and steer the rollouts of canary-controller: what each is doing, what it waits
for and why, and what its gate decided on which evidence.

` + exitHelp,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl canary"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	// Before the completion command, which takes its output from here once and for all.
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &failure{exitUsage, err} })
	flags := root.PersistentFlags()
	flags.StringVar(&a.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file to use")
	clientcmd.BindOverrideFlags(&a.changes, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	for _, rare := range []string{
		clientcmd.FlagAuthInfoName, clientcmd.FlagBearerToken, clientcmd.FlagCAFile, clientcmd.FlagCertFile, clientcmd.FlagClusterName,
		clientcmd.FlagDisableCompression, clientcmd.FlagImpersonateUID, clientcmd.FlagInsecure, clientcmd.FlagKeyFile, clientcmd.FlagPassword,
		clientcmd.FlagProxyURL, clientcmd.FlagTLSServerName, clientcmd.FlagUsername,
	} {
		if err := flags.MarkHidden(rare); err != nil {
			panic(err)
		}
	}
	a.screen.bind(flags)
	root.AddCommand(
		a.listCommand(), a.statusCommand(), a.whyCommand(),
		a.approveCommand(), a.pauseCommand(), a.resumeCommand(), a.rollbackCommand(), a.retryCommand(),
		a.newCommand(), a.lintCommand(), a.versionCommand(),
	)
	if err := root.RegisterFlagCompletionFunc(clientcmd.FlagNamespace, cobra.NoFileCompletions); err != nil {
		panic(err)
	}
	a.completion(root)
	return root
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unknown command or argument %q", args[0])
	}
	return nil
}

// oneName takes the name of a Canary.
func oneName(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usage("the name of a Canary is required")
	case len(args) > 1:
		return usage("one name is expected, not %d: %s", len(args), strings.Join(args, " "))
	}
	return nil
}

func (a *app) config() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.rules, &a.changes)
}

// restConfig is the connection that kubeconfig and flags describe.
func (a *app) restConfig() (*rest.Config, error) {
	config, err := a.config().ClientConfig()
	if err != nil {
		return nil, a.explain(err, "reading the kubeconfig", "")
	}
	config.UserAgent = "kubectl-canary/" + buildVersion(a.Version)
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(a.Err, rest.WarningWriterOptions{Deduplicate: true})
	return config, nil
}

// connect returns the client for Canaries.
func (a *app) connect() (versioned.Interface, error) {
	if a.canaries != nil {
		return a.canaries, nil
	}
	config, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, failed(exitError, "making the client: %w", err)
	}
	a.canaries = client
	return client, nil
}

// namespace is the one that flags and kubeconfig name.
func (a *app) namespace() (string, error) {
	if a.space != "" {
		return a.space, nil
	}
	namespace, _, err := a.config().Namespace()
	if err != nil {
		return "", a.explain(err, "reading the kubeconfig", "")
	}
	return namespace, nil
}
