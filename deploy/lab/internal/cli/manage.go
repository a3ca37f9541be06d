package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
)

// stopTimeout is how long a lab may take to stop in order.
const stopTimeout = time.Minute

// detach starts the lab in a process of its own and waits until it is ready.
func detach(cmd *cobra.Command, o *upOptions) error {
	dir, err := filepath.Abs(o.cluster.Dir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var args []string
	for _, a := range os.Args[1:] {
		if a != "--detach" && !strings.HasPrefix(a, "--detach=") {
			args = append(args, a)
		}
	}
	out, err := os.CreateTemp("", "lab-*.log")
	if err != nil {
		return err
	}
	defer out.Close()
	child := exec.Command(self, args...)
	child.Stdout, child.Stderr = out, out
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("starting the lab in the background: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	fmt.Fprintf(cmd.ErrOrStderr(), "lab: starting in the background (process %d), progress in %s\n", child.Process.Pid, out.Name())
	for {
		state, err := cluster.ReadState(dir)
		if err == nil && state.Ready && state.Supervisor.Pid == child.Process.Pid {
			// The log goes on in the lab's directory, with the rest of it.
			if err := os.Rename(out.Name(), filepath.Join(dir, "logs", "lab.log")); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "lab: the log stays in %s\n", out.Name())
			}
			fmt.Fprintln(cmd.OutOrStdout(), state.Kubeconfig)
			return nil
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(out.Name())
			_ = os.Remove(out.Name())
			return fmt.Errorf("the lab did not start (%w):\n%s", err, text)
		case <-cmd.Context().Done():
			_ = child.Process.Signal(syscall.SIGTERM)
			<-ended
			return cmd.Context().Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func downCommand() *cobra.Command {
	var dir string
	var keep bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop a lab, kill whatever it left behind, and remove its directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			state, err := cluster.ReadState(dir)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(cmd.ErrOrStderr(), "lab: no lab in %s\n", dir)
				return nil
			}
			if err != nil {
				return err
			}
			if err := stop(cmd.Context(), state); err != nil {
				return err
			}
			if err := cluster.Sweep(dir, newLogger()); err != nil {
				return err
			}
			if keep {
				return nil
			}
			return os.RemoveAll(dir)
		},
	}
	dirFlag(c, &dir)
	c.Flags().BoolVar(&keep, "keep", false, "keep the directory with its logs")
	return c
}

// stop ends a lab's supervisor and waits for it.
func stop(ctx context.Context, state cluster.State) error {
	deadline := time.Now().Add(stopTimeout)
	for asked := false; state.Supervisor.Alive(); asked = true {
		if !asked {
			_ = syscall.Kill(state.Supervisor.Pid, syscall.SIGTERM)
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(state.Supervisor.Pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func statusCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "status",
		Short: "Say whether a lab runs; exits 1 if it does not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			state, err := cluster.ReadState(dir)
			if err != nil {
				return fmt.Errorf("no lab in %s: %w", dir, err)
			}
			if !state.Supervisor.Alive() {
				return fmt.Errorf("the lab in %s is not running", dir)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			defer w.Flush()
			ready := "starting"
			if state.Ready {
				ready = "ready"
			}
			for _, row := range [][2]any{
				{"state", ready}, {"process", state.Supervisor.Pid}, {"directory", dir}, {"name", state.Name},
				{"server", state.Server}, {"kubeconfig", state.Kubeconfig}, {"nodes", state.Nodes},
				{"images", state.Images}, {"audit log", state.AuditLog},
			} {
				if row[1] != "" {
					fmt.Fprintf(w, "%s:\t%v\n", row[0], row[1])
				}
			}
			return nil
		},
	}
	dirFlag(c, &dir)
	return c
}

func restartCommand() *cobra.Command {
	var dir string
	var kill bool
	c := &cobra.Command{
		Use:       "restart {apiserver|etcd|controller-manager|scheduler}",
		Short:     "Restart one server of a running lab, on the same port with the same data",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"apiserver", "etcd", "controller-manager", "scheduler"},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			state, err := cluster.ReadState(dir)
			if err != nil {
				return fmt.Errorf("no lab in %s: %w", dir, err)
			}
			name := args[0]
			switch name {
			case "apiserver", "controller-manager", "scheduler":
				name = "kube-" + name
			}
			path := "/restart/" + name
			if kill {
				path += "?kill=true"
			}
			return callControl(cmd.Context(), state, path)
		},
	}
	dirFlag(c, &dir)
	c.Flags().BoolVar(&kill, "kill", false, "end it with SIGKILL instead of SIGTERM")
	return c
}
