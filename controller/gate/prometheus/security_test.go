package prometheus

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

func headers(f *fake) []string {
	var out []string
	for _, r := range f.seen() {
		out = append(out, r.Header.Get("Authorization"))
	}
	return out
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func secretOf(data map[string][]byte) func(context.Context, string, string) (map[string][]byte, error) {
	return func(context.Context, string, string) (map[string][]byte, error) { return data, nil }
}

func TestCredentialsGoToTheirAddressesAlone(t *testing.T) {
	own, theirs := startFake(t, values(1)), startFake(t, values(1))
	token := write(t, filepath.Join(t.TempDir(), "token"), "operators\n")
	var read []string
	g := gatherer(t, Config{
		Addresses: []string{own.URL}, BearerTokenFile: token, Allow: []string{"127.0.0.1"},
		Secret: func(_ context.Context, namespace, name string) (map[string][]byte, error) {
			read = append(read, namespace+"/"+name)
			return map[string][]byte{"token": []byte("canarys\n")}, nil
		},
	})
	ok := func(spec gate.Gathered) {
		t.Helper()
		if got := spec["check"]; got[0].Value != (gate.Sample{Value: 1}) {
			t.Errorf("evidence %+v", got)
		}
	}
	ok(g.gather(t.Context(), threshold("up")))
	if got := headers(own); len(got) != 1 || got[0] != "Bearer operators" {
		t.Errorf("the controller's Prometheus got %q", got)
	}
	spec := at(threshold("up"), theirs.URL)
	ok(g.gather(t.Context(), spec))
	spec.Prometheus.Secret = "prom"
	ok(g.gather(t.Context(), spec))
	// Naming the controller's Prometheus does not give the controller's token.
	spec = at(threshold("up"), own.URL)
	ok(g.gather(t.Context(), spec))
	if got := headers(theirs); len(got) != 2 || got[0] != "" || got[1] != "Bearer canarys" {
		t.Errorf("the Canary's Prometheus got %q", got)
	}
	if got := headers(own); len(got) != 2 || got[1] != "" {
		t.Errorf("the controller's Prometheus, named by a Canary, got %q", got)
	}
	if len(read) != 1 || read[0] != "shop/prom" {
		t.Errorf("Secrets read: %v, want shop/prom", read)
	}
	// The token is read again when it changes.
	write(t, token, "rotated")
	ok(g.gather(t.Context(), threshold("up")))
	if got := headers(own); got[len(got)-1] != "Bearer rotated" {
		t.Errorf("after the rotation %q", got)
	}
}

func TestBasicAuth(t *testing.T) {
	f := startFake(t, values(1))
	u, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := gatherer(t, Config{
		Addresses: []string{"http://op:s3cret@" + u.Host}, Allow: []string{"127.0.0.1"},
		Secret: secretOf(map[string][]byte{"username": []byte("me"), "password": []byte("pa:ss")}),
	})
	g.gather(t.Context(), threshold("up"))
	spec := at(threshold("up"), f.URL)
	spec.Prometheus.Secret = "prom"
	g.gather(t.Context(), spec)
	var got []string
	for _, r := range f.seen() {
		user, password, _ := r.BasicAuth()
		got = append(got, user+" "+password)
	}
	if fmt.Sprint(got) != "[op s3cret me pa:ss]" {
		t.Errorf("got %q", got)
	}
}

// Neither a server that repeats what it was sent nor one that is gone makes credentials show.
func TestCredentialsDoNotShow(t *testing.T) {
	echo := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":"you sent %s"}`, r.Header.Get("Authorization"))
	})
	gone := httptest.NewServer(nil)
	gone.Close()
	host := strings.TrimPrefix(gone.URL, "http://")
	echoHost := strings.TrimPrefix(echo.URL, "http://")
	var logged bytes.Buffer
	config := Config{
		Addresses: []string{"http://operator:hunter2@" + host, "http://operator:hunter2@" + echoHost}, Allow: []string{"127.0.0.1"},
		Secret: secretOf(map[string][]byte{"token": []byte("hunter3")}),
		Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	g := gatherer(t, config)
	own := g.gather(t.Context(), threshold("up"))
	spec := at(threshold("up"), gone.URL, echo.URL)
	spec.Prometheus.Secret = "prom"
	theirs := g.gather(t.Context(), spec)
	text := fmt.Sprintf("%+v %+v %s", own, theirs, &logged)
	for _, secret := range []string{"hunter2", "hunter3", "operator", "b3BlcmF0b3I6aHVudGVyMg"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q shows in %s", secret, text)
		}
	}
	contains(t, text, "connection refused", "you sent Bearer [redacted]", "you sent Basic [redacted]", host)
	if _, err := New(Config{Addresses: []string{"http://user:hunter4@host\x7f"}}); err == nil || strings.Contains(err.Error(), "hunter4") {
		t.Errorf("error %v", err)
	}
}

