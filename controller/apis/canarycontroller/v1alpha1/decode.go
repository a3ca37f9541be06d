package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// MaxDeploymentYAMLBytes is the size above which a Deployment manifest is refused:
// far above any real one, and low enough that two of them, the Canary's managed
// fields and its status stay below etcd's default limit of 1.5 MiB for an object.
const MaxDeploymentYAMLBytes = 256 << 10

// Manifest is a Deployment as its author wrote it.
type Manifest struct {
	// Deployment is the decoded object without fields that only the API server sets.
	Deployment *appsv1.Deployment
	// Canonical is the author's document as JSON with sorted keys. It does not depend on
	// the version of the API types, so hashes of it survive controller upgrades.
	Canonical json.RawMessage
}

// DecodeDeployment reads one apps/v1 Deployment strictly: one document, no unknown and no
// duplicate field, known types. Errors name the line of the text, from 1, where it is known.
func DecodeDeployment(text string) (*Manifest, error) {
	if len(text) > MaxDeploymentYAMLBytes {
		return nil, fmt.Errorf("is %d bytes long, the limit is %d", len(text), MaxDeploymentYAMLBytes)
	}
	root, err := singleDocument(text)
	if err != nil {
		return nil, err
	}
	if err := checkKind(root); err != nil {
		return nil, err
	}
	if err := normalise(root); err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := root.Decode(&tree); err != nil {
		return nil, cleanYAMLError(err)
	}
	dropServerFields(tree)
	canonical, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("cannot be written as JSON: %w", err)
	}
	var deployment appsv1.Deployment
	strict, err := kjson.UnmarshalStrict(canonical, &deployment)
	if err != nil {
		return nil, typeError(root, err)
	}
	if len(strict) > 0 {
		return nil, atLine(root, fieldPath(strict[0].Error()), strict[0])
	}
	return &Manifest{Deployment: &deployment, Canonical: canonical}, nil
}

// singleDocument returns the root mapping of the only non-empty document in text.
func singleDocument(text string) (*yamlv3.Node, error) {
	decoder := yamlv3.NewDecoder(strings.NewReader(text))
	var root *yamlv3.Node
	for {
		var document yamlv3.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, cleanYAMLError(err)
		}
		content := document.Content[0]
		if content.Tag == "!!null" {
			continue
		}
		if root != nil {
			return nil, fmt.Errorf("line %d: a second YAML document, only one Deployment is allowed", content.Line)
		}
		root = content
	}
	switch {
	case root == nil:
		return nil, errors.New("is empty, one apps/v1 Deployment is required")
	case root.Kind != yamlv3.MappingNode:
		return nil, fmt.Errorf("line %d: is not a YAML mapping, one apps/v1 Deployment is required", root.Line)
	}
	return root, nil
}

func checkKind(root *yamlv3.Node) error {
	kind, version := child(root, "kind"), child(root, "apiVersion")
	if kind == nil || version == nil {
		return fmt.Errorf("line %d: apiVersion and kind are required, they must be apps/v1 and Deployment", root.Line)
	}
	if kind.Value != "Deployment" {
		return fmt.Errorf("line %d: kind is %q, it must be Deployment", kind.Line, kind.Value)
	}
	if version.Value != "apps/v1" {
		return fmt.Errorf("line %d: apiVersion is %q, it must be apps/v1", version.Line, version.Value)
	}
	return nil
}

// normalise readies a document for JSON: dates stay the text they are, as kubectl has it,
// and keys must be text. It refuses a document that its aliases blow up beyond the limit,
// before anything is made of it.
func normalise(root *yamlv3.Node) error {
	sizes := map[*yamlv3.Node]int{}
	var size func(n *yamlv3.Node) (int, error)
	size = func(n *yamlv3.Node) (int, error) {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		if known, ok := sizes[n]; ok {
			return known, nil
		}
		// An anchor inside itself counts as nothing here; decoding refuses it.
		sizes[n] = 0
		if n.Kind == yamlv3.ScalarNode && n.ShortTag() == "!!timestamp" {
			n.Tag = "!!str"
		}
		total := len(n.Value) + 1
		for i, part := range n.Content {
			if n.Kind == yamlv3.MappingNode && i%2 == 0 && part.ShortTag() != "!!str" && part.ShortTag() != "!!timestamp" && part.ShortTag() != "!!merge" {
				return 0, fmt.Errorf("line %d: the key %.40q is not text, put it in quotes", part.Line, part.Value)
			}
			more, err := size(part)
			if err != nil {
				return 0, err
			}
			if total += more; total > MaxDeploymentYAMLBytes {
				return 0, fmt.Errorf("line %d: becomes longer than %d bytes with its aliases written out", n.Line, MaxDeploymentYAMLBytes)
			}
		}
		sizes[n] = total
		return total, nil
	}
	_, err := size(root)
	return err
}

