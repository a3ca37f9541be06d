package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(output, "json", "yaml"); err != nil {
				return err
			}
			info := map[string]string{
				"version": buildVersion(a.Version), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			}
			if output != "" {
				return write(a.Out, output, info)
			}
			_, err := fmt.Fprintf(a.Out, "kubectl-canary %s (%s, %s)\n", info["version"], info["go"], info["platform"])
			return err
		},
	}
	outputFlag(cmd, &output, "json", "yaml")
	return cmd
}

// buildVersion is the linker's version, or that of the module when installed by go install.
func buildVersion(linked string) string {
	if info, ok := debug.ReadBuildInfo(); ok && linked == "dev" && info.Main.Version != "" {
		return info.Main.Version
	}
	return linked
}
