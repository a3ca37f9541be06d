package exporter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/cert"
)

// run runs a server for the time of the test.
func run(t *testing.T, c ServerConfig) *Server {
	t.Helper()
	c.Address = "127.0.0.1:0"
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// fetch makes one request over a connection of its own.
func fetch(t *testing.T, url string, tlsConfig *tls.Config, token string) (int, string, error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

func TestServerPlain(t *testing.T) {
	s := run(t, ServerConfig{Handler: scraped(t)})
	url := "http://" + s.Addr().String()
	code, body, err := fetch(t, url+"/metrics", nil, "")
	if err != nil || code != http.StatusOK || !strings.Contains(body, "test_pod_info{") {
		t.Error(code, err, body)
	}
	if code, _, err := fetch(t, url+"/", nil, ""); err != nil || code != http.StatusNotFound {
		t.Error(code, err)
	}
}

func TestServerEnds(t *testing.T) {
	s, err := NewServer(ServerConfig{Address: "127.0.0.1:0", Handler: scraped(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewServer(ServerConfig{Address: s.Addr().String(), Handler: scraped(t)}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serving metrics on 127.0.0.1:") {
		t.Errorf("a closed listener: %v", err)
	}
}

func TestServerConfig(t *testing.T) {
	auth, err := NewAuth(AuthConfig{TokenReviews: tokenReviews{}, SubjectAccessReviews: accessReviews{}})
	if err != nil {
		t.Fatal(err)
	}
	h := http.NotFoundHandler()
	for want, c := range map[string]ServerConfig{
		"metrics server: no handler":                       {},
		`metrics server: path "metrics" must begin with /`: {Handler: h, Path: "metrics"},
		"metrics server: authorisation on :0 needs TLS, or bearer tokens would cross the network unencrypted": {Handler: h, Auth: auth, Address: ":0"},
		"metrics server: TLS: a certificate file needs a key file and the other way round":                    {Handler: h, TLS: &TLSConfig{CertFile: "x"}},
		"metrics server: reading the server's certificate: open /nowhere/x: no such file or directory":        {Handler: h, TLS: &TLSConfig{CertFile: "/nowhere/x", KeyFile: "/nowhere/y"}},
	} {
		if _, err := NewServer(c); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := NewAuth(AuthConfig{}); err == nil {
		t.Error("authorisation without clients")
	}
	for address, want := range map[string]bool{"127.0.0.1:1": true, "127.8.8.8:1": true, "[::1]:1": true, "localhost:1": true, ":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false, "x": false} {
		if loopback(address) != want {
			t.Errorf("loopback(%q) = %v", address, !want)
		}
	}
}

// writeCertificate makes a certificate for 127.0.0.1 and that name.
func writeCertificate(t *testing.T, dir, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(name, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(dir, "tls.crt"), certPEM)
	replace(t, filepath.Join(dir, "tls.key"), keyPEM)
	return certPEM, keyPEM
}

func replace(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func trust(pem []byte) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: pool}
}

func TestServerReloadsItsCertificate(t *testing.T) {
	dir := t.TempDir()
	first, _ := writeCertificate(t, dir, "first")
	reg := prometheus.NewRegistry()
	s := run(t, ServerConfig{Handler: scraped(t), Registerer: reg, TLS: &TLSConfig{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), ReloadInterval: 5 * time.Millisecond,
	}})
	url := fmt.Sprintf("https://%s/metrics", s.Addr())
	works := func(pem []byte) bool {
		code, _, err := fetch(t, url, trust(pem), "")
		return err == nil && code == http.StatusOK
	}
	if !works(first) {
		t.Fatal("the first certificate is not served")
	}
	// Half of a rotation: the old certificate stays.
	replace(t, filepath.Join(dir, "tls.crt"), []byte("garbage"))
	eventually(t, "the failure is counted", func() bool { return testutil.ToFloat64(s.certificate.errs) > 0 })
	if !works(first) {
		t.Error("a broken file took the certificate away")
	}
	second, _ := writeCertificate(t, dir, "second")
	eventually(t, "the second certificate is served", func() bool { return works(second) })
	if works(first) {
		t.Error("the first certificate is still served")
	}
	if got := testutil.ToFloat64(s.certificate.reads); got != 2 {
		t.Errorf("%v certificates read, want 2", got)
	}
}

func TestServerSelfSigned(t *testing.T) {
	s := run(t, ServerConfig{Handler: scraped(t), TLS: &TLSConfig{}})
	url := fmt.Sprintf("https://%s/metrics", s.Addr())
	if code, _, err := fetch(t, url, &tls.Config{InsecureSkipVerify: true}, ""); err != nil || code != http.StatusOK {
		t.Error(code, err)
	}
	if _, _, err := fetch(t, url, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}, ""); err == nil {
		t.Error("TLS 1.1 accepted")
	}
}

// reviewer is an API server that knows three tokens.
type reviewer struct {
	tokens, access  int
	failing         bool
	askedUser       string
	askedAttributes authorizationv1.NonResourceAttributes
}

// tokenReviews and accessReviews are the parts of its client that are used.
type tokenReviews struct {
	authenticationclient.TokenReviewInterface
	v *reviewer
}

func (t tokenReviews) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	t.v.tokens++
	if t.v.failing {
		return nil, fmt.Errorf("connection refused")
	}
	r = r.DeepCopy()
	switch r.Spec.Token {
	case "scraper", "nobody":
		r.Status.Authenticated = true
		r.Status.User = authenticationv1.UserInfo{Username: r.Spec.Token, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		r.Status.Audiences = r.Spec.Audiences
	case "elsewhere":
		r.Status.Authenticated = true
	}
	return r, nil
}

type accessReviews struct {
	authorizationclient.SubjectAccessReviewInterface
	v *reviewer
}

func (a accessReviews) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.v.access++
	r = r.DeepCopy()
	a.v.askedUser, a.v.askedAttributes = r.Spec.User+"/"+r.Spec.Groups[0]+"/"+r.Spec.Extra["k"][0], *r.Spec.NonResourceAttributes
	r.Status.Allowed = r.Spec.User == "scraper"
	return r, nil
}

func TestAuth(t *testing.T) {
	v := &reviewer{}
	auth, err := NewAuth(AuthConfig{
		TokenReviews: tokenReviews{v: v}, SubjectAccessReviews: accessReviews{v: v},
		Audiences: []string{"metrics"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := auth.Wrap(scraped(t))
	for _, tc := range []struct {
		authorization string
		code          int
		tokens        int // TokenReviews so far
		access        int
	}{
		{"", 401, 0, 0},
		{"Basic abc", 401, 0, 0},
		{"Bearer ", 401, 0, 0},
		{"Bearer unknown", 401, 1, 0},
		{"Bearer unknown", 401, 1, 0},
		{"Bearer elsewhere", 401, 2, 0},
		{"Bearer nobody", 403, 3, 1},
		{"Bearer nobody", 403, 3, 1},
		{"Bearer scraper", 200, 4, 2},
		{"bearer scraper", 200, 4, 2},
	} {
		w := get(h, "/metrics", "Authorization", tc.authorization)
		if w.Code != tc.code || v.tokens != tc.tokens || v.access != tc.access {
			t.Errorf("%q: status %d after %d and %d reviews, want %+v", tc.authorization, w.Code, v.tokens, v.access, tc)
		}
		if (w.Code == http.StatusUnauthorized) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%q: %v", tc.authorization, w.Header())
		}
		if w.Code != http.StatusOK && strings.Contains(w.Body.String(), "test_pod_info") {
			t.Errorf("%q got metrics", tc.authorization)
		}
	}
	if v.askedUser != "scraper/g/v" || v.askedAttributes != (authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}) {
		t.Errorf("asked for %s %v", v.askedUser, v.askedAttributes)
	}
	// An API server that does not answer is not remembered.
	v.failing = true
	if w := get(h, "/metrics", "Authorization", "Bearer other"); w.Code != http.StatusInternalServerError {
		t.Errorf("status %d", w.Code)
	}
	v.failing = false
	if w := get(h, "/metrics", "Authorization", "Bearer other"); w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
}

func TestAuthForgets(t *testing.T) {
	v := &reviewer{}
	auth, err := NewAuth(AuthConfig{
		TokenReviews: tokenReviews{v: v}, SubjectAccessReviews: accessReviews{v: v},
		AllowedFor: time.Nanosecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := auth.Wrap(scraped(t))
	get(h, "/metrics", "Authorization", "Bearer scraper")
	get(h, "/metrics", "Authorization", "Bearer scraper")
	if v.tokens != 2 || v.access != 2 {
		t.Errorf("%d and %d reviews, want 2 and 2", v.tokens, v.access)
	}
}
