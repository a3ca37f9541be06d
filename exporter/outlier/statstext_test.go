package outlier

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const v2 = "outbound|80|v2|web.shop.svc.cluster.local"

// A sidecar's answer: Istio's tag, all kinds, and the clusters of others.
const istioStats = `# TYPE envoy_cluster_outlier_detection_ejections_active gauge
envoy_cluster_outlier_detection_ejections_active{cluster_name="outbound|80|v2|web.shop.svc.cluster.local"} 1
envoy_cluster_outlier_detection_ejections_active{cluster_name="outbound|80|v1|web.shop.svc.cluster.local"} 0

# TYPE envoy_cluster_outlier_detection_ejections_enforced_consecutive_5xx counter
envoy_cluster_outlier_detection_ejections_enforced_consecutive_5xx{cluster_name="outbound|80|v2|web.shop.svc.cluster.local"} 4
# TYPE envoy_cluster_outlier_detection_ejections_enforced_consecutive_gateway_failure counter
envoy_cluster_outlier_detection_ejections_enforced_consecutive_gateway_failure{cluster_name="outbound|80|v2|web.shop.svc.cluster.local"} 1
# TYPE envoy_cluster_outlier_detection_ejections_enforced_total counter
envoy_cluster_outlier_detection_ejections_enforced_total{cluster_name="outbound|80|v2|web.shop.svc.cluster.local"} 5
# TYPE envoy_cluster_upstream_cx_total counter
envoy_cluster_upstream_cx_total{cluster_name="outbound|80|v2|web.shop.svc.cluster.local"} 12
# TYPE envoy_server_uptime gauge
envoy_server_uptime{} 3600
`

func none() [numTypes]float64 { return newClusterReading("").Enforced }

func enforced(set map[int]float64) [numTypes]float64 {
	e := none()
	for i, v := range set {
		e[i] = v
	}
	return e
}

