package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// MaxFileBytes bounds a file: etcd holds no object larger than 1.5 MiB, and a file may
// hold several.
const MaxFileBytes = 32 << 20

// Finding is one thing wrong in a file.
type Finding struct {
	// File is the name the caller gave; Document counts the documents of it from 1.
	File     string `json:"file"`
	Document int    `json:"document"`
	// Line of the file, from 1, or 0 when it is not known.
	Line int `json:"line,omitempty"`
	// Canary is its name, where it has one.
	Canary string `json:"canary,omitempty"`
	// Field is a path such as spec.info.type; empty for a document that is no YAML.
	Field string `json:"field,omitempty"`
	// Rule says what is wrong.
	Rule string `json:"rule"`
}

// String is file:field: rule, with the line at the end.
func (f Finding) String() string {
	text := f.File + ":"
	if f.Field != "" {
		text += f.Field + ":"
	}
	text += " " + f.Rule
	if f.Line > 0 {
		text += fmt.Sprintf(" (line %d)", f.Line)
	}
	return text
}

// Report is what lint makes of a file.
type Report struct {
	// Canaries counts those that were checked.
	Canaries int `json:"canaries"`
	// Findings in the order of the file.
	Findings []Finding `json:"findings"`
	// Notes are about documents that were not checked.
	Notes []string `json:"notes,omitempty"`
}

// File checks the text of a file that may hold several YAML documents, JSON, or lists.
// namespace is what a Canary without one is created in; empty when that is not known.
func File(name string, text []byte, namespace string) Report {
	var r Report
	if len(text) > MaxFileBytes {
		r.Findings = append(r.Findings, Finding{File: name, Document: 1, Rule: fmt.Sprintf("is %d bytes long, the limit is %d", len(text), MaxFileBytes)})
		return r
	}
	number := 0
	for _, d := range split(text) {
		document := &document{report: &r, file: name, number: number + 1, text: d.text, offset: d.line - 1, namespace: namespace}
		if document.check() {
			number++
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(a.Document-b.Document, a.Line-b.Line)
	})
	if number == 0 {
		r.Notes = append(r.Notes, name+": is empty")
	}
	return r
}

type part struct {
	text []byte
	line int
}

// split cuts a file where a line begins with ---, as kubectl does.
func split(text []byte) []part {
	var parts []part
	start, line := 0, 1
	current := 1
	for at := 0; at < len(text); {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			end = len(text)
		} else {
			end += at + 1
		}
		if separator(text[at:end]) {
			parts = append(parts, part{text[start:at], line})
			// What follows --- on its line belongs to the document.
			start, line = at+3, current
		}
		at = end
		current++
	}
	return append(parts, part{text[start:], line})
}

func separator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// document is one document of a file.
type document struct {
	report    *Report
	file      string
	number    int
	text      []byte
	offset    int // lines of the file before it
	namespace string
	canary    string
	root      *yamlv3.Node
	prefix    string // path of the object in a list, with a dot
}

func (d *document) add(path, rule string, line int) {
	if line == 0 && d.root != nil {
		line = lineOf(d.root, d.prefix+path)
	}
	if line > 0 {
		line += d.offset
	}
	d.report.Findings = append(d.report.Findings, Finding{
		File: d.file, Document: d.number, Line: line, Canary: d.canary, Field: d.prefix + path, Rule: rule,
	})
}

// check looks at the document and reports whether there was one.
func (d *document) check() bool {
	var node yamlv3.Node
	if err := yamlv3.Unmarshal(d.text, &node); err != nil {
		d.add("", "is not valid YAML: "+d.yamlError(err), 0)
		return true
	}
	if len(node.Content) == 0 || node.Content[0].ShortTag() == "!!null" {
		return false
	}
	d.root = node.Content[0]
	doubled := duplicates(d.root, "")
	// The conversion that kubectl makes decides what the document means.
	document, err := yaml.YAMLToJSON(d.text)
	if err != nil && len(doubled) == 0 {
		d.add("", "is not valid YAML: "+d.yamlError(err), 0)
		return true
	}
	var kind metav1.TypeMeta
	if err != nil || json.Unmarshal(document, &kind) != nil {
		kind = metav1.TypeMeta{Kind: scalar(d.root, "kind"), APIVersion: scalar(d.root, "apiVersion")}
	}
	isList := kind.Kind == "List" && kind.APIVersion == "v1" || kind.Kind == "CanaryList" && kind.APIVersion == v1alpha1.SchemeGroupVersion.String()
	switch {
	case isList && err == nil:
		d.list(document, doubled)
	case d.concerns(kind):
		d.object(document, doubled, err == nil)
	default:
		d.skip(kind)
	}
	return true
}

// concerns says whether an object is a Canary, or was to be one.
func (d *document) concerns(kind metav1.TypeMeta) bool {
	group, _, _ := strings.Cut(kind.APIVersion, "/")
	return group == v1alpha1.GroupName || strings.EqualFold(kind.Kind, "Canary") && (kind.APIVersion == "" || group == v1alpha1.GroupName)
}

