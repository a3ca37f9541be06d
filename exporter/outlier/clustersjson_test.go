package outlier

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// An admin endpoint's answer: counters as strings, type left out for
// counters, failed_outlier_check only where true, all three address forms.
const clustersAnswer = `{
 "cluster_statuses": [
  {
   "name": "outbound|80|v2|web.shop.svc.cluster.local",
   "added_via_api": true,
   "success_rate_ejection_threshold": {"value": 6},
   "host_statuses": [
    {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 8080}},
     "stats": [{"name": "cx_total", "value": "17"}, {"name": "rq_active", "value": "11", "type": "GAUGE"}],
     "health_status": {"eds_health_status": "HEALTHY", "failed_outlier_check": true},
     "success_rate": {"value": 43.2}, "weight": 5, "hostname": "", "locality": {}},
    {"address": {"socket_address": {"address": "10.0.0.2", "port_value": 8080}},
     "stats": [{"name": "cx_total"}, {"name": "cx_total", "value": 3}],
     "health_status": {"eds_health_status": "HEALTHY"}},
    {"address": {"envoy_internal_address": {"server_listener_name": "connect_originate", "endpoint_id": "10.0.0.3:8080"}},
     "health_status": {}},
    {"address": {"pipe": {"path": "/run/web.sock"}}},
    {"address": {"socket_address": {"address": "2001:db8:0:0::1", "port_value": 8080}}}
   ],
   "observability_name": "x;"
  },
  {"name": "BlackHoleCluster", "host_statuses": [{"address": {"socket_address": {"address": "10.9.9.9"}}}]},
  {"host_statuses": [{"health_status": {"failed_outlier_check": true}}], "name": "late-v2"},
  {"name": "empty-v2"}
 ]
}
`

func wantV2(c string) bool { return strings.Contains(c, "v2") }

func TestParseClusters(t *testing.T) {
	for _, r := range []io.Reader{strings.NewReader(clustersAnswer), iotest.OneByteReader(strings.NewReader(clustersAnswer))} {
		got, err := parseClusters(r, wantV2)
		if err != nil {
			t.Fatal(err)
		}
		want := []ClusterReading{
			{Name: v2, Connections: -1, Enforced: none(), Endpoints: []EndpointReading{
				{Address: "10.0.0.1", Ejected: true, Connections: 17},
				{Address: "10.0.0.2", Connections: 3},
				{Address: "10.0.0.3", Connections: -1},
				{Address: "/run/web.sock", Connections: -1},
				{Address: "2001:db8::1", Connections: -1},
			}},
			{Name: "late-v2", Connections: -1, Enforced: none(), Endpoints: []EndpointReading{{Ejected: true, Connections: -1}}},
			{Name: "empty-v2", Connections: -1, Enforced: none()},
		}
		if len(got) != len(want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for i := range want {
			assertCluster(t, got[i], want[i])
		}
	}
}

func TestParseClustersRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		reason     Reason
	}{
		{"nothing", "", ReasonMalformed},
		{"web page", "<html></html>", ReasonMalformed},
		{"text form", "outbound|80||x::default_priority::max_connections::1\n", ReasonMalformed},
		{"half a body", clustersAnswer[:len(clustersAnswer)/2], ReasonMalformed},
		{"all but the last brace", strings.TrimRight(clustersAnswer, "}\n"), ReasonMalformed},
		{"no clusters", "{}", ReasonNoStats},
		{"an error", `{"error":"not found"}`, ReasonNoStats},
		{"an array", "[]", ReasonMalformed},
		{"two documents", `{"cluster_statuses":[]}{}`, ReasonMalformed},
		{"statuses are an object", `{"cluster_statuses":{}}`, ReasonMalformed},
		{"a status is a number", `{"cluster_statuses":[1]}`, ReasonMalformed},
		{"name is a number", `{"cluster_statuses":[{"name":1}]}`, ReasonMalformed},
		{"check is a string", `{"cluster_statuses":[{"name":"v2","host_statuses":[{"health_status":{"failed_outlier_check":"yes"}}]}]}`, ReasonMalformed},
		{"a string without end", `{"cluster_statuses":[{"name":"` + strings.Repeat("a", 3*maxElement), ReasonTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseClusters(strings.NewReader(tc.body), wantV2)
			if err == nil || reasonOf(err) != tc.reason {
				t.Fatalf("got %+v, %v; want reason %s", got, err, tc.reason)
			}
		})
	}
}

func TestParseClustersPassesReadErrorsOn(t *testing.T) {
	broken := errors.New("connection broke")
	_, err := parseClusters(io.MultiReader(strings.NewReader(clustersAnswer[:300]), iotest.ErrReader(broken)), wantV2)
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want the reader's error", err)
	}
}

// FuzzParseClusters: what is accepted is a JSON document, and no part of it
// that broke off is accepted.
func FuzzParseClusters(f *testing.F) {
	f.Add(clustersAnswer, uint16(200))
	f.Add(`{"cluster_statuses":[{"host_statuses":[null,{}],"name":"v2"},null]}`, uint16(3))
	f.Add(`{"cluster_statuses":null}`, uint16(0))
	f.Fuzz(func(t *testing.T, body string, cut uint16) {
		all := func(string) bool { return true }
		if _, err := parseClusters(strings.NewReader(body), all); err != nil {
			return
		}
		if !json.Valid([]byte(body)) {
			t.Fatalf("accepted, but is no JSON: %q", body)
		}
		whole := strings.TrimRight(body, " \t\r\n")
		part := whole[:int(cut)%len(whole)]
		if got, err := parseClusters(strings.NewReader(part), all); err == nil {
			t.Fatalf("accepted %+v from the part %q", got, part)
		}
	})
}

// BenchmarkParseClusters reads an endpoint list of 200 endpoints, about the
// size a sidecar in a middling mesh has.
func BenchmarkParseClusters(b *testing.B) {
	body := endpointList(20, 10)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseClusters(strings.NewReader(body), func(c string) bool { return c == clusterNumber(3) }); err != nil {
			b.Fatal(err)
		}
	}
}

func clusterNumber(n int) string { return fmt.Sprintf("outbound|80||svc-%d.shop.svc.cluster.local", n) }

// endpointList is an answer with so many clusters of so many endpoints, each
// with the statistics that Envoy writes.
func endpointList(clusters, endpoints int) string {
	var b strings.Builder
	b.WriteString(`{"cluster_statuses":[`)
	for c := range clusters {
		if c > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"added_via_api":true,"host_statuses":[`, clusterNumber(c))
		for e := range endpoints {
			if e > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"address":{"socket_address":{"address":"10.0.%d.%d","port_value":8080}},"stats":[`, c, e)
			for i, s := range []string{"cx_connect_fail", "cx_total", "rq_error", "rq_success", "rq_timeout", "rq_total"} {
				if i > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, `{"name":%q,"value":"%d"}`, s, 10*i)
			}
			b.WriteString(`,{"type":"GAUGE","name":"cx_active"},{"type":"GAUGE","name":"rq_active"}],` +
				`"health_status":{"eds_health_status":"HEALTHY"},"weight":1,"hostname":"","locality":{"region":"eu","zone":"eu-1"}}`)
		}
		b.WriteString(`]}`)
	}
	b.WriteString(`]}`)
	return b.String()
}
