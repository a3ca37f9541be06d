package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/lint"
)

func (a *app) lintCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "lint FILE...|-",
		Short: "Check Canary manifests offline",
		Long: `Check Canary manifests by the rules of the API server and the controller, without
either: no unknown and no duplicate field, then defaults and validation. Files may hold
several documents; those that are no Canary are skipped with a note. Each finding is a
line file:field: rule. A Canary without a namespace is checked as one of -n, if given.

Exit codes: 0 nothing found, 1 something found or a file cannot be read, 2 wrong usage.`,
		Example: "  kubectl canary lint deploy/*.yaml\n  kustomize build . | kubectl canary lint -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("a file is required, or - for standard input")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return a.lint(args, output)
		},
	}
	outputFlag(cmd, &output, "json", "yaml")
	return cmd
}

func (a *app) lint(files []string, output string) error {
	if err := checkOutput(output, "json", "yaml"); err != nil {
		return err
	}
	all := lint.Report{Findings: []lint.Finding{}}
	for _, name := range files {
		text, shown, err := a.read(name)
		if err != nil {
			return failed(exitError, "reading %s: %w", shown, err)
		}
		report := lint.File(shown, text, a.changes.Context.Namespace)
		all.Canaries += report.Canaries
		all.Findings = append(all.Findings, report.Findings...)
		all.Notes = append(all.Notes, report.Notes...)
	}
	if output != "" {
		if err := write(a.Out, output, all); err != nil {
			return err
		}
	} else {
		for _, finding := range all.Findings {
			fmt.Fprintln(a.Out, finding)
		}
		for _, note := range all.Notes {
			fmt.Fprintln(a.Err, "note:", note)
		}
		if len(all.Findings) == 0 {
			fmt.Fprintf(a.Out, "%d %s checked, nothing found\n", all.Canaries, map[bool]string{true: "Canary", false: "Canaries"}[all.Canaries == 1])
		}
	}
	if len(all.Findings) > 0 {
		return &failure{exitError, errShown}
	}
	return nil
}

// read reads a file, or standard input for -, up to a little more than lint accepts.
func (a *app) read(name string) (text []byte, shown string, err error) {
	in, shown := a.In, "standard input"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, name, err
		}
		defer file.Close()
		in, shown = file, name
	}
	text, err = io.ReadAll(io.LimitReader(in, lint.MaxFileBytes+1))
	return text, shown, err
}
