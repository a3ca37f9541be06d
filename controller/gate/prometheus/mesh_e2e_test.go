//go:build e2e

package prometheus

import (
	"fmt"
	"strings"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

func preset1(p v1alpha1.Preset) *v1alpha1.Gate {
	g := longer(check(errorRate()))
	g.Checks[0].Proportion.Preset = p
	return g
}

// istio is what sidecars report: both sides of each request, and those of a workload of the
// same name elsewhere, where everything fails.
func istio(namespace string, bad float64) func(float64) string {
	return func(seconds float64) string {
		text := "# TYPE istio_requests_total counter\n"
		line := func(reporter, namespace, workload, code string, rate float64) {
			text += fmt.Sprintf("istio_requests_total{reporter=%q,destination_workload_namespace=%q,destination_workload=%q,response_code=%q} %.0f\n",
				reporter, namespace, workload, code, rate*seconds)
		}
		line("destination", namespace, "web-v1", "200", 400)
		line("destination", namespace, "web-v2", "200", 400*(1-bad))
		if bad > 0 {
			line("destination", namespace, "web-v2", "503", 400*bad)
		}
		line("source", namespace, "web-v2", "503", 1000)
		line("destination", namespace, "web-v2-old", "503", 1000)
		line("destination", namespace+"-other", "web-v2", "503", 1000)
		return text
	}
}

// envoy is what a proxy reports of its clusters.
func envoy(newer, older string, bad float64) func(float64) string {
	return func(seconds float64) string {
		text := "# TYPE envoy_cluster_upstream_rq_xx counter\n"
		text2 := "# TYPE envoy_cluster_upstream_rq_completed counter\n"
		line := func(cluster string, rate, bad float64) {
			text += fmt.Sprintf("envoy_cluster_upstream_rq_xx{envoy_response_code_class=\"2\",envoy_cluster_name=%q} %.0f\n", cluster, rate*(1-bad)*seconds)
			if bad > 0 {
				text += fmt.Sprintf("envoy_cluster_upstream_rq_xx{envoy_response_code_class=\"5\",envoy_cluster_name=%q} %.0f\n", cluster, rate*bad*seconds)
			}
			text2 += fmt.Sprintf("envoy_cluster_upstream_rq_completed{envoy_cluster_name=%q} %.0f\n", cluster, rate*seconds)
		}
		line(older, 400, 0)
		line(newer, 400, bad)
		line("x-"+newer, 1000, 1)
		line(strings.Replace(newer, "v2", "v20", 1), 1000, 1)
		return text + text2
	}
}

func meshCases() []*truth {
	return []*truth{
		{name: "istio healthy", absent: true, gate: preset1(v1alpha1.PresetIstio), exposes: istio("istio-healthy", 0), verdict: pass, action: gate.Promote},
		{name: "istio 5% errors", absent: true, gate: preset1(v1alpha1.PresetIstio), exposes: istio("istio-5-errors", .06), verdict: fail, action: gate.Rollback},
		{name: "envoy healthy", absent: true, gate: preset1(v1alpha1.PresetEnvoy), exposes: envoy("web-v2.envoy-healthy.svc", "web-v1.envoy-healthy.svc", 0), verdict: pass, action: gate.Promote},
		{name: "envoy 5% errors", absent: true, gate: preset1(v1alpha1.PresetEnvoy), exposes: envoy("envoy-5-errors/web-v2/80", "envoy-5-errors/web-v1/80", .06), verdict: fail, action: gate.Rollback},
	}
}

// outliers is what the controller exports of a Canary's new version.
func outliers(namespace string, observed, ejected, available int) func(float64) string {
	return func(float64) string {
		text := fmt.Sprintf("canary_outlier_last_success_timestamp_seconds{source=\"envoy-admin\"} %d\n", time.Now().Unix())
		for i, ns := range []string{`namespace="` + namespace + `"`, `namespace="other"`} {
			ejected := []int{ejected, available}[i]
			text += fmt.Sprintf("canary_outlier_observed_proxies{%s,canary=\"web\",role=\"canary\"} %d\n", ns, observed)
			if observed > 0 {
				text += fmt.Sprintf("canary_outlier_ejected_endpoints{%s,canary=\"web\",role=\"canary\"} %d\n", ns, ejected)
			}
			text += fmt.Sprintf("canary_replicas{%s,canary=\"web\",role=\"canary\",state=\"available\"} %d\n", ns, available)
			text += fmt.Sprintf("canary_replicas{%s,canary=\"web\",role=\"canary\",state=\"desired\"} 10\n", ns)
			text += fmt.Sprintf("canary_outlier_ejected_endpoints{%s,canary=\"web\",role=\"stable\"} 10\n", ns)
		}
		return text
	}
}

// outlierCases are parts of the truth table. The age of the last reading is one for the
// whole Prometheus: that an old one counts for nothing is tested without it.
func outlierCases() []*truth {
	ejections := func() *v1alpha1.Gate {
		return check(v1alpha1.GateCheck{Name: "ejected", Outlier: &v1alpha1.OutlierCheck{Max: "25%", Passes: 2, Failures: 2}})
	}
	return []*truth{
		{name: "nothing ejected", absent: true, gate: longer(ejections()), exposes: outliers("nothing-ejected", 3, 0, 4), verdict: pass, action: gate.Promote},
		{name: "a quarter ejected", absent: true, gate: longer(ejections()), exposes: outliers("a-quarter-ejected", 3, 1, 4), verdict: pass, action: gate.Promote},
		{name: "half ejected", absent: true, gate: longer(ejections()), exposes: outliers("half-ejected", 3, 2, 4), verdict: fail, action: gate.Rollback, message: "50% is outside"},
		{name: "ejections not observed", absent: true, gate: ejections(), exposes: outliers("ejections-not-observed", 0, 0, 4), verdict: none, action: gate.Pause, message: "no caller's proxy"},
		{name: "no endpoints", absent: true, gate: ejections(), exposes: outliers("no-endpoints", 3, 0, 0), verdict: none, action: gate.Pause, message: "no series"},
		{name: "ejections without exporter", absent: true, gate: ejections(), verdict: none, action: gate.Pause, message: "no caller's proxy"},
	}
}
