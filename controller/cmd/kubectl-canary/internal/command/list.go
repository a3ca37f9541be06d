package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
)

// pageSize is how many Canaries are asked for at once.
const pageSize = 500

type listFlags struct {
	all       bool
	selector  string
	output    string
	noHeaders bool
}

func (a *app) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List Canaries",
		Example: "  kubectl canary list -A\n  kubectl canary list -n prod -o wide",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.list(cmd.Context(), f)
		},
	}
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "List the Canaries of all namespaces")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "Label selector")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "Leave out the first line of the table")
	outputFlag(cmd, &f.output, "table", "wide", "json", "yaml", "name")
	return cmd
}

func (a *app) list(ctx context.Context, f listFlags) error {
	if err := checkOutput(f.output, "table", "wide", "json", "yaml", "name"); err != nil {
		return err
	}
	namespace := metav1.NamespaceAll
	if !f.all {
		var err error
		if namespace, err = a.namespace(); err != nil {
			return err
		}
	}
	client, err := a.connect()
	if err != nil {
		return err
	}
	list := v1alpha1.CanaryList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "CanaryList"}, Items: []v1alpha1.Canary{}}
	options := metav1.ListOptions{LabelSelector: f.selector, Limit: pageSize}
	for {
		page, err := client.CanarycontrollerV1alpha1().Canaries(namespace).List(ctx, options)
		if err != nil {
			return a.explain(err, "listing Canaries", "namespace "+namespace)
		}
		for i := range page.Items {
			list.Items = append(list.Items, *named(&page.Items[i]))
		}
		list.ResourceVersion = page.ResourceVersion
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	switch f.output {
	case "json", "yaml":
		return write(a.Out, f.output, list)
	case "name":
		for i := range list.Items {
			fmt.Fprintf(a.Out, "canary.%s/%s\n", v1alpha1.GroupName, list.Items[i].Name)
		}
		return nil
	}
	if len(list.Items) == 0 {
		where := "in namespace " + namespace
		if f.all {
			where = "in any namespace"
		}
		fmt.Fprintln(a.Err, "no Canaries", where)
		return nil
	}
	table := view.Table(list.Items, view.TableOptions{
		Namespaces: f.all, Message: f.output == "wide", NoHeaders: f.noHeaders, Now: a.now(),
	})
	_, err = io.Copy(a.Out, strings.NewReader(table))
	return err
}
