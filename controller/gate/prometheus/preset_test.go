package prometheus

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/rand"
	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

var update = flag.Bool("update", false, "write the presets into README.md anew")

var presetNames = []v1alpha1.Preset{v1alpha1.PresetHTTPServer, v1alpha1.PresetIstio, v1alpha1.PresetEnvoy}

func TestREADMEHasThePresets(t *testing.T) {
	if len(presetNames) != len(presets) {
		t.Fatalf("%d presets, %d documented", len(presets), len(presetNames))
	}
	var b strings.Builder
	for _, name := range presetNames {
		q, err := proportionQueries(&v1alpha1.ProportionCheck{Preset: name}, situation, 90*time.Second+400*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n### `%s`\n\n```promql\n# bad\n%s\n# total\n%s\n", name, q.newBad, q.newTotal)
		if q.exemplars != "" {
			fmt.Fprintf(&b, "# exemplars of bad requests\n%s\n", q.exemplars)
		}
		b.WriteString("```\n")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), " -update -->\n")
	_, tail, ok2 := strings.Cut(rest, "\n<!-- end of presets -->")
	if !ok || !ok2 {
		t.Fatal("README.md has no place for the presets")
	}
	want := head + " -update -->\n" + b.String() + "\n<!-- end of presets -->" + tail
	if *update {
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("README.md does not have the presets; run go test ./controller/gate/prometheus -update\n%s", diff)
	}
}

func TestPresetQueries(t *testing.T) {
	const pod = `[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}`
	sum := func(selector, total string) string {
		return strings.NewReplacer("M", selector, "TOTAL", total, "W", "1m30s400ms").Replace(`sum(
  (increase(M[W]) and resets(M[W]) > 0)
  or (max_over_time(M[W]) unless present_over_time(M[15m] offset W) and count_over_time(M[W]) < on (job, instance) group_left () max by (job, instance) (count_over_time(TOTAL[W])))
  or (max_over_time(M[W]) - min_over_time(M[W]))
)`)
	}
	counts := func(selector, bad string) (string, string) {
		total := sum(selector+"}", selector+"}")
		return "(" + sum(selector+","+bad+"}", selector+"}") + " or 0 * " + total + ")", total
	}
	for preset, tc := range map[v1alpha1.Preset]struct{ newer, older, bad, exemplars string }{
		v1alpha1.PresetHTTPServer: {
			newer:     `http_server_request_duration_seconds_count{namespace="shop",pod=~"web\\.v2-` + pod + `"`,
			older:     `http_server_request_duration_seconds_count{namespace="shop",pod=~"web-v1-` + pod + `"`,
			bad:       `http_response_status_code=~"5.."`,
			exemplars: `{__name__=~"http_server_request_duration_seconds(_bucket)?",namespace="shop",pod=~"web\\.v2-` + pod + `",http_response_status_code=~"5.."}`,
		},
		v1alpha1.PresetIstio: {
			newer: `istio_requests_total{reporter="destination",destination_workload_namespace="shop",destination_workload="web.v2"`,
			older: `istio_requests_total{reporter="destination",destination_workload_namespace="shop",destination_workload="web-v1"`,
			bad:   `response_code=~"5.."`,
		},
	} {
		s := situation
		s.New = "web.v2"
		want := queries{exemplars: tc.exemplars}
		want.newBad, want.newTotal = counts(tc.newer, tc.bad)
		want.oldBad, want.oldTotal = counts(tc.older, tc.bad)
		got, err := proportionQueries(&v1alpha1.ProportionCheck{Preset: preset}, s, 90*time.Second+400*time.Millisecond+time.Microsecond)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(queries{})); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", preset, err, diff)
		}
	}
}

func TestWithoutOldVersion(t *testing.T) {
	for name, old := range map[string]string{"none": "", "in place": situation.New} {
		s := situation
		s.Old = old
		for _, preset := range presetNames {
			q, err := proportionQueries(&v1alpha1.ProportionCheck{Preset: preset}, s, time.Second)
			if err != nil || q.newTotal == "" || q.oldBad != "" || q.oldTotal != "" {
				t.Errorf("%s, %s: %+v, %v", name, preset, q, err)
			}
		}
	}
	s := situation
	s.New, s.Old = strings.Repeat("a", 60)+"-v2", strings.Repeat("a", 60)+"-v1"
	if _, err := proportionQueries(&v1alpha1.ProportionCheck{Preset: v1alpha1.PresetHTTPServer}, s, time.Second); err == nil || !strings.Contains(err.Error(), "cannot be told apart") {
		t.Errorf("error %v", err)
	}
	if _, err := proportionQueries(&v1alpha1.ProportionCheck{Preset: v1alpha1.PresetIstio}, s, time.Second); err != nil {
		t.Errorf("istio tells them apart: %v", err)
	}
	if _, err := proportionQueries(&v1alpha1.ProportionCheck{Preset: "linkerd"}, s, time.Second); err == nil {
		t.Error("an unknown preset has queries")
	}
}

