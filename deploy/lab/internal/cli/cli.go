package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
)

// Kubectl is the subcommand that runs kubectl.
const Kubectl = "kubectl"

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A real Kubernetes control plane whose pods are processes, without containers and without root",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), restartCommand(), logsCommand(), imagesCommand(), kubectlHelp())
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
	return 0
}

// kubectlHelp shows kubectl in the list of commands; main runs it.
func kubectlHelp() *cobra.Command {
	return &cobra.Command{Use: Kubectl + " [--dir DIR] [--] ARGS...", Short: "Run kubectl against the lab"}
}

// dirFlag adds --dir.
func dirFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "dir", defaultDir(), "the lab's directory (also: environment variable LAB_DIR)")
}

func defaultDir() string {
	if dir := os.Getenv("LAB_DIR"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "canary-controller", "lab")
}

// KubectlArgs takes the lab's own --dir off the front of kubectl's arguments
// and adds the lab's kubeconfig, unless the caller named one.
func KubectlArgs(args []string) ([]string, error) {
	dir, named := defaultDir(), os.Getenv("LAB_DIR") != ""
	for len(args) > 0 {
		if args[0] == "--" {
			args = args[1:]
			break
		}
		if value, ok := strings.CutPrefix(args[0], "--dir="); ok {
			dir, named, args = value, true, args[1:]
			continue
		}
		if args[0] == "--dir" && len(args) > 1 {
			dir, named, args = args[1], true, args[2:]
			continue
		}
		break
	}
	for _, a := range args {
		if a == "--kubeconfig" || strings.HasPrefix(a, "--kubeconfig=") {
			return args, nil
		}
	}
	if !named && os.Getenv("KUBECONFIG") != "" {
		return args, nil
	}
	state, err := cluster.ReadState(dir)
	if err != nil {
		return nil, fmt.Errorf("no lab in %s: %w", dir, err)
	}
	return append([]string{"--kubeconfig=" + state.Kubeconfig}, args...), nil
}

func newLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			a.Value = slog.StringValue(a.Value.Time().Format("15:04:05.000"))
		}
		return a
	}}))
}
