//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// patience bounds failures only: tests go on as soon as what they wait for is there.
const patience = 2 * time.Minute

// eventually calls check until it returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %s: %v", what, patience, err)
		}
	}
}

// cluster is a lab with the Canary's CRD.
type cluster struct {
	kube     kubernetes.Interface
	canaries versioned.Interface
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	lab, err := servers.StartLab(ctx, servers.LabOptions{Options: servers.Options{Progress: os.Stderr}, Name: "exporter"})
	must(t, err)
	t.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", lab.Kubeconfig)
	must(t, err)
	config.QPS, config.Burst = 500, 1000
	if _, err := lab.Kubectl(ctx, "apply", "-f", "../../deploy/crd/canarycontroller.tech.com_canaries.yaml"); err != nil {
		t.Fatal(err)
	}
	c := &cluster{kube: client(t, config), canaries: canaryClient(t, config)}
	eventually(t, "the CRD is served", func() error {
		_, err := c.canaries.CanarycontrollerV1alpha1().Canaries("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	return c
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	return c
}

func canaryClient(t *testing.T, config *rest.Config) versioned.Interface {
	t.Helper()
	c, err := versioned.NewForConfig(config)
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// token makes a ServiceAccount and returns a token of it.
func (c *cluster) token(t *testing.T, account string) string {
	t.Helper()
	accounts := c.kube.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	must(t, err)
	r, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return r.Status.Token
}

// allow gives a ServiceAccount the right to scrape.
func (c *cluster) allow(t *testing.T, account string) {
	t.Helper()
	_, err := c.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}, metav1.CreateOptions{})
	must(t, err)
}

// files writes a certificate for 127.0.0.1 and the tokens, and returns the directory.
func files(t *testing.T, tokens map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("metrics", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certPEM, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tls.key"), keyPEM, 0o600))
	for name, token := range tokens {
		must(t, os.WriteFile(filepath.Join(dir, name+".token"), []byte(token), 0o600))
	}
	return dir
}

// scrapeConfig is one job of Prometheus.
func scrapeConfig(job, target, dir, token, protocol string) string {
	return fmt.Sprintf(`
- job_name: %s
  scheme: https
  scrape_protocols: [%s]
  scrape_native_histograms: %v
  always_scrape_classic_histograms: true
  authorization: {credentials_file: %s}
  tls_config: {ca_file: %s}
  static_configs: [{targets: ['%s']}]
`, job, protocol, protocol == "PrometheusProto", filepath.Join(dir, token+".token"), filepath.Join(dir, "tls.crt"), target)
}
