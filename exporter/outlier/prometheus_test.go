package outlier

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakePrometheus answers queries by what they contain.
func fakePrometheus(t *testing.T, answer func(query string) string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer(r.FormValue("query")))
	}))
	t.Cleanup(s.Close)
	return s
}

func vector(samples ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

// promSample writes a sample of pod n; labels are further labels in JSON.
func promSample(pod, labels, value string) string {
	return fmt.Sprintf(`{"metric":{"namespace":"callers","pod":%q,"instance":%q%s},"value":[1772366400,%q]}`, pod, pod+":15020", labels, value)
}

func promSourceOf(t *testing.T, url string, o Options) Source {
	t.Helper()
	o.PrometheusURL = url
	tr := &http.Transport{DisableKeepAlives: true}
	o.Transport = tr
	s, err := NewSource(KindPrometheus, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrometheusSource(t *testing.T) {
	istio, envoy := `,"cluster_name":"`+v2+`"`, `,"envoy_cluster_name":"`+v2+`"`
	s := fakePrometheus(t, func(q string) string {
		switch {
		case strings.Contains(q, nameUptime):
			return vector(promSample("a", "", "1772360000.5"), promSample("quiet", "", "1772360001"))
		case strings.Contains(q, nameActive):
			return vector(promSample("a", istio, "2"), promSample("b", envoy, "0"), promSample("b", `,"cluster_name":"outbound|80||other.shop.svc.cluster.local"`, "9"))
		default:
			name := `,"__name__":"` + nameEnforced
			return vector(
				promSample("a", istio+name+`consecutive_5xx"`, "3"), promSample("a", istio+name+`total"`, "4"),
				promSample("a", istio+name+`phase_of_moon"`, "1"),
				promSample("b", envoy+name+`failure_percentage_local_origin"`, "5"))
		}
	})
	got := readAll(t, t.Context(), promSourceOf(t, s.URL, Options{}), interestOf(t, canarySubset))
	if len(got.readings) != 3 {
		t.Fatalf("%d proxies, want 3: %v", len(got.readings), got.readings)
	}
	a := got.readings[`"callers""a""a:15020"`]
	if len(a.Clusters) != 1 || !a.Booted.Equal(time.UnixMilli(1772360000500)) {
		t.Fatalf("a: %+v", a)
	}
	assertCluster(t, a.Clusters[0], ClusterReading{Name: v2, HasActive: true, Active: 2, Connections: -1, Enforced: enforced(map[int]float64{0: 3, counterTotal: 4})})
	b := got.readings[`"callers""b""b:15020"`]
	if len(b.Clusters) != 1 {
		t.Fatalf("b: %+v", b)
	}
	assertCluster(t, b.Clusters[0], ClusterReading{Name: v2, HasActive: true, Connections: -1, Enforced: enforced(map[int]float64{6: 5})})
	if q := got.readings[`"callers""quiet""quiet:15020"`]; len(q.Clusters) != 0 {
		t.Errorf("quiet: %+v", q)
	}
}

// One failed answer spoils the sweep: the rest would pass for the whole.
func TestPrometheusSourceIsAllOrNothing(t *testing.T) {
	istio := `,"cluster_name":"` + v2 + `"`
	for _, tc := range []struct {
		name, answer string
		reason       Reason
	}{
		{"html", "<html>", ReasonMalformed},
		{"half", vector()[:30], ReasonMalformed},
		{"error", `{"status":"error","errorType":"execution","error":"too many samples"}`, ReasonStatus},
		{"timeout", `{"status":"error","errorType":"timeout","error":"query timed out"}`, ReasonTimeout},
		{"scalar", `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, ReasonMalformed},
		{"not a number", vector(promSample("a", istio, "NaN")), ReasonMalformed},
		{"too large", vector(strings.Repeat(" ", 2<<20)), ReasonTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fakePrometheus(t, func(q string) string {
				if strings.Contains(q, nameEnforced) {
					return tc.answer
				}
				return vector(promSample("a", istio, "1"))
			})
			sink := &sinkRecorder{readings: map[string]Reading{}}
			err := promSourceOf(t, s.URL, Options{MaxBodyBytes: 1 << 20}).Read(t.Context(), interestOf(t, canarySubset), sink)
			if err == nil || reasonOf(err) != tc.reason || len(sink.readings) != 0 {
				t.Errorf("reason %q (%v) and %d readings, want %q and none", reasonOf(err), err, len(sink.readings), tc.reason)
			}
		})
	}
	s := fakePrometheus(t, func(string) string { return vector() })
	if err := promSourceOf(t, s.URL, Options{}).Read(t.Context(), interestOf(t, canarySubset), &sinkRecorder{}); err == nil || reasonOf(err) != ReasonNoStats {
		t.Errorf("nothing scraped: %v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if err := promSourceOf(t, gone.URL, Options{}).Read(t.Context(), interestOf(t, canarySubset), &sinkRecorder{}); err == nil || reasonOf(err) != ReasonUnreachable {
		t.Errorf("no Prometheus: %v", err)
	}
}

func TestQueriesAreSplit(t *testing.T) {
	var queries []string
	s := fakePrometheus(t, func(q string) string {
		queries = append(queries, q)
		return vector()
	})
	var targets []Target
	for i := range clustersPerQuery + 1 {
		targets = append(targets, Target{Namespace: "shop", Canary: "web", Role: RoleCanary, Clusters: []string{fmt.Sprint("c", i)}})
	}
	_ = promSourceOf(t, s.URL, Options{Matchers: map[string]string{"cluster": `a"b`}}).Read(t.Context(), interestOf(t, targets...), &sinkRecorder{})
	if len(queries) != 5 {
		t.Fatalf("%d queries, want 1 for starts and 2 for each of 2 batches", len(queries))
	}
	for _, q := range queries {
		if strings.Count(q, "{") != strings.Count(q, `cluster="a\"b"`) {
			t.Errorf("matcher missing from a selector of %s", q)
		}
	}
}

func TestClusterPatterns(t *testing.T) {
	got := clusterPatterns([]Target{canarySubset, canarySubset, {Namespace: "shop", Role: RoleStable, Service: "web"}, {Clusters: []string{"a.b"}}})
	want := []string{
		`a\.b`,
		`outbound(\||_\.)[0-9]+(\||_\.)[^|]*(\||_\.)web\.shop\.svc(\..*)?`,
		`outbound(\||_\.)[0-9]+(\||_\.)v2(\||_\.)web\.shop\.svc(\..*)?`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
