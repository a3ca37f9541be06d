package view

import (
	"math"
	"strconv"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// cell is where a number of replicas ends in a bar of the given width.
func cell(replicas, total int32, width int) int {
	if total <= 0 {
		return 0
	}
	return int(math.Round(float64(min(max(0, replicas), total)) * float64(width) / float64(total)))
}

// bar draws how many replicas of total there are, and how many more are asked for.
func (p *page) bar(available, asked, total int32, width int) []span {
	full := cell(available, total, width)
	part := max(0, cell(asked, total, width)-full)
	return []span{
		{green, strings.Repeat(p.full, full)},
		{yellow, strings.Repeat(p.part, part)},
		{dim, strings.Repeat(p.empty, width-full-part)},
	}
}

// batchBar draws the batches side by side, each as wide as the replicas it adds: done,
// under way, to come. Boundaries are drawn while there is room between them.
func (p *page) batchBar(c *v1alpha1.Canary, targets []int32, width int) []span {
	s := &c.Status
	marks := len(targets) > 1 && width/len(targets) >= 4
	var spans []span
	var before int32
	for n, target := range targets {
		from, to := cell(before, s.TotalReplicas, width), cell(target, s.TotalReplicas, width)
		to = max(from, to)
		last := to == width
		size := to - from
		if marks && !last && size > 0 {
			size--
		}
		switch {
		case n < len(s.Batches) && s.Batches[n].FinishedAt != nil:
			spans = append(spans, span{green, strings.Repeat(p.full, size)})
		case n < len(s.Batches):
			done := 0
			if s.New != nil && target > before {
				done = cell(max(0, s.New.AvailableReplicas-before), target-before, size)
			}
			spans = append(spans, span{cyan, strings.Repeat(p.full, done)}, span{yellow, strings.Repeat(p.part, size-done)})
		default:
			spans = append(spans, span{dim, strings.Repeat(p.empty, size)})
		}
		if marks && !last && to > from {
			spans = append(spans, span{plain, p.mark})
		}
		before = max(before, target)
	}
	// Batches to come that are not known, while the spec cannot be read.
	return append(spans, span{dim, strings.Repeat(p.empty, width-cell(before, s.TotalReplicas, width))})
}

// sparkline draws the latest values, oldest first, from nothing to the highest of them;
// where there was no value it leaves a gap.
func (p *page) sparkline(history []string, width int) string {
	history = history[max(0, len(history)-width):]
	values := make([]float64, len(history))
	var low, high float64
	for i, text := range history {
		value, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err != nil || math.IsInf(value, 0) {
			value = math.NaN()
		}
		values[i] = value
		if !math.IsNaN(value) {
			low, high = min(low, value), max(high, value)
		}
	}
	var line strings.Builder
	for _, value := range values {
		switch {
		case math.IsNaN(value):
			line.WriteByte(' ')
		case high == low:
			line.WriteString(p.spark[0])
		default:
			// Halved first, since the distance of two finite numbers may not be finite.
			share := (value/2 - low/2) / (high/2 - low/2)
			line.WriteString(p.spark[int(math.Round(share*float64(len(p.spark)-1)))])
		}
	}
	return line.String()
}