// A token of a ServiceAccount is longer than what is kept of a server's words.
func TestLongCredentialsDoNotShow(t *testing.T) {
	token := strings.Repeat("eyJhbGciOi", 100)
	c := credentials{token: token}
	for name, tc := range map[string]struct{ text, want string }{
		"cut":       {clip("you sent Bearer " + token), "you sent Bearer [redacted]…"},
		"cut twice": {clip(token) + ", " + clip("and "+token), "[redacted]…, and [redacted]…"},
		"whole":     {"you sent " + token, "you sent [redacted]"},
		"none":      {clip(strings.Repeat("x", 300)), strings.Repeat("x", 256) + "…"},
	} {
		if got := c.redact(tc.text); got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A rule's own words are a server's as well, and no longer than others.
func TestRulesDoNotShowCredentials(t *testing.T) {
	echo := startFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/rules" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answer(w, map[string]any{"groups": []any{map[string]any{"name": r.Header.Get("Authorization"), "interval": 15, "rules": []any{map[string]any{
			"type": "alerting", "name": r.Header.Get("Authorization") + strings.Repeat("x", 1000), "health": "err",
			"lastError": "you sent " + r.Header.Get("Authorization"), "labels": map[string]string{"a": "b"},
		}}}}})
	})
	g := gatherer(t, Config{Allow: []string{"127.0.0.1"}, Secret: secretOf(map[string][]byte{"token": []byte("s3cr3t")})})
	spec := at(&v1alpha1.Gate{Alerts: []v1alpha1.GateAlert{{MatchLabels: map[string]string{"a": "b"}}}}, echo.URL)
	spec.Prometheus.Secret = "creds"
	rules := g.gather(t.Context(), spec)[`alert{a="b"}`][0].Rules
	if len(rules) != 1 || rules[0].Group != "Bearer [redacted]" || rules[0].LastError != "you sent Bearer [redacted]" ||
		!strings.HasPrefix(rules[0].Name, "Bearer [redacted]x") || len(rules[0].Name) > 300 {
		t.Errorf("%+v", rules)
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	f := startFake(t, values(1))
	for name, tc := range map[string]struct {
		secret func(context.Context, string, string) (map[string][]byte, error)
		want   string
	}{
		"none":        {nil, "the controller reads no Secrets"},
		"missing":     {func(context.Context, string, string) (map[string][]byte, error) { return nil, errors.New("not found") }, "reading Secret prom: not found"},
		"other keys":  {secretOf(map[string][]byte{"x": []byte("hunter2")}), "none of the keys token, username and ca.crt"},
		"two ways":    {secretOf(map[string][]byte{"token": []byte("hunter2"), "username": []byte("u")}), "both token and username"},
		"no username": {secretOf(map[string][]byte{"password": []byte("hunter2"), "token": []byte("t")}), "password without username"},
		"two lines":   {secretOf(map[string][]byte{"token": []byte("hunter2\nX-Evil: 1")}), "one line"},
		"no PEM":      {secretOf(map[string][]byte{"ca.crt": []byte("hunter2")}), "ca.crt: has no certificate"},
	} {
		g := gatherer(t, Config{Secret: tc.secret, Allow: []string{"127.0.0.1"}})
		spec := at(threshold("up"), f.URL)
		spec.Prometheus.Secret = "prom"
		got := problem(t, g.gather(t.Context(), spec))
		contains(t, got, tc.want)
		if strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q has the secret", name, got)
		}
	}
	if n := len(f.seen()); n > 0 {
		t.Errorf("%d requests without the credentials that were asked for", n)
	}
}

func TestAddressesOfCanaries(t *testing.T) {
	f := startFake(t, values(1))
	g := gatherer(t, Config{})
	for address, want := range map[string]string{
		f.URL:                     "loopback",
		"http://169.254.169.254/": "never called",
		"http://www.example.com":  "is not allowed",
		"http://u:hunter2@a.b.c":  "without user",
		"ftp://a.b":               "http or https",
		"http://a.b?x=y":          "without user, query and fragment",
	} {
		contains(t, problem(t, g.gather(t.Context(), at(threshold("up"), address))), want)
	}
	if n := len(f.seen()); n > 0 {
		t.Errorf("%d requests to an address that is refused", n)
	}
	// A Service of the cluster is looked up under its full name, which nobody answers here.
	contains(t, problem(t, g.gather(t.Context(), within1s(at(threshold("up"), "http://prometheus.monitoring")))), "prometheus.monitoring")
}