func TestEnvoyClusters(t *testing.T) {
	sets, err := presets[v1alpha1.PresetEnvoy].workload("shop", "web.v2")
	if err != nil || len(sets) != 2 {
		t.Fatalf("%q, %v", sets, err)
	}
	pattern := regexp.MustCompile("^(?:" + unquote(t, sets[0], `envoy_cluster_name=~`) + ")$")
	for cluster, want := range map[string]bool{
		"web.v2.shop": true, "web.v2.shop.svc.cluster.local": true, "shop/web.v2": true, "shop/web.v2/80": true, "shop/web.v2/80/da39a3ee5e": true,
		"web.v2": false, "webxv2.shop": false, "web.v2.shopping": false, "my-web.v2.shop": false, "web.v2-old.shop": false,
		"shop/web.v22": false, "workshop/web.v2": false, "web.v2.other.svc": false, "other/web.v2": false,
	} {
		if pattern.MatchString(cluster) != want {
			t.Errorf("%s: %v, want %v", cluster, !want, want)
		}
	}
	if want := `envoy_cluster_name="web.v2",namespace=~"shop|"`; sets[1] != want {
		t.Errorf("%s, want %s", sets[1], want)
	}
}

func unquote(t testing.TB, matcher, prefix string) string {
	t.Helper()
	var s string
	if _, err := fmt.Sscanf(strings.TrimPrefix(matcher, prefix), "%q", &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// name draws the name of a Deployment, of any length that Kubernetes accepts for pods of it
// to be named after it.
func name() *rapid.Generator[string] { return rapid.StringMatching(`[a-z]([a-z0-9.-]{0,61}[a-z0-9])?`) }

// podName makes a name as Kubernetes does: the ReplicaSet's is the Deployment's with a hash
// that is written in safe characters, the pod's has a random end and room for it.
func podName(deployment string, hash uint32) string {
	base := deployment + "-" + rand.SafeEncodeString(fmt.Sprint(hash)) + "-"
	return base[:min(len(base), 58)] + rand.String(5)
}

func TestPodPatternMatchesThePods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deployment, hash := name().Draw(t, "deployment"), rapid.Uint32().Draw(t, "hash")
		pattern, err := podPattern(deployment)
		if err != nil {
			t.Fatal(err)
		}
		full := regexp.MustCompile("^(?:" + pattern + ")$")
		if pod := podName(deployment, hash); !full.MatchString(pod) {
			t.Errorf("%s is not matched by %s", pod, pattern)
		}
	})
}

// Pods of other Deployments, whose names begin alike, are not matched while there is room
// for whole names.
func TestPodPatternMatchesNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deployment := rapid.StringMatching(`[a-z]([a-z0-9.-]{0,20}[a-z0-9])?`).Draw(t, "deployment")
		other := deployment + rapid.StringMatching(`(-[a-z0-9]{1,10}|[a-z0-9]{1,10}|\.[a-z]{1,5})`).Draw(t, "end")
		pattern, err := podPattern(deployment)
		if err != nil {
			t.Fatal(err)
		}
		full := regexp.MustCompile("^(?:" + pattern + ")$")
		if pod := podName(other, rapid.Uint32().Draw(t, "hash")); full.MatchString(pod) {
			t.Errorf("%s of %s is matched by %s", pod, other, pattern)
		}
	})
	if _, err := podPattern(""); err == nil {
		t.Error("a Deployment without name has a pattern")
	}
}

func TestOutlierQueries(t *testing.T) {
	q := newOutlierQueries("shop", "web")
	want := outlierQueries{
		ejected: `clamp_max(max(canary_outlier_ejected_endpoints{namespace="shop",exported_namespace="",canary="web",role="canary"} or canary_outlier_ejected_endpoints{exported_namespace="shop",canary="web",role="canary"})` +
			` / (max(canary_replicas{namespace="shop",exported_namespace="",canary="web",role="canary",state="available"} or canary_replicas{exported_namespace="shop",canary="web",role="canary",state="available"}) > 0), 1)`,
		observed: `max(canary_outlier_observed_proxies{namespace="shop",exported_namespace="",canary="web",role="canary"} or canary_outlier_observed_proxies{exported_namespace="shop",canary="web",role="canary"})`,
		age:      `time() - max(canary_outlier_last_success_timestamp_seconds)`,
	}
	if q != want {
		t.Error(cmp.Diff(want, q, cmp.AllowUnexported(outlierQueries{})))
	}
}

func TestTemplateValuesAreAllFields(t *testing.T) {
	values := templateValues(gate.Situation{}, 0)
	if len(values) != len(v1alpha1.QueryFields()) {
		t.Errorf("%d values, %d fields", len(values), len(v1alpha1.QueryFields()))
	}
	for _, field := range v1alpha1.QueryFields() {
		if _, ok := values[field]; !ok {
			t.Errorf("no value for %s", field)
		}
	}
}
