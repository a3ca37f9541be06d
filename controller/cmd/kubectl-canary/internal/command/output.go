package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// outputFlag adds -o with the given formats.
func outputFlag(cmd *cobra.Command, to *string, formats ...string) {
	cmd.Flags().StringVarP(to, "output", "o", "", "Output format: "+strings.Join(formats, ", "))
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

func checkOutput(output string, formats ...string) error {
	if output == "" || slices.Contains(formats, output) {
		return nil
	}
	return usage("-o is %q, it must be one of %s", output, strings.Join(formats, ", "))
}

// write prints a value as JSON or YAML.
func write(out io.Writer, format string, value any) error {
	var text []byte
	var err error
	if format == "json" {
		if text, err = json.MarshalIndent(value, "", "    "); err == nil {
			text = append(text, '\n')
		}
	} else {
		text, err = yaml.Marshal(value)
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// named gives a Canary from the client the kind that the client leaves out, and hides what
// only servers read.
func named(c *v1alpha1.Canary) *v1alpha1.Canary {
	c = c.DeepCopy()
	c.APIVersion, c.Kind = v1alpha1.SchemeGroupVersion.String(), "Canary"
	c.ManagedFields = nil
	return c
}
