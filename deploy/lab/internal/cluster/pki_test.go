package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestPKI(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := writePKI(dir, "127.10.16.1"); err != nil {
		t.Fatal(err)
	}
	pool := func(file string) *x509.CertPool {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		p := x509.NewCertPool()
		if !p.AppendCertsFromPEM(text) {
			t.Fatalf("%s is no certificate", file)
		}
		return p
	}
	ca, etcd := pool("ca.crt"), pool("etcd-ca.crt")
	for _, tc := range []struct {
		file, user, group, host string
		by, other               *x509.CertPool
	}{
		{"admin", "lab-admin", "system:masters", "", ca, etcd},
		{"scheduler", "system:kube-scheduler", "", "", ca, etcd},
		{"controller-manager", "system:kube-controller-manager", "", "", ca, etcd},
		{"apiserver", "kube-apiserver", "", "127.10.16.1", ca, etcd},
		{"apiserver", "kube-apiserver", "", "kubernetes.default.svc", ca, etcd},
		{"etcd", "etcd", "", "127.10.16.1", etcd, ca},
		// A client of the API server must not be one of etcd as well.
		{"etcd-client", "kube-apiserver-etcd-client", "", "", etcd, ca},
	} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, tc.file+".crt"), filepath.Join(dir, tc.file+".key"))
		if err != nil {
			t.Fatal(err)
		}
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if tc.host != "" {
			usage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: tc.by, DNSName: tc.host, KeyUsages: usage}); err != nil {
			t.Errorf("%s: %v", tc.file, err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: tc.other, KeyUsages: usage}); err == nil {
			t.Errorf("%s is valid under the other authority too", tc.file)
		}
		if pair.Leaf.Subject.CommonName != tc.user || tc.group != "" && pair.Leaf.Subject.Organization[0] != tc.group {
			t.Errorf("%s names %s", tc.file, pair.Leaf.Subject)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", f.Name(), info.Mode(), err)
		}
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(file, dir, "admin", "lab", "https://127.10.16.1:6443"); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil || config.Host != "https://127.10.16.1:6443" || len(config.CertData) == 0 || len(config.CAData) == 0 {
		t.Errorf("kubeconfig: %+v, %v", config, err)
	}
}
