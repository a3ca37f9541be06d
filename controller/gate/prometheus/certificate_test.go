package prometheus

import (
	"crypto/tls"
	"net"
	"testing"

	"k8s.io/client-go/util/cert"
)

// otherCertificate is self-signed, for 127.0.0.1.
func otherCertificate(t testing.TB) tls.Certificate {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("prometheus.example", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
