package compose

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// VersionLabel tells the pods of the new version from those of the old one when the old
// one's selector has no label of its version to change.
const VersionLabel = v1alpha1.GroupName + "/version"

// versionLabels are labels that, where a selector has them, are there to tell versions
// apart.
func versionLabels() []string {
	return []string{VersionLabel, "app.kubernetes.io/version", "version"}
}

// Image is the image of a container of the new version; of the only one when Container is
// empty.
type Image struct{ Container, Image string }

// ParseImage reads [CONTAINER=]IMAGE.
func ParseImage(text string) (Image, error) {
	container, image, named := strings.Cut(text, "=")
	if !named {
		container, image = "", text
	}
	if image == "" || strings.ContainsAny(image, " \t\n") || named && len(validation.IsDNS1123Label(container)) > 0 {
		return Image{}, fmt.Errorf("%q is not [CONTAINER=]IMAGE", text)
	}
	return Image{container, image}, nil
}

// Options say what to make.
type Options struct {
	Images []Image
	// Name of the Canary. Default: the Canary that last applied the Deployment, else the
	// Deployment's name without the suffix that an earlier release gave it.
	Name string
	// NewName of the new Deployment. Default: the same name and a short hash of the images.
	NewName string
	// Batches, or TotalBatches when there are none.
	Batches      []intstr.IntOrString
	TotalBatches int32
	PauseType    v1alpha1.PauseType
	// Gate is nil for a release by approval alone.
	Gate *v1alpha1.Gate
}

// Result is the Canary and what its author should know of it.
type Result struct {
	Canary *v1alpha1.Canary
	Notes  []string
	// OldLabels and NewLabels are those of the pods of either version.
	OldLabels, NewLabels map[string]string
}

// Compose makes a Canary that releases the Deployment's new version beside the one that
// runs. deployment is the Deployment as JSON.
func Compose(deployment []byte, o Options) (Result, error) {
	var old map[string]any
	if err := json.Unmarshal(deployment, &old); err != nil {
		return Result{}, fmt.Errorf("reading the Deployment: %w", err)
	}
	meta := child(old, "metadata")
	name, namespace := text(meta, "name"), text(meta, "namespace")
	if name == "" {
		return Result{}, errors.New("the Deployment has no name")
	}
	owner := text(child(meta, "annotations"), v1alpha1.AnnotationCanary)
	strip(old)

	fresh := runtime.DeepCopyJSON(old)
	images, err := setImages(fresh, o.Images)
	if err != nil {
		return Result{}, err
	}
	base := baseName(name, old)
	suffix := shortHash(images)
	newName := o.NewName
	if newName == "" {
		newName = join(base, suffix)
	}
	if newName == name {
		return Result{}, fmt.Errorf("the new Deployment would have the old one's name, %s; choose another one", name)
	}
	if problems := validation.IsDNS1123Subdomain(newName); len(problems) > 0 {
		return Result{}, fmt.Errorf("the new Deployment's name %q: %s", newName, problems[0])
	}
	child(fresh, "metadata")["name"] = newName
	notes, err := tellApart(old, fresh, suffix)
	if err != nil {
		return Result{}, err
	}

	c := &v1alpha1.Canary{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Canary"},
		ObjectMeta: metav1.ObjectMeta{Name: firstOf(o.Name, owner, base), Namespace: namespace},
	}
	info := &c.Spec.Info
	info.Type, info.PauseType = v1alpha1.CanaryDeploy, o.PauseType
	info.CurrentBatch = new(intstr.FromInt32(1))
	c.Spec.Batches, c.Spec.Gate = o.Batches, o.Gate
	if len(o.Batches) == 0 {
		info.TotalBatches = new(intstr.FromInt32(o.TotalBatches))
	}
	for _, manifest := range []struct {
		to   *string
		tree map[string]any
	}{{&info.NewDeploymentYaml, fresh}, {&info.OldDeploymentYaml, old}} {
		text, err := yaml.Marshal(manifest.tree)
		if err != nil {
			return Result{}, fmt.Errorf("writing the Deployment: %w", err)
		}
		*manifest.to = string(text)
	}
	if owner != "" && c.Name != owner {
		notes = append(notes, fmt.Sprintf("Canary %s applied this Deployment last; while its rollout is under way another Canary on the same Deployment has to wait", owner))
	}
	result := Result{Canary: c, Notes: notes, OldLabels: podLabels(old), NewLabels: podLabels(fresh)}
	return result, validate(c)
}

// validate applies the controller's rules before anybody else does.
func validate(c *v1alpha1.Canary) error {
	c = c.DeepCopy()
	v1alpha1.SetDefaults(c)
	if len(c.Name) > validation.LabelValueMaxLength {
		return fmt.Errorf("the Canary's name %s is longer than %d characters; choose one with --name", c.Name, validation.LabelValueMaxLength)
	}
	if _, errs := v1alpha1.Validate(c); len(errs) > 0 {
		return fmt.Errorf("the Canary would be invalid: %w", errs.ToAggregate())
	}
	return nil
}

