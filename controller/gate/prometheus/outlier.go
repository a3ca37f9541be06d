package prometheus

import (
	"fmt"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

// outlierQueries ask the metrics that the controller exports, of the new version.
type outlierQueries struct {
	// ejected is the share of the endpoints that are ejected, empty while none are available.
	ejected string
	// observed is how many proxies that share rests on.
	observed string
	// age is the time since ejections were last read, in seconds.
	age string
}

// newOutlierQueries makes them. Several series of one Canary, as while the controller's
// leadership moves, count as the worst.
func newOutlierQueries(namespace, canary string) outlierQueries {
	newest := func(metric, matchers string) string {
		// A scrape that does not honour labels renames the Canary's namespace.
		return fmt.Sprintf(`max(%s{%s,exported_namespace="",%s,%s} or %s{%s,%s,%s})`,
			metric, match("namespace", "=", namespace), match("canary", "=", canary), matchers,
			metric, match("exported_namespace", "=", namespace), match("canary", "=", canary), matchers)
	}
	return outlierQueries{
		ejected: fmt.Sprintf("clamp_max(%s / (%s > 0), 1)",
			newest("canary_outlier_ejected_endpoints", `role="canary"`), newest("canary_replicas", `role="canary",state="available"`)),
		observed: newest("canary_outlier_observed_proxies", `role="canary"`),
		age:      "time() - max(canary_outlier_last_success_timestamp_seconds)",
	}
}

// maxOutlierAge is how old a reading of ejections may be: the controller reads them every
// 15 s.
const maxOutlierAge = 2 * time.Minute

// outlierAge is maxOutlierAge, or three intervals of the gate if that is more.
func outlierAge(spec *v1alpha1.Gate) time.Duration {
	interval := v1alpha1.DefaultGateInterval
	if spec.Interval != nil {
		interval = spec.Interval.Duration
	}
	return max(maxOutlierAge, 3*interval)
}

// outlierValue is the share if somebody saw it lately. That nobody looks comes first: it
// explains why there is no share.
func outlierValue(share, observed, age gate.Sample, limit time.Duration) gate.Sample {
	for _, s := range []gate.Sample{age, observed} {
		if s.Verdict == v1alpha1.VerdictError {
			return s
		}
	}
	switch {
	case age.Verdict != "":
		return noData("ejections are not known: canary_outlier_last_success_timestamp_seconds has no value")
	case age.Value > limit.Seconds():
		return noData("ejections are not known: they were last read more than %s ago", limit)
	case observed.Verdict != "" || observed.Value <= 0:
		return noData("ejections are not known: no caller's proxy was observed")
	}
	return share
}
