package servers

import (
	"fmt"
	"slices"
	"strings"
)

// Server is a program that [Ensure] can build.
type Server struct {
	// Name is the program's name, in the cache, on PATH and in messages.
	Name string
	// Module is the directory of its module, relative to the repository.
	Module string
	// Package is the main package to build.
	Package string
	// Tags are build tags.
	Tags []string
	// LDFlags are flags of the linker besides those that drop the symbols.
	LDFlags []string
	// Sources says that the program is made of the module's own files, not of
	// a dependency's alone, so that they belong to what it is built from.
	Sources bool
}

// Prometheus with static and file service discovery alone: the others are more
// than half of its build.
var prometheusTags = []string{"remove_all_sd"}

// kubernetesVersion is what the lab's servers and its kubectl say they are. A
// program that is not linked with it says v0.0.0, which Helm charts and clients
// that look at the version refuse.
const kubernetesVersion = "v1.37.2"

func stampKubernetes() []string {
	const pkg = "k8s.io/component-base/version."
	part := strings.Split(strings.TrimPrefix(kubernetesVersion, "v"), ".")
	return []string{
		"-X=" + pkg + "gitVersion=" + kubernetesVersion, "-X=" + pkg + "gitMajor=" + part[0],
		"-X=" + pkg + "gitMinor=" + part[1], "-X=" + pkg + "gitTreeState=clean",
	}
}

// The servers.
var (
	LabServer  = Server{Name: "lab", Module: "deploy/lab", Package: ".", Sources: true, LDFlags: stampKubernetes()}
	Prometheus = Server{
		Name: "prometheus", Module: "deploy/servers/prometheus",
		Package: "github.com/prometheus/prometheus/cmd/prometheus", Tags: prometheusTags,
	}
	Promtool = Server{
		Name: "promtool", Module: "deploy/servers/prometheus",
		Package: "github.com/prometheus/prometheus/cmd/promtool", Tags: prometheusTags,
	}
	Jaeger = Server{Name: "jaeger", Module: "deploy/servers/jaeger", Package: ".", Sources: true}
	Helm   = Server{Name: "helm", Module: "deploy/servers/helm", Package: "helm.sh/helm/v4/cmd/helm"}
)

// All are all servers.
func All() []Server { return []Server{LabServer, Prometheus, Promtool, Jaeger, Helm} }

// ByName finds a server.
func ByName(name string) (Server, error) {
	all := All()
	if i := slices.IndexFunc(all, func(s Server) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return Server{}, fmt.Errorf("there is no server %q; there are %s", name, strings.Join(names, ", "))
}

// Env is the environment variable that names a program to use instead of
// building the server, such as CANARY_PROMETHEUS.
func (s Server) Env() string { return "CANARY_" + strings.ToUpper(s.Name) }
