package prometheus

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

// queries are what a proportion check asks; empty ones are not asked.
type queries struct {
	newBad, newTotal, oldBad, oldTotal string
	// exemplars selects the series whose exemplars are of the new version's bad requests.
	exemplars string
}

// proportionQueries are those of a check for a window of at least a second.
func proportionQueries(p *v1alpha1.ProportionCheck, s gate.Situation, window time.Duration) (queries, error) {
	if p.Preset == "" {
		values := templateValues(s, window)
		return queries{
			newBad: v1alpha1.RenderQuery(p.Bad, values), newTotal: v1alpha1.RenderQuery(p.Total, values),
			oldBad: v1alpha1.RenderQuery(p.OldBad, values), oldTotal: v1alpha1.RenderQuery(p.OldTotal, values),
		}, nil
	}
	preset, ok := presets[p.Preset]
	if !ok {
		return queries{}, fmt.Errorf("preset %q is not known", p.Preset)
	}
	newer, err := preset.counter(s.Namespace, s.New, window)
	if err != nil {
		return queries{}, err
	}
	q := queries{newBad: newer.badQuery(), newTotal: newer.totalQuery(), exemplars: newer.exemplarQuery()}
	// One Deployment that is changed in place has no old version to be told from the new.
	if s.Old == "" || s.Old == s.New {
		return q, nil
	}
	older, err := preset.counter(s.Namespace, s.Old, window)
	if err != nil {
		return queries{}, err
	}
	if slices.Equal(older.workload, newer.workload) {
		return queries{}, fmt.Errorf("the Deployments %s and %s cannot be told apart by the names of their pods", s.Old, s.New)
	}
	q.oldBad, q.oldTotal = older.badQuery(), older.totalQuery()
	return q, nil
}

// templateValues are what a query of a Canary may name.
func templateValues(s gate.Situation, window time.Duration) map[string]string {
	return map[string]string{
		"Namespace": s.Namespace, "Canary": s.Canary, "New": s.New, "Old": s.Old,
		"Window": seconds(window), "Batch": strconv.Itoa(int(s.Batch)),
	}
}

// seconds writes a duration in whole seconds, as Prometheus reads it.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }

// preset says where the counters of requests are. README.md shows the queries.
type preset struct {
	// total and bad are counters of all and of bad requests; badOnly is the matcher that
	// picks the bad ones.
	total, bad, badOnly string
	// exemplars is the matcher of the metric that has trace ids, if one has.
	exemplars string
	// workload returns matchers of the series of a Deployment's requests, in one or more
	// sets, no series in two of them.
	workload func(namespace, name string) ([]string, error)
}

var presets = map[v1alpha1.Preset]preset{
	v1alpha1.PresetHTTPServer: {
		total: "http_server_request_duration_seconds_count", bad: "http_server_request_duration_seconds_count",
		badOnly: `http_response_status_code=~"5.."`,
		// Exemplars of a classic histogram are on its buckets, of a native one on itself.
		exemplars: `__name__=~"http_server_request_duration_seconds(_bucket)?"`,
		workload: func(namespace, name string) ([]string, error) {
			pods, err := podPattern(name)
			return []string{match("namespace", "=", namespace) + "," + match("pod", "=~", pods)}, err
		},
	},
	v1alpha1.PresetIstio: {
		total: "istio_requests_total", bad: "istio_requests_total",
		badOnly: `response_code=~"5.."`,
		workload: func(namespace, name string) ([]string, error) {
			return []string{`reporter="destination",` + match("destination_workload_namespace", "=", namespace) + "," + match("destination_workload", "=", name)}, nil
		},
	},
	v1alpha1.PresetEnvoy: {
		total: "envoy_cluster_upstream_rq_completed", bad: "envoy_cluster_upstream_rq_xx",
		badOnly: `envoy_response_code_class="5"`,
		workload: func(namespace, name string) ([]string, error) {
			ns, quoted := regexp.QuoteMeta(namespace), regexp.QuoteMeta(name)
			return []string{
				match("envoy_cluster_name", "=~", quoted+`\.`+ns+`(\..*)?|`+ns+"/"+quoted+"(/.*)?"),
				// A bare name may be that of another namespace's Deployment as well, unless
				// the proxy is in this one or its namespace is not known.
				match("envoy_cluster_name", "=", name) + "," + match("namespace", "=~", ns+"|"),
			}, nil
		},
	},
}

