package prometheus

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
)

// Keys of a Secret with credentials.
const (
	keyToken    = "token"
	keyUsername = "username"
	keyPassword = "password"
	keyCA       = "ca.crt"
)

// credentials are sent with requests to the addresses that they belong to, and nowhere else.
type credentials struct {
	token, username, password string
	// tokenFile is read for each request.
	tokenFile string
	// roots verify the server's certificate; the system's if nil.
	roots *x509.CertPool
}

// secretCredentials reads the data of a Secret.
func secretCredentials(data map[string][]byte) (credentials, error) {
	c := credentials{
		token:    strings.TrimSpace(string(data[keyToken])),
		username: string(data[keyUsername]),
		password: string(data[keyPassword]),
	}
	switch {
	case c.token == "" && c.username == "" && len(data[keyCA]) == 0:
		return credentials{}, errors.New("it has none of the keys token, username and ca.crt")
	case c.token != "" && c.username != "":
		return credentials{}, errors.New("it has both token and username; use one of them")
	case c.username == "" && c.password != "":
		return credentials{}, errors.New("it has password without username")
	case !printable(c.token):
		return credentials{}, errors.New("token must be one line of text")
	}
	if pem := data[keyCA]; len(pem) > 0 {
		roots, err := parseCA(pem)
		if err != nil {
			return credentials{}, fmt.Errorf("ca.crt: %w", err)
		}
		c.roots = roots
	}
	return c, nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func parseCA(pem []byte) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("has no certificate in PEM form")
	}
	return roots, nil
}

func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the bearer token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || !printable(token) {
		return "", fmt.Errorf("reading the bearer token: %s is not one line of text", file)
	}
	return token, nil
}

// authorization is the value of the header, or empty.
func (c credentials) authorization() (string, error) {
	switch {
	case c.tokenFile != "":
		token, err := readToken(c.tokenFile)
		return "Bearer " + token, err
	case c.token != "":
		return "Bearer " + c.token, nil
	case c.username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.username+":"+c.password)), nil
	}
	return "", nil
}

// redact takes credentials out of a server's words, should it repeat what it was sent.
func (c credentials) redact(text string) string {
	secrets := []string{c.token, c.password}
	if header, err := c.authorization(); err == nil {
		_, value, _ := strings.Cut(header, " ")
		secrets = append(secrets, value)
	}
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[redacted]")
			text = redactCut(text, secret)
		}
	}
	return text
}

// redactCut takes out what clip has left of a secret at the end of a server's words. Most
// tokens are longer than what it leaves at all.
func redactCut(text, secret string) string {
	parts := strings.Split(text, "…")
	for i := range parts[:len(parts)-1] {
		// Fewer bytes tell nothing and may be anything.
		for n := min(len(secret)-1, len(parts[i])); n >= 4; n-- {
			if left, ok := strings.CutSuffix(parts[i], secret[:n]); ok {
				parts[i] = left + "[redacted]"
				break
			}
		}
	}
	return strings.Join(parts, "…")
}

// authTransport adds the credentials.
type authTransport struct {
	next        http.RoundTripper
	credentials credentials
}

func (t authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	header, err := t.credentials.authorization()
	if err != nil {
		return nil, err
	}
	if header != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", header)
	}
	return t.next.RoundTrip(r)
}

func (t authTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// caFile is a file of certificates that is read again when it changes.
type caFile struct {
	path string

	mu    sync.Mutex
	pem   []byte
	roots *x509.CertPool
}

// newCAFile reads the file. Without a path the system's certificates are meant.
func newCAFile(path string) (*caFile, error) {
	f := &caFile{path: path}
	_, err := f.read()
	return f, err
}

// read returns the certificates, another pool only when the file has others than before. On
// an error it returns those from before as well.
func (f *caFile) read() (*x509.CertPool, error) {
	if f.path == "" {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pem, err := os.ReadFile(f.path)
	if err != nil {
		return f.roots, fmt.Errorf("reading the CA file: %w", err)
	}
	if bytes.Equal(pem, f.pem) {
		return f.roots, nil
	}
	roots, err := parseCA(pem)
	if err != nil {
		return f.roots, fmt.Errorf("reading the CA file: %s %w", f.path, err)
	}
	f.pem, f.roots = pem, roots
	return roots, nil
}
