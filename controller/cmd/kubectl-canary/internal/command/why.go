package command

import (
	"cmp"
	"context"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
)

// jaegerEnv names the base URL of Jaeger's pages.
const jaegerEnv = "CANARY_JAEGER_URL"

type whyFlags struct{ jaeger, output string }

func (a *app) whyCommand() *cobra.Command {
	var f whyFlags
	cmd := &cobra.Command{
		Use:   "why NAME",
		Short: "Tell what a rollout did, in order, and on which evidence",
		Long: `Tell what a rollout did, in order: batches, the gate's decisions with their evidence,
the reason of a rollback, and where its trace is.

` + exitHelp,
		Example:           "  kubectl canary why web --jaeger-url http://localhost:16686",
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.why(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().StringVar(&f.jaeger, "jaeger-url", "", "Base URL of Jaeger for links to traces (default $"+jaegerEnv+")")
	outputFlag(cmd, &f.output, "json", "yaml")
	return cmd
}

func (a *app) why(ctx context.Context, name string, f whyFlags) error {
	jaeger := cmp.Or(f.jaeger, a.Getenv(jaegerEnv))
	for _, check := range []error{a.screen.check(), checkOutput(f.output, "json", "yaml"), checkURL("--jaeger-url or "+jaegerEnv, jaeger)} {
		if check != nil {
			return check
		}
	}
	_, c, err := a.get(ctx, name)
	if err != nil {
		return err
	}
	o, _ := a.drawing()
	explanation := view.Explain(c, jaeger, o.Now)
	if f.output != "" {
		return write(a.Out, f.output, explanation)
	}
	_, err = io.Copy(a.Out, strings.NewReader(view.Why(explanation, o)))
	return err
}

func checkURL(name, text string) error {
	if text == "" {
		return nil
	}
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return usage("%s must be an http or https URL without query or fragment", name)
	}
	return nil
}
