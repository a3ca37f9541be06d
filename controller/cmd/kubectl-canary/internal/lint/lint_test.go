package lint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata anew")

func TestFiles(t *testing.T) {
	for _, name := range []string{"valid", "invalid"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			report := File(name+".yaml", text, "")
			var got strings.Builder
			fmt.Fprintf(&got, "%d Canaries\n", report.Canaries)
			for _, finding := range report.Findings {
				fmt.Fprintln(&got, finding)
			}
			for _, note := range report.Notes {
				fmt.Fprintln(&got, "note:", note)
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got, go test -update writes it anew:\n%s", diff)
			}
		})
	}
}

// canary is one that is right but for what a test puts in place of a part of it.
func canary(old, with string) string {
	const text = `apiVersion: canarycontroller.tech.com/v1alpha1
kind: Canary
metadata: {name: web}
spec:
  info:
    type: NormalDeploy
    newDeploymentYaml: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web-v2, namespace: prod}
      spec:
        selector: {matchLabels: {app: web-v2}}
        template:
          metadata: {labels: {app: web-v2}}
          spec: {containers: [{name: web, image: web:v2}]}
`
	return strings.Replace(text, old, with, 1)
}

func TestOneFinding(t *testing.T) {
	for name, tc := range map[string]struct{ text, namespace, want string }{
		"nothing":              {canary("", ""), "", ""},
		"its namespace":        {canary("", ""), "prod", ""},
		"another namespace":    {canary("", ""), "test", `f:spec.info.newDeploymentYaml: Invalid value: metadata.namespace is "prod", it must be empty or the Canary's, "test" (line 7)`},
		"JSON":                 {`{"apiVersion":"canarycontroller.tech.com/v1alpha1","kind":"Canary","metadata":{"name":"x"},"spec":{"info":{"type":"ABTest","newDeploymentYaml":"x"}}}`, "", "f:spec.info.type: Forbidden"},
		"no metadata":          {canary("metadata: {name: web}\n", ""), "", "f:metadata.name: Required value: name or generateName is required"},
		"long name":            {canary("{name: web}", "{name: "+strings.Repeat("a", 64)+"}"), "", "f:metadata.name: Too long: may not be more than 63 bytes (line 3)"},
		"label":                {canary("{name: web}", "{name: web, labels: {a/b/c: d}}"), "", "f:metadata.labels: Invalid value"},
		"kind":                 {canary("kind: Canary", "kind: Canaries"), "", `f:kind: is "Canaries", it must be Canary (line 2)`},
		"no kind":              {canary("kind: Canary\n", ""), "", `f:kind: is "", it must be Canary`},
		"no version":           {canary("apiVersion: canarycontroller.tech.com/v1alpha1\n", ""), "", `f:apiVersion: is "", it must be canarycontroller.tech.com/v1alpha1`},
		"case":                 {canary("  info:", "  paused: true\n  Paused: true\n  info:"), "", "f:spec.Paused: unknown field (line 6)"},
		"twice":                {canary("metadata: {name: web}", "metadata: {name: web}\nmetadata: {name: web}"), "", "f:metadata: is given twice (line 4)"},
		"a list, not an item":  {"apiVersion: v1\nkind: List\nitems: [7]\n", "", "f:items[0].: must be an object"},
		"windows lines":        {strings.ReplaceAll(canary("type: NormalDeploy", "type: Blue"), "\n", "\r\n"), "", `f:spec.info.type: Unsupported value: "Blue"`},
		"a later document":     {"a: 1\n---\n# x\n" + canary("type: NormalDeploy", "type: Blue"), "", `f:spec.info.type: Unsupported value: "Blue": supported values: "NormalDeploy", "CanaryDeploy", "CanaryRollback" (line 9)`},
		"on the marker's line": {"--- {apiVersion: canarycontroller.tech.com/v1alpha1, kind: Canary, metadata: {name: x}, spec: {info: {type: ABTest, newDeploymentYaml: z}}}", "", "f:spec.info.type: Forbidden"},
		"leading zero":         {canary("  info:", "  batches: [1, \"02\"]\n  info:"), "", `f:spec.batches[1]: Invalid value: "02": must be a number of replicas or 1% to 100%, without leading zeros (line 5)`},
		"empty policy":         {canary("  info:", "  deletionPolicy: \"\"\n  info:"), "", `f:spec.deletionPolicy: Invalid value: "": must be Delete or Orphan (line 5)`},
		"once each":            {canary("  info:", "  batches: [\"half\"]\n  info:"), "", `f:spec.batches[0]: Invalid value: "half": must be a number of replicas or a percent such as 25% (line 5)`},
		"a tab":                {"a:\n\tb: c\n", "", "f: is not valid YAML: line 2: found character that cannot start any token"},
		"too long":             {strings.Repeat("#", MaxFileBytes+1), "", "f: is 33554433 bytes long, the limit is 33554432"},
	} {
		t.Run(name, func(t *testing.T) {
			report := File("f", []byte(tc.text), tc.namespace)
			if tc.want == "" {
				if len(report.Findings) > 0 {
					t.Errorf("found %v", report.Findings)
				}
				return
			}
			if len(report.Findings) == 0 || !strings.HasPrefix(report.Findings[0].String(), tc.want) {
				t.Errorf("got  %v\nwant %s", report.Findings, tc.want)
			}
			if name == "once each" && len(report.Findings) != 1 {
				t.Errorf("one field is told of twice: %v", report.Findings)
			}
		})
	}
}

// FuzzFile holds that any text gets an answer, and that what is found points into it.
func FuzzFile(f *testing.F) {
	f.Add(canary("", ""), "prod")
	f.Add("a: &a [*a]\n---\n? [a]\n: b\n", "")
	f.Add("apiVersion: v1\nkind: List\nitems: {}\n", "")
	f.Add("kind: Canary\nspec: {info: [], gate: {interval: x, checks: [1, {}]}}\n", "")
	f.Fuzz(func(t *testing.T, text, namespace string) {
		lines := strings.Count(text, "\n") + 1
		for _, finding := range File("f", []byte(text), namespace).Findings {
			if finding.Rule == "" || finding.Line < 0 || finding.Line > lines {
				t.Errorf("%+v in a text of %d lines", finding, lines)
			}
		}
	})
}