func (d *document) skip(kind metav1.TypeMeta) {
	what := strings.TrimSpace(kind.APIVersion + " " + kind.Kind)
	if what == "" {
		what = "no apiVersion and kind"
	}
	where := fmt.Sprintf("document %d", d.number)
	if d.prefix != "" {
		where += ", " + strings.TrimSuffix(d.prefix, ".")
	}
	d.report.Notes = append(d.report.Notes, fmt.Sprintf("%s: %s is not a Canary (%s), not checked", d.file, where, what))
}

func (d *document) list(text []byte, doubled []duplicate) {
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		d.add("items", "must be a list of objects", 0)
		return
	}
	for i, item := range list.Items {
		one := *d
		one.prefix = fmt.Sprintf("items[%d].", i)
		var kind metav1.TypeMeta
		if json.Unmarshal(item, &kind) != nil {
			one.add("", "must be an object", 0)
			continue
		}
		if !one.concerns(kind) {
			one.skip(kind)
			continue
		}
		var own []duplicate
		for _, found := range doubled {
			if rest, ok := strings.CutPrefix(found.path, one.prefix); ok {
				own = append(own, duplicate{rest, found.line})
			}
		}
		one.object(item, own, true)
	}
}

// object checks one Canary. decoded says that text is its JSON.
func (d *document) object(text []byte, doubled []duplicate, decoded bool) {
	d.report.Canaries++
	if node := at(d.root, strings.TrimSuffix(d.prefix, ".")); node != nil {
		_, meta := entry(node, "metadata")
		d.canary = scalar(meta, "name")
	}
	for _, found := range doubled {
		d.add(found.path, "is given twice", found.line)
	}
	if !decoded {
		return
	}
	canary, strict, mistyped := decode(text)
	for _, wrong := range mistyped {
		d.add(wrong.path, wrong.rule, 0)
	}
	for _, problem := range strict {
		d.strictError(problem)
	}
	if canary == nil {
		return
	}
	if canary.Kind != "Canary" {
		d.add("kind", fmt.Sprintf("is %q, it must be Canary", canary.Kind), 0)
	}
	if canary.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		d.add("apiVersion", fmt.Sprintf("is %q, it must be %s", canary.APIVersion, v1alpha1.SchemeGroupVersion), 0)
	}
	if len(mistyped) > 0 {
		// Without the values that could not be read, rules about them would mislead.
		return
	}
	for _, problem := range merge(d.rules(canary), shapeErrors(text)) {
		d.add(problem.Field, problem.ErrorBody(), 0)
	}
}

// rules applies what the API server and the controller hold a Canary to.
func (d *document) rules(c *v1alpha1.Canary) field.ErrorList {
	errs := metadata(c)
	if c.Namespace == "" {
		c.Namespace = d.namespace
	}
	if c.Namespace == "" {
		// Which one it will be created in is not in the file; what can be held is that it is
		// the one of its manifests.
		for _, text := range []string{c.Spec.Info.NewDeploymentYaml, c.Spec.Info.OldDeploymentYaml} {
			if manifest, err := v1alpha1.DecodeDeployment(text); err == nil && manifest.ObjectMeta().Namespace != "" {
				c.Namespace = manifest.ObjectMeta().Namespace
				break
			}
		}
	}
	v1alpha1.SetDefaults(c)
	_, more := v1alpha1.Validate(c)
	return append(errs, more...)
}

// metadata holds what the API server wants of names, labels and annotations, and the CRD's
// own rule for the length of the name.
func metadata(c *v1alpha1.Canary) field.ErrorList {
	path := field.NewPath("metadata")
	meta := c.ObjectMeta.DeepCopy()
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
	}
	errs := apivalidation.ValidateObjectMeta(meta, true, apivalidation.NameIsDNSSubdomain, path)
	if len(meta.Name) > validation.LabelValueMaxLength {
		errs = append(errs, field.TooLong(path.Child("name"), "", validation.LabelValueMaxLength))
	}
	return errs
}

var quoted = regexp.MustCompile(`^(unknown|duplicate) field "([^"]+)"$`)

func (d *document) strictError(err error) {
	match := quoted.FindStringSubmatch(err.Error())
	if match == nil {
		d.add("", err.Error(), 0)
		return
	}
	d.add(match[2], match[1]+" field", 0)
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// yamlError is the message of the YAML library with lines of the file, not the document.
func (d *document) yamlError(err error) string {
	message := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n  "} {
		message = strings.TrimPrefix(message, prefix)
	}
	return yamlLine.ReplaceAllStringFunc(strings.ReplaceAll(message, "\n", ";"), func(found string) string {
		var line int
		if _, err := fmt.Sscanf(found, "line %d", &line); err != nil {
			return found
		}
		return fmt.Sprintf("line %d", line+d.offset)
	})
}