// strip removes what only servers and controllers set, so that a manifest is left that a
// person could have written.
func strip(tree map[string]any) {
	delete(tree, "status")
	tree["apiVersion"], tree["kind"] = "apps/v1", "Deployment"
	meta := child(tree, "metadata")
	for _, field := range []string{
		"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation",
		"managedFields", "namespace", "ownerReferences", "resourceVersion", "selfLink", "uid",
	} {
		delete(meta, field)
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, func(key string, _ any) bool {
			return strings.HasPrefix(key, "deployment.kubernetes.io/") || strings.HasPrefix(key, v1alpha1.GroupName+"/") ||
				key == "kubectl.kubernetes.io/last-applied-configuration"
		})
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	if template := child(child(child(tree, "spec"), "template"), "metadata"); template != nil {
		delete(template, "creationTimestamp")
	}
}

// setImages changes the images of the new version and returns all that it runs.
func setImages(tree map[string]any, images []Image) ([]string, error) {
	containers := containersOf(tree, "containers")
	all := append(slices.Clone(containers), containersOf(tree, "initContainers")...)
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = text(c, "name")
	}
	changed := false
	for _, image := range images {
		target := image.Container
		if target == "" {
			if len(containers) != 1 {
				return nil, fmt.Errorf("the Deployment has %d containers; say which with --image CONTAINER=%s (one of %s)", len(containers), image.Image, strings.Join(names, ", "))
			}
			target = text(containers[0], "name")
		}
		i := slices.Index(names, target)
		if i < 0 {
			return nil, fmt.Errorf("the Deployment has no container %s; it has %s", target, strings.Join(names, ", "))
		}
		changed = changed || text(all[i], "image") != image.Image
		all[i]["image"] = image.Image
	}
	if !changed {
		return nil, errors.New("the Deployment runs this image already, there is nothing to release")
	}
	return imagesOf(tree), nil
}

func imagesOf(tree map[string]any) []string {
	var list []string
	for _, c := range append(containersOf(tree, "containers"), containersOf(tree, "initContainers")...) {
		list = append(list, text(c, "image"))
	}
	return list
}

func containersOf(tree map[string]any, field string) []map[string]any {
	list, _ := child(child(child(tree, "spec"), "template"), "spec")[field].([]any)
	var containers []map[string]any
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			containers = append(containers, c)
		}
	}
	return containers
}

// shortHash is what tells the Deployments of two releases apart: it depends on the images
// alone, so that the same release has the same name whoever makes it.
func shortHash(images []string) string {
	sum := sha256.Sum256([]byte(strings.Join(images, "\n")))
	return hex.EncodeToString(sum[:4])
}

// baseName is the name without the hash of an earlier release, so that names do not grow.
func baseName(name string, tree map[string]any) string {
	return strings.TrimSuffix(name, "-"+shortHash(imagesOf(tree)))
}

// join keeps names short enough for the labels and the pods that are named after them.
func join(base, suffix string) string {
	const longest = validation.DNS1123LabelMaxLength - len("-0123456789-01234")
	if room := longest - len(suffix) - 1; len(base) > room {
		base = strings.TrimRight(base[:room], "-.")
	}
	return base + "-" + suffix
}

// tellApart gives the new version's selector and pods a label that the old version's pods
// do not have, so that neither counts the other's.
func tellApart(old, fresh map[string]any, version string) ([]string, error) {
	selector := child(child(fresh, "spec"), "selector")
	template := child(child(child(fresh, "spec"), "template"), "metadata")
	if selector == nil || template == nil {
		return nil, errors.New("the Deployment has no selector or no pod template")
	}
	match, labels := make(map[string]any), make(map[string]any)
	maps.Copy(match, child(selector, "matchLabels"))
	maps.Copy(labels, child(template, "labels"))
	selector["matchLabels"], template["labels"] = match, labels

	oldMatch := child(child(child(old, "spec"), "selector"), "matchLabels")
	for _, key := range versionLabels() {
		if was, ok := oldMatch[key]; ok {
			match[key], labels[key] = version, version
			return []string{fmt.Sprintf("the new version has the label %s: %s in its selector and pods, the old one %s: %v, so that neither selects the other's pods", key, version, key, was)}, nil
		}
	}
	match[VersionLabel], labels[VersionLabel] = version, version
	return []string{
		fmt.Sprintf("the new version has the label %s: %s in its selector and pods, so that it does not select the old one's pods", VersionLabel, version),
		"the old version's selector, which cannot be changed, also fits the new pods; Kubernetes tells the pods of Deployments apart by their owner, but what counts by labels alone, such as a PodDisruptionBudget, sees both",
	}, nil
}

func podLabels(tree map[string]any) map[string]string {
	labels := map[string]string{}
	for key, value := range child(child(child(child(tree, "spec"), "template"), "metadata"), "labels") {
		labels[key], _ = value.(string)
	}
	return labels
}

func child(tree map[string]any, name string) map[string]any {
	value, _ := tree[name].(map[string]any)
	return value
}

func text(tree map[string]any, name string) string {
	value, _ := tree[name].(string)
	return value
}

func firstOf(names ...string) string {
	return names[slices.IndexFunc(names, func(name string) bool { return name != "" })]
}
