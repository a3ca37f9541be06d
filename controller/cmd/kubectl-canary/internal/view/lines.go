package view

import (
	"cmp"
	"fmt"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Lines says what changed between two looks at a Canary, for logs: a line for the rollout
// and one for each check whose verdict changed. before is nil at the first look. Lines are
// as long as what they say; they hold no escapes.
func Lines(before, after *v1alpha1.Canary, now time.Time) []string {
	stamp := now.UTC().Format(time.RFC3339) + "  "
	var lines []string
	if line := summary(after); before == nil || summary(before) != line {
		lines = append(lines, stamp+line)
	}
	verdicts := map[string]v1alpha1.Verdict{}
	if before != nil && before.Status.Gate != nil && after.Status.Gate != nil && before.Status.Gate.Batch == after.Status.Gate.Batch {
		for _, check := range before.Status.Gate.Checks {
			verdicts[check.Name] = check.Verdict
		}
	}
	if after.Status.Gate == nil {
		return lines
	}
	for i := range after.Status.Gate.Checks {
		check := &after.Status.Gate.Checks[i]
		if verdicts[check.Name] == check.Verdict {
			continue
		}
		text := fmt.Sprintf("check %s  %s", check.Name, check.Verdict)
		for _, fact := range []string{compared(check), counts("new", check.New), oldCounts(check), check.Message} {
			if fact != "" {
				text += "  " + fact
			}
		}
		lines = append(lines, clean(stamp+text, false))
	}
	return lines
}

func summary(c *v1alpha1.Canary) string {
	s := &c.Status
	text := cmp.Or(string(s.Phase), "no status yet")
	if s.Batch != "" {
		text += "  batch " + s.Batch
	}
	for i, w := range []*v1alpha1.WorkloadStatus{s.New, s.Old} {
		if w != nil {
			text += fmt.Sprintf("  %s %d/%d", []string{"new", "old"}[i], w.AvailableReplicas, w.Replicas)
		}
	}
	if s.Verdict != "" {
		text += "  " + string(s.Verdict)
	}
	if s.Message != "" {
		text += "  " + s.Message
	}
	return clean(text, false)
}
