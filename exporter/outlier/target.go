package outlier

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Role says which of the two versions of a Canary a target is.
type Role string

// The two roles, as they appear in the label "role".
const (
	RoleStable Role = "stable"
	RoleCanary Role = "canary"
)

// Target is one version of one Canary and how proxies' clusters are
// recognised as leading to it. Several targets may share namespace, canary and
// role (a version behind two Services); they are reported as one.
type Target struct {
	// Namespace and Canary name the object the series are about.
	Namespace, Canary string
	// UID tells a Canary from an earlier one of the same name: when it
	// changes, the ejection counters start anew. May be empty.
	UID string
	// Role is stable or canary.
	Role Role

	// Service is the Kubernetes Service, in ServiceNamespace (Namespace when
	// empty), that callers address. Matched against Istio's cluster names.
	Service          string
	ServiceNamespace string
	// Subset is the DestinationRule subset of this version. Empty means that
	// the Service is this version's own, unless another role names the same
	// Service, in which case Endpoints tell them apart.
	Subset string
	// Clusters are further Envoy cluster names that lead to this version only,
	// for meshes whose names this package does not parse.
	Clusters []string
	// Endpoints are the pods of this version, used where a cluster holds both
	// versions. Only the envoy-admin source can use them.
	Endpoints []Endpoint
}

// Endpoint is the address of one pod.
type Endpoint struct {
	// Address is the pod's IP, without port.
	Address string
	// Since is when the pod came to be. Addresses are reused: an observation
	// older than Since is about another pod.
	Since time.Time
}

// Validate reports the first field that breaks a rule.
func (t Target) Validate() error {
	switch {
	case t.Namespace == "":
		return errors.New("outlier target: namespace is empty")
	case t.Canary == "":
		return fmt.Errorf("outlier target in namespace %q: canary is empty", t.Namespace)
	case t.Role != RoleStable && t.Role != RoleCanary:
		return fmt.Errorf("outlier target %s/%s: role is %q, want %q or %q", t.Namespace, t.Canary, t.Role, RoleStable, RoleCanary)
	case t.Service == "" && len(t.Clusters) == 0:
		return fmt.Errorf("outlier target %s/%s (%s): neither service nor clusters is set", t.Namespace, t.Canary, t.Role)
	case t.Service == "" && t.Subset != "":
		return fmt.Errorf("outlier target %s/%s (%s): subset %q without service", t.Namespace, t.Canary, t.Role, t.Subset)
	}
	return nil
}

// serviceNamespace is the namespace of the Service callers address.
func (t Target) serviceNamespace() string {
	if t.ServiceNamespace != "" {
		return t.ServiceNamespace
	}
	return t.Namespace
}

// selector identifies which clusters the target matches. Two targets with the
// same series and selector have been watched as one.
func (t Target) selector() string {
	return strings.Join(append([]string{t.serviceNamespace(), t.Service, t.Subset}, t.Clusters...), "\x00")
}

// Series is the identity of the series of one version of one Canary.
type Series struct {
	Namespace, Canary, UID string
	Role                   Role
}

func (t Target) series() Series {
	return Series{Namespace: t.Namespace, Canary: t.Canary, UID: t.UID, Role: t.Role}
}

// clusterName is an Istio cluster name taken apart:
// outbound|80|v2|web.shop.svc.cluster.local, or in the form that east-west
// gateways use outbound_.80_.v2_.web.shop.svc.cluster.local.
type clusterName struct {
	subset, service, namespace string
}

// parseClusterName takes an Istio outbound cluster name apart. It reports
// false for every other name, inbound clusters among them: those are the
// server's view of itself.
func parseClusterName(name string) (clusterName, bool) {
	rest, sep := "", "|"
	switch {
	case strings.HasPrefix(name, "outbound|"):
		rest = name[len("outbound|"):]
	case strings.HasPrefix(name, "outbound_."):
		rest, sep = name[len("outbound_."):], "_."
	default:
		return clusterName{}, false
	}
	port, rest, ok := strings.Cut(rest, sep)
	if !ok || port == "" || strings.Trim(port, "0123456789") != "" {
		return clusterName{}, false
	}
	subset, host, ok := strings.Cut(rest, sep)
	if !ok {
		return clusterName{}, false
	}
	service, rest, ok := strings.Cut(host, ".")
	if !ok || service == "" {
		return clusterName{}, false
	}
	namespace, rest, ok := strings.Cut(rest, ".")
	if !ok || namespace == "" || (rest != "svc" && !strings.HasPrefix(rest, "svc.")) {
		return clusterName{}, false
	}
	return clusterName{subset: subset, service: service, namespace: namespace}, true
}

// canonicalAddress brings the spellings of one IP address together
// (IPv6 zero compression, IPv4 mapped into IPv6). What is no IP stays as it is.
func canonicalAddress(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return address
}