func TestParseStats(t *testing.T) {
	isV2 := func(c string) bool { return strings.Contains(c, "v2") }
	for _, tc := range []struct {
		name   string
		body   string
		want   []ClusterReading
		uptime time.Duration
		reason Reason
	}{
		{
			name:   "istio",
			body:   istioStats,
			uptime: time.Hour,
			want: []ClusterReading{{
				Name: v2, HasActive: true, Active: 1, Connections: 12,
				Enforced: enforced(map[int]float64{0: 4, 1: 1, counterTotal: 5}),
			}},
		},
		{
			name: "envoy's own label, timestamp, CRLF and spaces",
			body: "envoy_cluster_outlier_detection_ejections_active { envoy_cluster_name = \"web-v2\" , } 2 1712345678901\r\n",
			want: []ClusterReading{{Name: "web-v2", HasActive: true, Active: 2, Connections: -1, Enforced: none()}},
		},
		{
			name: "both labels: the mesh's stands",
			body: `envoy_cluster_outlier_detection_ejections_active{envoy_cluster_name="x",cluster_name="web-v2"} 0` + "\n",
			want: []ClusterReading{{Name: "web-v2", HasActive: true, Connections: -1, Enforced: none()}},
		},
		{
			name: "both spellings of the failure percentage",
			body: `envoy_cluster_outlier_detection_ejections_enforced_local_origin_failure_percentage{cluster_name="a-v2"} 3
envoy_cluster_outlier_detection_ejections_enforced_failure_percentage_local_origin{cluster_name="b-v2"} 4
`,
			want: []ClusterReading{
				{Name: "a-v2", Connections: -1, Enforced: enforced(map[int]float64{6: 3})},
				{Name: "b-v2", Connections: -1, Enforced: enforced(map[int]float64{6: 4})},
			},
		},
		{
			name: "detected, deprecated and unknown kinds are not ejections of a kind",
			body: `envoy_cluster_outlier_detection_ejections_detected_consecutive_5xx{cluster_name="a-v2"} 9
envoy_cluster_outlier_detection_ejections_total{cluster_name="a-v2"} 9
envoy_cluster_outlier_detection_ejections_consecutive_5xx{cluster_name="a-v2"} 9
envoy_cluster_outlier_detection_ejections_enforced_phase_of_moon{cluster_name="a-v2"} 9
`,
			want: []ClusterReading{{Name: "a-v2", Connections: -1, Enforced: none()}},
		},
		{
			name: "merged with an application's metrics that end without line feed",
			body: "istio_agent_x 1\n" + istioStats + "http_requests_total{path=\"/a b\"} 1 # {trace_id=\"x\"} 1\n# EOF\nnot even a metric",
			want: []ClusterReading{{
				Name: v2, HasActive: true, Active: 1, Connections: 12,
				Enforced: enforced(map[int]float64{0: 4, 1: 1, counterTotal: 5}),
			}},
			uptime: time.Hour,
		},
		{
			name: "an application's line without end is passed over",
			body: "x{a=\"" + strings.Repeat("y", 3*maxLine) + "\"} 1\n" + `envoy_cluster_outlier_detection_ejections_active{cluster_name="a-v2"} 1` + "\n",
			want: []ClusterReading{{Name: "a-v2", HasActive: true, Active: 1, Connections: -1, Enforced: none()}},
		},
		{
			name: "escapes",
			body: `envoy_cluster_outlier_detection_ejections_active{pod="a\\\"}\n",cluster_name="a\\\"\nv2"} 1` + "\n",
			want: []ClusterReading{{Name: "a\\\"\nv2", HasActive: true, Active: 1, Connections: -1, Enforced: none()}},
		},
		{name: "empty", body: "", reason: ReasonNoStats},
		{name: "no opt-in", body: "# TYPE envoy_server_uptime gauge\nenvoy_server_uptime{} 3600\n", reason: ReasonNoStats},
		{name: "only the agent answered", body: "istio_agent_pilot_xds 1\n", reason: ReasonNoStats},
		{name: "web page", body: "<!DOCTYPE html>\n<html>\n", reason: ReasonMalformed},
		{name: "broke off in a value", body: istioStats[:len(istioStats)-3], reason: ReasonMalformed},
		{name: "broke off in a name", body: istioStats + "env", reason: ReasonMalformed},
		{name: "broke off in a comment", body: istioStats + "# TYPE env", reason: ReasonMalformed},
		{name: "no value", body: `envoy_cluster_outlier_detection_ejections_active{cluster_name="a"}` + "\n", reason: ReasonMalformed},
		{name: "not a number", body: `envoy_cluster_outlier_detection_ejections_active{cluster_name="a"} NaN` + "\n", reason: ReasonMalformed},
		{name: "negative", body: `envoy_cluster_outlier_detection_ejections_active{cluster_name="a"} -1` + "\n", reason: ReasonMalformed},
		{name: "label does not end", body: `envoy_cluster_outlier_detection_ejections_active{cluster_name="a} 1` + "\n", reason: ReasonMalformed},
		{name: "labels do not end", body: `envoy_cluster_outlier_detection_ejections_active{cluster_name="a"` + "\n", reason: ReasonMalformed},
		{name: "own line too long", body: nameActive + strings.Repeat("x", maxLine) + "\n", reason: ReasonMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// One byte at a time shows that nothing depends on how the body arrives.
			for _, r := range []io.Reader{strings.NewReader(tc.body), iotest.OneByteReader(strings.NewReader(tc.body))} {
				got, err := parseStats(r, isV2)
				if tc.reason != "" {
					if err == nil || reasonOf(err) != tc.reason {
						t.Fatalf("error %v, want reason %s", err, tc.reason)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(got.clusters, func(a, b ClusterReading) int { return strings.Compare(a.Name, b.Name) })
				if len(got.clusters) != len(tc.want) {
					t.Fatalf("got %+v, want %+v", got.clusters, tc.want)
				}
				for i := range tc.want {
					assertCluster(t, got.clusters[i], tc.want[i])
				}
				if got.uptime != tc.uptime {
					t.Errorf("uptime %v, want %v", got.uptime, tc.uptime)
				}
			}
		})
	}
}

func assertCluster(t *testing.T, got, want ClusterReading) {
	t.Helper()
	if got.Name != want.Name || got.HasActive != want.HasActive || got.Active != want.Active ||
		got.Enforced != want.Enforced || got.Connections != want.Connections || !slices.Equal(got.Endpoints, want.Endpoints) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseStatsPassesReadErrorsOn(t *testing.T) {
	broken := errors.New("connection broke")
	_, err := parseStats(io.MultiReader(strings.NewReader(istioStats), iotest.ErrReader(broken)), func(string) bool { return true })
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want the reader's error", err)
	}
}

// FuzzParseStats holds the parser to expfmt, the library's parser of the same
// format: what both accept, both read alike.
func FuzzParseStats(f *testing.F) {
	f.Add(istioStats)
	f.Add(`envoy_cluster_outlier_detection_ejections_active{pod="a\\\"}\n",cluster_name="x"} 1 5` + "\n")
	f.Add("envoy_cluster_upstream_cx_total{envoy_cluster_name=\"x\"} 1e3\nenvoy_server_uptime 5\n")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseStats(strings.NewReader(body), func(string) bool { return true })
		if err != nil {
			return
		}
		p := expfmt.NewTextParser(model.UTF8Validation)
		families, err := p.TextToMetricFamilies(strings.NewReader(body))
		if err != nil {
			return
		}
		want := map[string]float64{}
		for _, m := range families[nameActive].GetMetric() {
			if c := clusterLabel(m); c != "" {
				want[c] = max(want[c], value(m))
			}
		}
		for _, c := range got.clusters {
			if c.Active != want[c.Name] && !math.IsNaN(want[c.Name]) {
				t.Fatalf("cluster %q: active %v, expfmt reads %v\n%s", c.Name, c.Active, want[c.Name], body)
			}
			delete(want, c.Name)
		}
		if len(want) > 0 {
			t.Fatalf("not read: %v\n%s", want, body)
		}
	})
}

func clusterLabel(m *dto.Metric) string {
	var own string
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case labelIstio:
			return l.GetValue()
		case labelEnvoy:
			own = l.GetValue()
		}
	}
	return own
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Untyped.GetValue()
	}
}

// BenchmarkParseStats reads the answer of a sidecar with 200 clusters.
func BenchmarkParseStats(b *testing.B) {
	body := sidecarStats(200)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseStats(strings.NewReader(body), func(c string) bool { return c == clusterNumber(3) }); err != nil {
			b.Fatal(err)
		}
	}
}
