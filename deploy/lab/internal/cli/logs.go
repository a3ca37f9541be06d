package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/cluster"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/image"
	"github.com/canarycontroller/canary-controller/deploy/lab/internal/pod"
)

func logsCommand() *cobra.Command {
	var dir, namespace, container string
	var previous bool
	var since time.Duration
	o := pod.LogOptions{}
	c := &cobra.Command{
		Use:   "logs POD",
		Short: "Print a container's output, from the lab's own files",
		Long: `Print a container's output. The files are read directly, so that this works
while the API server is down and after the pod is gone.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			state, err := cluster.ReadState(dir)
			if err != nil {
				return fmt.Errorf("no lab in %s: %w", dir, err)
			}
			logs, err := findLogs(PodLogs(dir), namespace, args[0], container)
			if err != nil {
				return err
			}
			path, err := pod.PickLog(logs, filepath.Base(logs), previous)
			if err != nil {
				return err
			}
			if since > 0 {
				o.Since = time.Now().Add(-since)
			}
			o.Ended = func() bool {
				newest, err := pod.PickLog(logs, filepath.Base(logs), false)
				return previous || err != nil || newest != path || !state.Supervisor.Alive()
			}
			ctx := cmd.Context()
			if ctx == nil {
				ctx = context.Background()
			}
			return pod.CopyLog(ctx, path, cmd.OutOrStdout(), o)
		},
	}
	dirFlag(c, &dir)
	f := c.Flags()
	f.StringVarP(&namespace, "namespace", "n", "default", "the pod's namespace")
	f.StringVarP(&container, "container", "c", "", "the container (default: the pod's only one)")
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on printing what is written, until the container's next run")
	f.BoolVarP(&previous, "previous", "p", false, "print the output of the run before the latest")
	f.IntVar(&o.Tail, "tail", -1, "print that many lines from the end")
	f.BoolVar(&o.Timestamps, "timestamps", false, "print the time of each line")
	f.DurationVar(&since, "since", 0, "print only what was written in this time before now")
	return c
}

// findLogs is the directory of a container's logs. Of several pods that had
// the name, the latest counts.
func findLogs(logs, namespace, name, container string) (string, error) {
	pods, err := filepath.Glob(filepath.Join(logs, namespace+"_"+name+"_*"))
	if err != nil {
		return "", err
	}
	latest, found := time.Time{}, ""
	for _, p := range pods {
		if info, err := os.Stat(p); err == nil && info.ModTime().After(latest) {
			latest, found = info.ModTime(), p
		}
	}
	if found == "" {
		return "", fmt.Errorf("no output of a pod %s/%s: it has not started, does not exist, or runs hollow", namespace, name)
	}
	if container != "" {
		return filepath.Join(found, container), nil
	}
	entries, err := os.ReadDir(found)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) != 1 {
		return "", fmt.Errorf("pod %s/%s has several containers, choose one with -c: %s", namespace, name, strings.Join(names, ", "))
	}
	return filepath.Join(found, names[0]), nil
}

func imagesCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "images",
		Short: "List the image table of a lab",
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
			if state.Images == "" {
				return errors.New("the lab is not ready")
			}
			table, err := image.Load(state.Images)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, img := range table.Images {
				what := strings.Join(append([]string{img.Executable}, img.Args...), " ")
				if img.Hollow {
					what = "(hollow)"
				}
				fmt.Fprintf(out, "%s\t%s\n", img.Name, what)
			}
			fmt.Fprintf(out, "%s:*\t(hollow)\n", image.HollowName)
			return nil
		},
	}
	dirFlag(c, &dir)
	return c
}
