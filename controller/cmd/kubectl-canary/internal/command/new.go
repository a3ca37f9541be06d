package command

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/compose"
	"github.com/canarycontroller/canary-controller/controller/cmd/kubectl-canary/internal/view"
)

type newFlags struct {
	images       []string
	name, rename string
	batches      []string
	total        int32
	pause        string
	gate         gateFlags
	dryRun       string
	output       string
	create       bool
}

type gateFlags struct{ preset, max, harm, prometheus string }

func (a *app) newCommand() *cobra.Command {
	var f newFlags
	cmd := &cobra.Command{
		Use:   "new DEPLOYMENT --image [CONTAINER=]IMAGE",
		Short: "Make a Canary from a running Deployment and a new image",
		Long: `Make a Canary that releases a running Deployment's new version in its place, and print
it, or create it with --create.

The old version is the Deployment as it runs, without what only servers set. The new
one is the same with the new image, under a name of its own, and with a label of its
version in its selector and pods, so that both can run side by side.

` + exitHelp,
		Example: `  kubectl canary new web --image registry/web:v2 > web.yaml
  kubectl canary new web --image app=registry/web:v2 --batches 1,25%,100% \
    --gate-preset http-server --gate-max 1% --create`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("the name of one Deployment is required")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("total-batches") && len(f.batches) > 0 {
				return usage("--batches and --total-batches exclude each other")
			}
			return a.compose(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.images, "image", nil, "New image of the container, or of CONTAINER; may be repeated")
	flags.StringVar(&f.name, "name", "", "Name of the Canary (default: the Canary that last released the Deployment, else the Deployment's name)")
	flags.StringVar(&f.rename, "new-name", "", "Name of the new Deployment (default: the old name and a short hash of the image)")
	flags.StringSliceVar(&f.batches, "batches", nil, "Replicas or percentages of the new version at the end of each batch, such as 1,25%,100%")
	flags.Int32Var(&f.total, "total-batches", 2, "Number of batches, without --batches")
	flags.StringVar(&f.pause, "pause-type", string(v1alpha1.PauseFirst), "Where a person approves: First (after batch 1), Each or None")
	flags.StringVar(&f.gate.preset, "gate-preset", "", "Judge the share of bad requests by ready-made queries: http-server, istio or envoy")
	flags.StringVar(&f.gate.max, "gate-max", "", "Share of bad requests that is never accepted, such as 1%")
	flags.StringVar(&f.gate.harm, "gate-harm", "", "Difference from the old version that must be caught (default: half of --gate-max)")
	flags.StringVar(&f.gate.prometheus, "gate-prometheus", "", "Base URL of the Prometheus to ask (default: the controller's own)")
	flags.BoolVar(&f.create, "create", false, "Create the Canary instead of printing it")
	dryRunFlag(cmd, &f.dryRun)
	outputFlag(cmd, &f.output, "yaml", "json")
	for name, values := range map[string][]string{
		"pause-type":  {string(v1alpha1.PauseFirst), string(v1alpha1.PauseEach), string(v1alpha1.PauseNone)},
		"gate-preset": {string(v1alpha1.PresetHTTPServer), string(v1alpha1.PresetIstio), string(v1alpha1.PresetEnvoy)},
	} {
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err)
		}
	}
	return cmd
}

// options turns flags into what to make, or says which flag is wrong.
func (f *newFlags) options() (compose.Options, error) {
	o := compose.Options{Name: f.name, NewName: f.rename, TotalBatches: f.total, PauseType: v1alpha1.PauseType(f.pause)}
	if len(f.images) == 0 {
		return o, usage("--image is required")
	}
	for _, text := range f.images {
		image, err := compose.ParseImage(text)
		if err != nil {
			return o, usage("--image: %w", err)
		}
		o.Images = append(o.Images, image)
	}
	for _, text := range f.batches {
		text = strings.TrimSpace(text)
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			o.Batches = append(o.Batches, intstr.FromInt32(int32(n)))
		} else {
			o.Batches = append(o.Batches, intstr.FromString(text))
		}
	}
	switch o.PauseType {
	case v1alpha1.PauseFirst, v1alpha1.PauseEach, v1alpha1.PauseNone:
	default:
		return o, usage("--pause-type is %q, it must be First, Each or None", f.pause)
	}
	if f.gate == (gateFlags{}) {
		return o, checkDryRun(f.dryRun)
	}
	if f.gate.preset == "" || f.gate.max == "" {
		return o, usage("a gate needs both --gate-preset and --gate-max")
	}
	o.Gate = &v1alpha1.Gate{Checks: []v1alpha1.GateCheck{{
		Name:       "error-rate",
		Proportion: &v1alpha1.ProportionCheck{Preset: v1alpha1.Preset(f.gate.preset), Max: f.gate.max, Harm: f.gate.harm},
	}}}
	if f.gate.prometheus != "" {
		o.Gate.Prometheus = &v1alpha1.PrometheusSource{Address: f.gate.prometheus}
	}
	return o, checkDryRun(f.dryRun)
}

