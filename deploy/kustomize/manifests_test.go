package kustomize

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// decode reads every object of a file into its Go type; a field the type does
// not have is an error.
func decode(t *testing.T, s *runtime.Scheme, file string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		object, err := s.New(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
}

func one[T runtime.Object](t *testing.T, file string) T {
	t.Helper()
	var found []T
	for _, o := range decode(t, newScheme(t), file) {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s: %d objects of type %T, want 1", file, len(found), *new(T))
	}
	return found[0]
}

func TestManifestsHaveNoUnknownField(t *testing.T) {
	s := newScheme(t)
	n := 0
	for _, root := range []string{"base", "overlays", "components", "../examples/go-hello"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
				return err
			}
			n += len(decode(t, s, path))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 20 {
		t.Errorf("only %d objects found", n)
	}
}

// Every right of the operator stands here once more, so that a new one is a
// decision.
var rights = map[string][]string{
	"canarycontroller.tech.com/canaries":            {"get", "list", "watch", "update", "patch"},
	"canarycontroller.tech.com/canaries/status":     {"update", "patch"},
	"canarycontroller.tech.com/canaries/finalizers": {"update"},
	"apps/deployments":                              {"get", "list", "watch", "create", "patch", "delete"},
	"autoscaling/horizontalpodautoscalers":          {"get", "list", "watch"},
	"/events":                                       {"create", "patch"},
}

func table(rules []rbacv1.PolicyRule) map[string][]string {
	m := map[string][]string{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				m[group+"/"+resource] = append(m[group+"/"+resource], rule.Verbs...)
			}
		}
	}
	return m
}

func TestOperatorHasTheLeastRights(t *testing.T) {
	cluster := one[*rbacv1.ClusterRole](t, "base/cluster-role.yaml")
	if got := table(cluster.Rules); !reflect.DeepEqual(got, rights) {
		t.Errorf("ClusterRole: %v, want %v", got, rights)
	}
	role := one[*rbacv1.Role](t, "overlays/single-namespace/role.yaml")
	if !reflect.DeepEqual(role.Rules, cluster.Rules) {
		t.Errorf("Role of the single-namespace overlay: %v, want the ClusterRole's %v", role.Rules, cluster.Rules)
	}
	lease := one[*rbacv1.Role](t, "base/leader-election-role.yaml")
	for _, rule := range lease.Rules {
		if slices.Contains(rule.Resources, "leases") && !slices.Equal(rule.Verbs, []string{"create"}) &&
			!slices.Equal(rule.ResourceNames, []string{"canary-controller"}) {
			t.Errorf("leases other than the operator's own: %v", rule)
		}
	}
}

// The fields that Pod Security's restricted profile asks for, and what goes
// beyond it.
func TestOperatorRunsRestricted(t *testing.T) {
	d := one[*appsv1.Deployment](t, "base/deployment.yaml")
	assertRestricted(t, d)
	c := d.Spec.Template.Spec.Containers[0]
	if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("probes: %v %v, want /healthz and /readyz", c.LivenessProbe, c.ReadinessProbe)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("resources: %v, want requests for both and a limit on memory", c.Resources)
	}
}

func assertRestricted(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Errorf("%s shares a namespace of its host", d.Name)
	}
	if sc := pod.SecurityContext; sc == nil || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot || sc.RunAsUser == nil || *sc.RunAsUser == 0 ||
		sc.SeccompProfile == nil || sc.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: pod security context %v is not restricted", d.Name, pod.SecurityContext)
	}
	for _, c := range pod.Containers {
		sc := c.SecurityContext
		if sc == nil || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation ||
			sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem ||
			sc.Capabilities == nil || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(sc.Capabilities.Add) > 0 {
			t.Errorf("%s/%s: security context %v is not restricted", d.Name, c.Name, sc)
		}
	}
}

func TestExamples(t *testing.T) {
	s := newScheme(t)
	files, err := filepath.Glob("../examples/go-hello/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	texts := map[string]string{}
	for _, file := range files {
		for _, object := range decode(t, s, file) {
			canary, ok := object.(*v1alpha1.Canary)
			if !ok {
				continue
			}
			info := canary.Spec.Info
			seen[string(info.Type)] = true
			seen["pauseType "+string(info.PauseType)] = true
			seen["batches"] = seen["batches"] || len(canary.Spec.Batches) > 0
			for _, text := range []string{info.NewDeploymentYaml, info.OldDeploymentYaml} {
				if text == "" {
					continue
				}
				d := &appsv1.Deployment{}
				if err := yaml.UnmarshalStrict([]byte(text), d); err != nil {
					t.Errorf("%s: %v", file, err)
					continue
				}
				assertRestricted(t, d)
				if before, ok := texts[d.Name]; ok && before != text {
					t.Errorf("%s: %s differs from the same Deployment in another example", file, d.Name)
				}
				texts[d.Name] = text
			}
		}
	}
	for _, want := range []string{"NormalDeploy", "CanaryDeploy", "CanaryRollback", "pauseType First", "pauseType None", "pauseType Each", "batches"} {
		if !seen[want] {
			t.Errorf("no example of %s", want)
		}
	}
	next := strings.NewReplacer("apps/v1", "apps/v1", "v1", "v2").Replace(texts["go-hello-v1"])
	if next != texts["go-hello-v2"] {
		t.Error("go-hello-v1 and go-hello-v2 differ in more than the version")
	}
}