func (p preset) counter(namespace, name string, window time.Duration) (counter, error) {
	matchers, err := p.workload(namespace, name)
	return counter{preset: p, workload: matchers, window: window}, err
}

// counter is one version's requests.
type counter struct {
	preset
	workload []string
	window   time.Duration
}

// totalQuery counts all requests. Without any sample it is empty, not 0.
func (c counter) totalQuery() string { return c.sum(c.total, c.workload) }

// badQuery counts bad requests. Their series may not exist before the first, which makes 0
// where there are requests at all, and nothing where there are none.
func (c counter) badQuery() string {
	bad := make([]string, 0, len(c.workload))
	for _, w := range c.workload {
		bad = append(bad, w+","+c.badOnly)
	}
	return "(" + c.sum(c.bad, bad) + " or 0 * " + c.totalQuery() + ")"
}

func (c counter) exemplarQuery() string {
	if c.exemplars == "" {
		return ""
	}
	return "{" + c.exemplars + "," + c.workload[0] + "," + c.badOnly + "}"
}

// seenBefore is how long before the window a series may have been scraped last to be one
// that existed before: longer than a gap in scraping should be.
const seenBefore = "15m"

// sum adds up what counters counted since their target was first scraped in the window.
//
// increase() alone would be wrong twice. It extrapolates to the ends of the window, which
// invents requests: twice as many as were seen when the window has two scrapes. And it
// does not count what a series had at its first scrape, while many first errors of many
// pods are the first of their series. So it is left for counters that were reset. A series
// that began in the window, later than others of its target, began at 0 and counts in
// full. Of all others the difference is taken, which loses what they counted before the
// first scrape, of bad and of good requests alike.
func (c counter) sum(metric string, workload []string) string {
	// Whole seconds would move the start of the window from one evaluation to the next, and
	// counts with it.
	w := "[" + model.Duration(c.window.Truncate(time.Millisecond)).String() + "]"
	var terms []string
	for i, matchers := range workload {
		m, total := metric+"{"+matchers+"}", c.total+"{"+c.workload[i]+"}"
		terms = append(terms,
			"(increase("+m+w+") and resets("+m+w+") > 0)",
			"(max_over_time("+m+w+") unless present_over_time("+m+"["+seenBefore+"] offset "+strings.Trim(w, "[]")+")"+
				" and count_over_time("+m+w+") < on (job, instance) group_left () max by (job, instance) (count_over_time("+total+w+")))",
			"(max_over_time("+m+w+") - min_over_time("+m+w+"))",
		)
	}
	return "sum(\n  " + strings.Join(terms, "\n  or ") + "\n)"
}

// match writes a matcher; value is a regular expression with =~.
func match(label, operator, value string) string { return label + operator + strconv.Quote(value) }

const (
	// hashCharacters is the alphabet of ReplicaSets' and pods' suffixes, rand.SafeEncodeString
	// and rand.String of k8s.io/apimachinery.
	hashCharacters = "[bcdfghjklmnpqrstvwxz2456789]"
	// maxHash is the most that a ReplicaSet's suffix has: the digits of a uint32.
	maxHash = 10
	// podSuffix is what a pod's name has beyond its ReplicaSet's, and maxPodBase how much
	// of that goes before it (k8s.io/apiserver/pkg/storage/names).
	podSuffix  = 5
	maxPodBase = 63 - podSuffix
)

// podPattern is a regular expression for the names of a Deployment's pods: the Deployment's,
// the ReplicaSet's suffix and the pod's own. Long names lose their end.
func podPattern(deployment string) (string, error) {
	if deployment == "" {
		return "", errors.New("the Deployment has no name")
	}
	own := fmt.Sprintf("%s{%d}", hashCharacters, podSuffix)
	base := deployment + "-"
	room := maxPodBase - len(base) // for the ReplicaSet's suffix and the hyphen after it
	switch {
	case room > maxHash:
		return fmt.Sprintf("%s%s{1,%d}-%s", regexp.QuoteMeta(base), hashCharacters, maxHash, own), nil
	case room > 1:
		return fmt.Sprintf("%s(%s{1,%d}-|%s{%d})%s", regexp.QuoteMeta(base), hashCharacters, room-1, hashCharacters, room, own), nil
	case room == 1:
		return fmt.Sprintf("%s%s%s", regexp.QuoteMeta(base), hashCharacters, own), nil
	}
	return regexp.QuoteMeta(base[:maxPodBase]) + own, nil
}
