//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// monitoring is a Prometheus that scrapes the operators of one test over TLS with the
// token of a ServiceAccount, and two Envoys that it scrapes besides.
type monitoring struct {
	*space
	server *servers.PrometheusServer
	api    promv1.API
	// certFile and keyFile are the operators', client trusts them.
	certFile, keyFile string
	client            *http.Client
	// scraper's token has the right to get /metrics, stranger's has not.
	scraper, stranger string
	targets, envoys   []string
}

func monitor(s *space) *monitoring {
	s.Helper()
	m := &monitoring{space: s}
	dir := s.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			s.Fatal(err)
		}
		return path
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		s.Fatal(err)
	}
	m.certFile, m.keyFile = write("tls.crt", certificate), write("tls.key", key)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	m.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
	}}
	m.scraper, m.stranger = m.account("scraper"), m.account("stranger")
	write("scraper", []byte(m.scraper))
	write("stranger", []byte(m.stranger))
	m.mayScrape("scraper")
	m.envoy(1)
	m.envoy(0)

	m.server, err = servers.StartPrometheus(s.ctx, servers.PrometheusOptions{
		Options: servers.Options{Progress: os.Stderr}, Config: m.config(), Flags: []string{"--enable-feature=exemplar-storage"},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := m.server.Stop(); err != nil {
			s.Error(err)
		}
	})
	client, err := api.NewClient(api.Config{Address: m.server.URL})
	if err != nil {
		s.Fatal(err)
	}
	m.api = promv1.NewAPI(client)
	return m
}

// account makes a ServiceAccount and returns a token for it.
func (m *monitoring) account(name string) string {
	m.Helper()
	accounts := m.kube.CoreV1().ServiceAccounts(m.name)
	if _, err := accounts.Create(m.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
	request, err := accounts.CreateToken(m.ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	return request.Status.Token
}

// mayScrape gives a ServiceAccount the right that the manifests give to Prometheus.
func (m *monitoring) mayScrape(account string) {
	m.Helper()
	rbac, meta := m.kube.RbacV1(), metav1.ObjectMeta{Name: m.name + "-metrics-reader"}
	m.Cleanup(func() {
		ctx := context.WithoutCancel(m.ctx)
		_ = rbac.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if _, err := rbac.ClusterRoles().Create(m.ctx, role, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: m.name, Name: account}},
	}
	if _, err := rbac.ClusterRoleBindings().Create(m.ctx, binding, metav1.CreateOptions{}); err != nil {
		m.Fatal(err)
	}
}

// envoy serves the statistics of a caller's proxy that connects to both versions and has
// ejected so many endpoints of the new one.
func (m *monitoring) envoy(ejected int) {
	cluster := func(version string) string {
		return fmt.Sprintf("outbound|80||%s.%s.svc.cluster.local", version, m.name)
	}
	text := fmt.Sprintf(`# TYPE envoy_cluster_outlier_detection_ejections_active gauge
envoy_cluster_outlier_detection_ejections_active{cluster_name=%[1]q} %[3]d
envoy_cluster_outlier_detection_ejections_active{cluster_name=%[2]q} 0
# TYPE envoy_cluster_outlier_detection_ejections_enforced_total counter
envoy_cluster_outlier_detection_ejections_enforced_total{cluster_name=%[1]q} %[3]d
envoy_cluster_outlier_detection_ejections_enforced_total{cluster_name=%[2]q} 0
# TYPE envoy_cluster_upstream_cx_total counter
envoy_cluster_upstream_cx_total{cluster_name=%[1]q} 12
envoy_cluster_upstream_cx_total{cluster_name=%[2]q} 12
# TYPE envoy_server_uptime gauge
envoy_server_uptime{} 3600
`, cluster("new"), cluster("old"), ejected)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, text)
	}))
	m.Cleanup(server.Close)
	m.envoys = append(m.envoys, strings.TrimPrefix(server.URL, "http://"))
}

