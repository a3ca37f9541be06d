package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completionPatience bounds what a press of the tab key may take.
const completionPatience = 3 * time.Second

// completion adds the command that writes completion scripts.
func (a *app) completion(root *cobra.Command) {
	root.InitDefaultCompletionCmd(a.Args...)
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Short = "Write a completion script for bash, zsh, fish or powershell"
		cmd.Long = cmd.Short + `.

The scripts complete the program under its own name, kubectl-canary. kubectl completes
"kubectl canary" by itself when it finds this program on PATH as ` + completionName + `:

  ln -s "$(command -v kubectl-canary)" ~/bin/` + completionName
		cmd.Args = noArguments
	}
}

// completeNames offers the Canaries of the namespace, each with what it is doing.
func (a *app) completeNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	namespace, err := a.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	client, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := client.CanarycontrollerV1alpha1().Canaries(namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for i := range list.Items {
		names = append(names, cobra.CompletionWithDesc(list.Items[i].Name, string(list.Items[i].Status.Phase)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
