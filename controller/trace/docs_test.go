package trace

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

// TestDocumentation holds that docs/tracing.md names every span, event, attribute,
// variable and metric of the code, and no other.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	known := map[string]bool{}
	for _, file := range []string{"spans.go", "course.go", "endpoint.go", "metrics.go"} {
		for name, value := range constants(t, file) {
			switch {
			case strings.HasPrefix(name, "Span"), strings.HasPrefix(name, "Event"), strings.HasPrefix(name, "Attr"),
				strings.HasPrefix(name, "env"), strings.HasPrefix(name, "result"), strings.HasPrefix(name, "protocol"), name == "serviceName":
				known[value] = true
				if name == "SpanBatch" {
					value += " N"
				}
				if !strings.Contains(doc, "`"+value) {
					t.Errorf("%s (%s) is not documented", value, name)
				}
			}
		}
	}
	if len(known) < 45 {
		t.Errorf("only %d names were found in the code", len(known))
	}
	for _, kind := range ofProcess {
		written := "`" + kind + "`"
		if strings.HasSuffix(kind, ".") {
			written = "`" + kind + "*`"
		}
		if !strings.Contains(doc, written) {
			t.Errorf("that %s is dropped is not documented", kind)
		}
	}
	for _, name := range regexp.MustCompile("`((?:canary|gate)\\.[a-z_.]+)").FindAllStringSubmatch(doc, -1) {
		if !known[strings.TrimSuffix(name[1], "=")] {
			t.Errorf("%s is documented and not in the code", name[1])
		}
	}
	reg := prometheus.NewRegistry()
	if _, err := newMetrics(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.Contains(doc, "`"+family.GetName()+"`") {
			t.Errorf("metric %s is not documented", family.GetName())
		}
	}
	if !strings.Contains(doc, v1alpha1.AnnotationTraceparent+"=") {
		t.Error("the annotation is not documented")
	}
}

// constants returns the string constants of a file.
func constants(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, value := range spec.Values {
			if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[spec.Names[i].Name] = text
			}
		}
		return true
	})
	return found
}

// TestKeepsAsManyDecisionsAsTheGate holds that the gate keeps and numbers its decisions as
// this package relies on.
func TestKeepsAsManyDecisionsAsTheGate(t *testing.T) {
	situation := gate.Situation{Batch: 1, WindowStart: t0}
	status := &v1alpha1.GateStatus{Batch: 1, WindowStart: *at(0)}
	made := keptDecisions + 7
	for i := range made {
		status.EvaluatedAt = at(i)
		status.Verdict = []v1alpha1.Verdict{noData, v1alpha1.VerdictError}[i%2]
		_, status = gate.Decide(&v1alpha1.Gate{}, status, situation, false, t0.Add(time.Duration(i)*time.Second))
	}
	kept := status.Decisions
	if len(kept) != keptDecisions || int(kept[len(kept)-1].Number) != made || int(kept[0].Number) != made-keptDecisions+1 {
		t.Errorf("of %d decisions %d are kept, from number %d to %d", made, len(kept), kept[0].Number, kept[len(kept)-1].Number)
	}
}
