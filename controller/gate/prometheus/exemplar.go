package prometheus

import (
	"regexp"
	"slices"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const maxTraceIDs = 3

var traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// traceIDs are the latest trace ids of exemplars, each once.
func traceIDs(series []promv1.ExemplarQueryResult) []string {
	var all []promv1.Exemplar
	for _, s := range series {
		all = append(all, s.Exemplars...)
	}
	slices.SortStableFunc(all, func(a, b promv1.Exemplar) int { return int(b.Timestamp - a.Timestamp) })
	var out []string
	for _, e := range all {
		for _, label := range []model.LabelName{"trace_id", "traceID"} {
			id := string(e.Labels[label])
			if traceID.MatchString(id) && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		if len(out) >= maxTraceIDs {
			break
		}
	}
	return out[:min(len(out), maxTraceIDs)]
}