// dropServerFields removes what `kubectl get -o yaml` adds and nobody may apply: others
// would put it back at once.
func dropServerFields(tree map[string]any) {
	delete(tree, "status")
	meta, ok := tree["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, field := range []string{
		"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
	} {
		delete(meta, field)
	}
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, func(key string, _ any) bool {
			return strings.HasPrefix(key, "deployment.kubernetes.io/") || key == "kubectl.kubernetes.io/last-applied-configuration"
		})
	}
}

var quotedPath = regexp.MustCompile(`field "([^"]+)"`)

// fieldPath returns the path in sigs.k8s.io/json's strict messages, such as
// unknown field "spec.template.spec.foo".
func fieldPath(message string) string {
	if match := quotedPath.FindStringSubmatch(message); match != nil {
		return match[1]
	}
	return ""
}

func typeError(root *yamlv3.Node, err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return atLine(root, mismatch.Field, fmt.Errorf("%s must not be a JSON %s", mismatch.Field, mismatch.Value))
	}
	return err
}

func atLine(root *yamlv3.Node, path string, err error) error {
	if line := lineOf(root, path); line > 0 {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

// lineOf walks a path such as spec.containers[0].name as far as it goes and returns the
// line of the last key found.
func lineOf(node *yamlv3.Node, path string) int {
	line := 0
	for step := range strings.SplitSeq(path, ".") {
		name, index, indexed := strings.Cut(step, "[")
		key, value := entry(node, name)
		if value == nil {
			return line
		}
		line, node = key.Line, value
		if !indexed {
			continue
		}
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || node.Kind != yamlv3.SequenceNode || i >= len(node.Content) {
			return line
		}
		node = node.Content[i]
		line = node.Line
	}
	return line
}

func child(node *yamlv3.Node, name string) *yamlv3.Node {
	_, value := entry(node, name)
	return value
}

func entry(node *yamlv3.Node, name string) (key, value *yamlv3.Node) {
	if node == nil || node.Kind != yamlv3.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			value = node.Content[i+1]
			if value.Kind == yamlv3.AliasNode {
				value = value.Alias
			}
			return node.Content[i], value
		}
	}
	return nil, nil
}

// cleanYAMLError drops the library's prefix; its messages already carry the line.
func cleanYAMLError(err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	message = strings.TrimPrefix(message, "unmarshal errors:\n  ")
	return fmt.Errorf("is not valid YAML: %s", message)
}

// DeploymentNames returns the names of the Deployments that a Canary's manifests speak of,
// new first, as far as they can be read. It is lenient: an invalid manifest still tells
// which Deployment it was meant for.
func DeploymentNames(c *Canary) []string {
	var names []string
	for _, text := range []string{c.Spec.Info.NewDeploymentYaml, c.Spec.Info.OldDeploymentYaml} {
		if text == "" || len(text) > MaxDeploymentYAMLBytes {
			continue
		}
		var partial struct {
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		root, err := singleDocument(text)
		if err != nil || normalise(root) != nil || root.Decode(&partial) != nil {
			continue
		}
		if name := partial.Metadata.Name; name != "" && (len(names) == 0 || names[0] != name) {
			names = append(names, name)
		}
	}
	return names
}

// Replicas returns the replicas a manifest asks for: 1 when it does not say, as the API does.
func (m *Manifest) Replicas() int32 {
	if m.Deployment.Spec.Replicas == nil {
		return 1
	}
	return *m.Deployment.Spec.Replicas
}

// ObjectMeta returns the metadata of the manifest's Deployment.
func (m *Manifest) ObjectMeta() *metav1.ObjectMeta { return &m.Deployment.ObjectMeta }
