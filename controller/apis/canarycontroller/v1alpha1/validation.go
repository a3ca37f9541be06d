package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxBatches bounds info.totalBatches.
const MaxBatches = 1000

// Release is a valid Canary with its manifests decoded.
type Release struct {
	// New is never nil; Old is nil for a first release and for NormalDeploy.
	New, Old *Manifest
	// TotalBatches and Approved are info.totalBatches and info.currentBatch as numbers.
	TotalBatches, Approved int32
}

// SameName says whether old and new are one Deployment, changed in place.
func (r *Release) SameName() bool {
	return r.Old != nil && r.Old.ObjectMeta().Name == r.New.ObjectMeta().Name
}

// Validate decodes a defaulted Canary and applies every rule that needs no API server: those of the CRD
// schema too, so that files can be checked offline. Each error names the field and the rule.
func Validate(c *Canary) (*Release, field.ErrorList) {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	info := spec.Child("info")

	switch c.Spec.Info.Type {
	case NormalDeploy, CanaryDeploy, CanaryRollback:
	case ABTest:
		errs = append(errs, field.Forbidden(info.Child("type"), "ABTest is not supported yet; use NormalDeploy, CanaryDeploy or CanaryRollback"))
	default:
		errs = append(errs, field.NotSupported(info.Child("type"), c.Spec.Info.Type, []CanaryType{NormalDeploy, CanaryDeploy, CanaryRollback}))
	}
	switch c.Spec.Info.PauseType {
	case PauseFirst, PauseNone, PauseEach:
	default:
		errs = append(errs, field.NotSupported(info.Child("pauseType"), c.Spec.Info.PauseType, []PauseType{PauseFirst, PauseNone, PauseEach}))
	}
	if c.Spec.Gate != nil {
		errs = append(errs, validateGate(spec.Child("gate"), c)...)
	}
	if d := c.Spec.ProgressDeadlineSeconds; d != nil && *d < 1 {
		errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), *d, "must be at least 1"))
	}

	release := &Release{}
	var err *field.Error
	if release.TotalBatches, err = wholeNumber(info.Child("totalBatches"), c.Spec.Info.TotalBatches, 1, MaxBatches); err != nil {
		errs = append(errs, err)
	}
	if release.Approved, err = wholeNumber(info.Child("currentBatch"), c.Spec.Info.CurrentBatch, 0, MaxBatches); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, validateBatches(spec.Child("batches"), c.Spec.Batches)...)

	var moreErrs field.ErrorList
	release.New, moreErrs = validateManifest(info.Child("newDeploymentYaml"), c.Spec.Info.NewDeploymentYaml, c.Namespace)
	errs = append(errs, moreErrs...)
	if c.Spec.Info.Type != NormalDeploy && c.Spec.Info.OldDeploymentYaml != "" {
		release.Old, moreErrs = validateManifest(info.Child("oldDeploymentYaml"), c.Spec.Info.OldDeploymentYaml, c.Namespace)
		errs = append(errs, moreErrs...)
	}
	if len(errs) > 0 {
		return nil, errs
	}

	switch {
	case c.Spec.Info.Type == CanaryRollback && release.Old == nil:
		errs = append(errs, field.Required(info.Child("oldDeploymentYaml"), "CanaryRollback needs the Deployment to go back to"))
	case c.Spec.Info.Type == CanaryDeploy && release.SameName():
		errs = append(errs, invalid(info.Child("newDeploymentYaml"), fmt.Sprintf(
			"metadata.name is %q in old and new; CanaryDeploy runs both side by side and needs different names, NormalDeploy changes one in place",
			release.New.ObjectMeta().Name)))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return release, nil
}

func validateBatches(path *field.Path, batches []intstr.IntOrString) field.ErrorList {
	var errs field.ErrorList
	for i, batch := range batches {
		at := path.Index(i)
		text, percent := strings.CutSuffix(batch.String(), "%")
		n, err := strconv.ParseInt(text, 10, 32)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at, batch.String(), "must be a number of replicas or a percent such as 25%"))
		case percent && (n < 1 || n > 100):
			errs = append(errs, field.Invalid(at, batch.String(), "must be from 1% to 100%"))
		case n < 1:
			errs = append(errs, field.Invalid(at, batch.String(), "must be at least 1"))
		}
	}
	return errs
}

func validateManifest(path *field.Path, text, namespace string) (*Manifest, field.ErrorList) {
	manifest, err := DecodeDeployment(text)
	if err != nil {
		return nil, field.ErrorList{invalid(path, err.Error())}
	}
	var errs field.ErrorList
	meta, spec := manifest.ObjectMeta(), manifest.Deployment.Spec
	if problems := utilvalidation.IsDNS1123Subdomain(meta.Name); len(problems) > 0 {
		errs = append(errs, invalid(path, fmt.Sprintf("metadata.name %q: %s", meta.Name, problems[0])))
	}
	if meta.Namespace != "" && meta.Namespace != namespace {
		errs = append(errs, invalid(path, fmt.Sprintf("metadata.namespace is %q, it must be empty or the Canary's, %q", meta.Namespace, namespace)))
	}
	if len(meta.OwnerReferences) > 0 || len(meta.Finalizers) > 0 {
		errs = append(errs, invalid(path, "metadata.ownerReferences and metadata.finalizers must be empty, the controller sets the owner"))
	}
	if spec.Replicas != nil && *spec.Replicas < 0 {
		errs = append(errs, invalid(path, fmt.Sprintf("spec.replicas is %d, it must not be negative", *spec.Replicas)))
	}
	if spec.Paused {
		errs = append(errs, invalid(path, "spec.paused must not be true, its pods would never change; pause the Canary instead"))
	}
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	switch {
	case err != nil:
		errs = append(errs, invalid(path, "spec.selector: "+err.Error()))
	case spec.Selector == nil || selector.Empty():
		errs = append(errs, invalid(path, "spec.selector is required and must not be empty"))
	case !selector.Matches(labels.Set(spec.Template.Labels)):
		errs = append(errs, invalid(path, "spec.selector must match spec.template.metadata.labels"))
	}
	if len(spec.Template.Spec.Containers) == 0 {
		errs = append(errs, invalid(path, "spec.template.spec.containers needs at least one container"))
	}
	return manifest, errs
}

func wholeNumber(path *field.Path, value *intstr.IntOrString, low, high int64) (int32, *field.Error) {
	if value == nil {
		return 0, field.Required(path, "")
	}
	n, err := strconv.ParseInt(value.String(), 10, 32)
	if err != nil || n < low || n > high {
		return 0, field.Invalid(path, value.String(), fmt.Sprintf("must be a whole number from %d to %d", low, high))
	}
	return int32(n), nil
}

// invalid leaves the value out: a whole manifest helps nobody in a condition.
func invalid(path *field.Path, detail string) *field.Error {
	return field.Invalid(path, field.OmitValueType{}, detail)
}
