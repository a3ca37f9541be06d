package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime is short of any date where a 32-bit clock would matter and long
// enough for a lab that is left running.
const certLifetime = 365 * 24 * time.Hour

type authority struct {
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certificate says what a certificate is for. Without hosts it is a client
// certificate, with hosts one for both ends.
type certificate struct {
	file          string
	commonName    string
	organizations []string
	hosts         []string
}

func newAuthority(dir, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of authority %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(certLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing authority %s: %w", name, err)
	}
	a := &authority{dir: dir, name: name, cert: cert, key: key}
	if err := writePEM(a.certFile(), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return a, writeKey(filepath.Join(dir, name+".key"), key)
}

func (a *authority) certFile() string { return filepath.Join(a.dir, a.name+".crt") }

// issue writes file.crt and file.key.
func (a *authority) issue(c certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the key of %s: %w", c.file, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: c.commonName, Organization: c.organizations},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, h := range c.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if len(c.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("signing %s: %w", c.file, err)
	}
	if err := writePEM(filepath.Join(a.dir, c.file+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(filepath.Join(a.dir, c.file+".key"), key)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		// crypto/rand.Reader does not fail since Go 1.24.
		panic(err)
	}
	return n
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding key %s: %w", path, err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writePKI writes every certificate and key of the lab into dir.
func writePKI(dir, address string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := newAuthority(dir, "ca")
	if err != nil {
		return err
	}
	etcdCA, err := newAuthority(dir, "etcd-ca")
	if err != nil {
		return err
	}
	for _, c := range []certificate{
		{file: "apiserver", commonName: "kube-apiserver", hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost", "127.0.0.1", address, firstServiceIP,
		}},
		{file: "components", commonName: "lab-components", hosts: []string{"localhost", "127.0.0.1", address}},
		{file: "apiserver-kubelet-client", commonName: "kube-apiserver-kubelet-client", organizations: []string{"system:masters"}},
		{file: "admin", commonName: "lab-admin", organizations: []string{"system:masters"}},
		{file: "controller-manager", commonName: "system:kube-controller-manager"},
		{file: "scheduler", commonName: "system:kube-scheduler"},
		{file: "kubelet", commonName: "lab-kubelet", organizations: []string{"system:masters"}},
	} {
		if err := ca.issue(c); err != nil {
			return err
		}
	}
	for _, c := range []certificate{
		{file: "etcd", commonName: "etcd", hosts: []string{"localhost", "127.0.0.1", address}},
		{file: "etcd-client", commonName: "kube-apiserver-etcd-client"},
	} {
		if err := etcdCA.issue(c); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the service account key: %w", err)
	}
	return writeKey(filepath.Join(dir, "service-account.key"), key)
}