func (a *app) compose(ctx context.Context, deployment string, f newFlags) error {
	if err := checkOutput(f.output, "yaml", "json"); err != nil {
		return err
	}
	options, err := f.options()
	if err != nil {
		return err
	}
	namespace, err := a.namespace()
	if err != nil {
		return err
	}
	config, err := a.restConfig()
	if err != nil {
		return err
	}
	apps, err := appsv1client.NewForConfig(config)
	if err != nil {
		return failed(exitError, "making the client: %w", err)
	}
	object := fmt.Sprintf("Deployment %s/%s", namespace, deployment)
	// As it is, since a decoded one would lack fields that a newer API server has.
	raw, err := apps.RESTClient().Get().Namespace(namespace).Resource("deployments").Name(deployment).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return failed(exitNotFound, "%s not found", object)
	}
	if err != nil {
		return a.explain(err, "reading "+object, object)
	}
	made, err := compose.Compose(raw, options)
	if err != nil {
		return failed(exitError, "%s: %w", object, err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return failed(exitError, "making the client: %w", err)
	}
	made.Notes = append(made.Notes, services(ctx, core, namespace, made)...)
	if !f.create || f.dryRun == "client" {
		return a.printComposed(made, cmp.Or(f.output, "yaml"))
	}
	client, err := a.connect()
	if err != nil {
		return err
	}
	create := metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict}
	suffix := ""
	if f.dryRun == "server" {
		create.DryRun = []string{metav1.DryRunAll}
		suffix = " (server dry run)"
	}
	name := "Canary " + view.Name(made.Canary)
	created, err := client.CanarycontrollerV1alpha1().Canaries(namespace).Create(ctx, made.Canary, create)
	if err != nil {
		return a.explain(err, "creating "+name, name+", which can be updated by kubectl canary new ... | kubectl apply -f -,")
	}
	for _, note := range made.Notes {
		fmt.Fprintln(a.Err, "note:", note)
	}
	if f.output != "" {
		return write(a.Out, f.output, named(created))
	}
	fmt.Fprintf(a.Out, "%s: created, %s%s\n", name, strings.Join(v1alpha1.DeploymentNames(created), " in place of "), suffix)
	return nil
}

// services says which Services would not send requests to the new version, or only to it.
func services(ctx context.Context, core corev1client.CoreV1Interface, namespace string, made compose.Result) []string {
	list, err := core.Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{"Services could not be read, so whether they send requests to both versions is not known: " + tidy(err)}
	}
	var notes []string
	for i := range list.Items {
		service := &list.Items[i]
		if len(service.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromSet(service.Spec.Selector)
		if selector.Matches(labels.Set(made.OldLabels)) && !selector.Matches(labels.Set(made.NewLabels)) {
			notes = append(notes, fmt.Sprintf("Service %s selects the old version's pods only, by %s: the new version gets no requests from it", service.Name, selector))
		}
	}
	return notes
}

// printComposed prints a Canary; as YAML with its notes as comments.
func (a *app) printComposed(made compose.Result, format string) error {
	if format == "json" {
		for _, note := range made.Notes {
			fmt.Fprintln(a.Err, "note:", note)
		}
	} else {
		for _, note := range made.Notes {
			fmt.Fprintln(a.Out, "#", note)
		}
	}
	// Without the status and the empty time that the type would write.
	spec, err := yaml.Marshal(made.Canary.Spec)
	if err != nil {
		return fmt.Errorf("writing the Canary: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(spec, &tree); err != nil {
		return fmt.Errorf("writing the Canary: %w", err)
	}
	meta := map[string]any{"name": made.Canary.Name}
	if made.Canary.Namespace != "" {
		meta["namespace"] = made.Canary.Namespace
	}
	return write(a.Out, format, map[string]any{
		"apiVersion": made.Canary.APIVersion, "kind": made.Canary.Kind, "metadata": meta, "spec": tree,
	})
}