func (m *monitoring) config() string {
	var text strings.Builder
	text.WriteString("global: {scrape_interval: 1s}\nscrape_configs:\n")
	quoted := func(targets []string) string {
		list := make([]string, len(targets))
		for n, target := range targets {
			list[n] = fmt.Sprintf("%q", target)
		}
		return strings.Join(list, ", ")
	}
	for _, job := range []string{"scraper", "stranger"} {
		fmt.Fprintf(&text, `- job_name: %s
  scheme: https
  scrape_native_histograms: true
  always_scrape_classic_histograms: true
  authorization: {credentials_file: %q}
  tls_config: {ca_file: %q}
  static_configs: [{targets: [%s]}]
`, job, filepath.Join(filepath.Dir(m.certFile), job), m.certFile, quoted(m.targets))
	}
	fmt.Fprintf(&text, `- job_name: envoy
  metrics_path: /stats/prometheus
  static_configs: [{targets: [%s], labels: {namespace: callers}}]
`, quoted(m.envoys))
	return text.String()
}

// operate starts an operator that takes part in leader election, and has it scraped.
func (m *monitoring) operate() *operator {
	m.Helper()
	op := m.space.operate("--namespace", m.name, "--leader-election-namespace", m.name,
		// Long enough for a busy machine, short enough to wait for.
		"--leader-elect-lease-duration", "8s", "--leader-elect-renew-deadline", "6s", "--leader-elect-retry-period", "1s",
		"--metrics-secure", "--metrics-tls-cert-file", m.certFile, "--metrics-tls-key-file", m.keyFile,
		"--outlier-source", "prometheus", "--prometheus-url", m.server.URL)
	m.wait("the operator", op.ready)
	m.targets = append(m.targets, op.metrics)
	if err := m.server.SetConfig(m.ctx, m.config()); err != nil {
		m.Fatal(err)
	}
	return op
}

// get reads an operator's /metrics with a token, or without one.
func (m *monitoring) get(op *operator, token string) (status int, body string) {
	m.Helper()
	request, err := http.NewRequestWithContext(m.ctx, http.MethodGet, "https://"+op.metrics+"/metrics", nil)
	if err != nil {
		m.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := m.client.Do(request)
	if err != nil {
		m.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		m.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (m *monitoring) query(expr string) (model.Vector, error) {
	value, warnings, _, err := m.api.Query(m.ctx, expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	vector, ok := value.(model.Vector)
	if !ok || len(warnings) > 0 {
		return nil, fmt.Errorf("%s: a %s, warnings %q", expr, value.Type(), warnings)
	}
	return vector, nil
}

// has checks that an expression has exactly these values. Keys are written as Prometheus
// writes series, without the job and the instance.
func (m *monitoring) has(expr string, want map[string]float64) func() error {
	return func() error {
		vector, err := m.query(expr)
		if err != nil {
			return err
		}
		got := map[string]float64{}
		for _, sample := range vector {
			delete(sample.Metric, "job")
			delete(sample.Metric, "instance")
			key := sample.Metric.String()
			if _, ok := got[key]; ok {
				return fmt.Errorf("%s: two series %s", expr, key)
			}
			got[key] = float64(sample.Value)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s: Prometheus has\n%v\nwant\n%v", expr, got, want)
		}
		return nil
	}
}

// is checks that an expression has one value, this one.
func (m *monitoring) is(expr string, want float64) func() error {
	return m.has(expr, map[string]float64{"{}": want})
}

// series is the key of a series of the Canary's.
func (m *monitoring) series(name string, pairs ...string) string {
	metric := model.Metric{model.MetricNameLabel: model.LabelValue(name), "namespace": model.LabelValue(m.name), "canary": "release"}
	for n := 0; n < len(pairs); n += 2 {
		metric[model.LabelName(pairs[n])] = model.LabelValue(pairs[n+1])
	}
	return metric.String()
}