// The name is that of an allowed Service, yet it leads here: what counts is the IP address
// that is dialled.
func TestDialledAddressIsChecked(t *testing.T) {
	f := startFake(t, values(1))
	u, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := policy{clusterDomain: "cluster.local"}
	for _, why := range []admission{byCluster, byName, byPrefix} {
		for _, leadsTo := range []string{u.Hostname(), "localhost"} {
			transport := p.guardedTransport(u, why, leadsTo, 1)
			_, err := (&http.Client{Transport: transport}).Get("http://prometheus.monitoring.svc")
			if err == nil || !strings.Contains(err.Error(), "loopback") {
				t.Errorf("%d, %s: %v", why, leadsTo, err)
			}
		}
	}
	if n := len(f.seen()); n > 0 {
		t.Errorf("%d requests", n)
	}
	p.allow.prefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	transport := p.guardedTransport(u, byPrefix, u.Hostname(), 1)
	defer transport.CloseIdleConnections()
	// Whatever the request says, the admitted host is dialled.
	response, err := (&http.Client{Transport: transport}).Get("http://elsewhere.example")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if n := len(f.seen()); n != 1 {
		t.Errorf("%d requests", n)
	}
	if transport.Proxy != nil {
		t.Error("a proxy of the environment would be used")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := startFake(t, values(1))
	for _, code := range []int{301, 302, 307, 308} {
		f := startFake(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL+r.URL.Path, code) })
		g := gatherer(t, Config{Addresses: []string{f.URL}, Allow: []string{"127.0.0.1"}})
		want := fmt.Sprintf("redirect (%d)", code)
		contains(t, problem(t, g.gather(t.Context(), threshold("up"))), want)
		contains(t, problem(t, g.gather(t.Context(), at(threshold("up"), f.URL))), want)
	}
	if n := len(elsewhere.seen()); n > 0 {
		t.Errorf("%d redirects followed", n)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	long := startFake(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 17 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	g := gatherer(t, Config{Addresses: []string{long.URL}})
	contains(t, problem(t, g.gather(t.Context(), threshold("up"))), "longer than 16 MiB")
	page := startFake(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>internal</html>")) })
	g = gatherer(t, Config{Addresses: []string{page.URL}})
	got := problem(t, g.gather(t.Context(), threshold("up")))
	contains(t, got, "not one of Prometheus's API")
	if strings.Contains(got, "internal") {
		t.Errorf("%q repeats a page", got)
	}
}

func TestTLS(t *testing.T) {
	serve := func(config *tls.Config) func(http.Handler) *httptest.Server {
		return func(h http.Handler) *httptest.Server {
			s := httptest.NewUnstartedServer(h)
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = config
			s.StartTLS()
			return s
		}
	}
	f := start(t, values(1), serve(nil))
	other := start(t, values(1), serve(&tls.Config{Certificates: []tls.Certificate{otherCertificate(t)}}))
	ca := func(f *fake) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}))
	}
	file := write(t, filepath.Join(t.TempDir(), "ca.crt"), ca(f))
	pass := func(g gate.Gathered) {
		t.Helper()
		if got := g["check"]; got[0].Value != (gate.Sample{Value: 1}) {
			t.Errorf("evidence %+v", got)
		}
	}
	g := gatherer(t, Config{
		Addresses: []string{f.URL}, CAFile: file, Allow: []string{"127.0.0.1"},
		Secret: func(_ context.Context, _, name string) (map[string][]byte, error) {
			return map[string][]byte{"ca.crt": []byte(map[string]string{"good": ca(f), "bad": ca(other)}[name])}, nil
		},
	})
	pass(g.gather(t.Context(), threshold("up")))
	pass(g.gather(t.Context(), at(threshold("up"), f.URL))) // its CA is no secret

	spec := at(threshold("up"), "https://127.0.0.1:"+port(t, other))
	contains(t, problem(t, g.gather(t.Context(), spec)), "certificate is not accepted", "unknown authority")
	spec.Prometheus.Secret = "bad"
	pass(g.gather(t.Context(), spec))
	spec.Prometheus.ServerName = "someone.else"
	contains(t, problem(t, g.gather(t.Context(), spec)), "certificate is not accepted", "someone.else")
	spec = at(threshold("up"), f.URL)
	spec.Prometheus.Secret = "good"
	spec.Prometheus.ServerName = "example.com" // of httptest's certificate
	pass(g.gather(t.Context(), spec))

	// The controller's CA file is read again when it changes, and kept while it is bad.
	write(t, file, "nonsense")
	pass(g.gather(t.Context(), threshold("up")))
	write(t, file, ca(other))
	contains(t, problem(t, g.gather(t.Context(), threshold("up"))), "certificate is not accepted")
	write(t, file, ca(f))
	pass(g.gather(t.Context(), threshold("up")))
}

func port(t testing.TB, f *fake) string {
	t.Helper()
	_, port, err := net.SplitHostPort(f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := write(t, filepath.Join(dir, "empty"), "\n")
	token := write(t, filepath.Join(dir, "token"), "x")
	for want, c := range map[string]Config{
		"address 2: must be an http or https URL": {Addresses: []string{"http://a", "b:9090"}},
		"must be an http or https URL":            {Addresses: []string{"http://a?x=y"}},
		"goes with an address":                    {CAFile: empty},
		"no certificate in PEM form":              {Addresses: []string{"http://a"}, CAFile: empty},
		"reading the CA file":                     {Addresses: []string{"http://a"}, CAFile: filepath.Join(dir, "missing")},
		"not one line of text":                    {Addresses: []string{"http://a"}, BearerTokenFile: empty},
		"does not go with a bearer token file":    {Addresses: []string{"http://u:p@a"}, BearerTokenFile: token},
		`allowed address "http://x"`:              {Allow: []string{"http://x"}},
		"queries per second":                      {QueriesPerSecond: -1},
		"concurrent queries":                      {MaxConcurrent: -1},
		"timeout":                                 {Timeout: -1},
		"cluster domain":                          {ClusterDomain: "Cluster.Local."},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
