package gate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// readThreshold compares one source's value with the limits. A value equal to a limit is
// within it. The verdict is of this value alone; see streak.
func readThreshold(check *v1alpha1.ThresholdCheck, e Evidence) reading {
	var limits []string
	for _, l := range []struct{ name, text string }{{"max", check.Max}, {"min", check.Min}} {
		if l.text != "" {
			limits = append(limits, l.name+" "+l.text)
		}
	}
	r := reading{limit: strings.Join(limits, ", ")}
	if len(limits) == 0 {
		return problem("the check has neither max nor min")
	}
	if check.MinSamples > 0 {
		if e.Samples == nil {
			return problem("samples: the query was not asked").against(r.limit)
		}
		samples, none := e.Samples.count("samples")
		if none != nil {
			return none.against(r.limit)
		}
		r.samples = samples
		if samples < check.MinSamples {
			r.verdict = v1alpha1.VerdictNoData
			r.message = fmt.Sprintf("%s samples are fewer than the %s needed for a verdict", thousands(samples), thousands(check.MinSamples))
			return r
		}
	}
	value, none := e.Value.number("value")
	if none != nil {
		return none.against(r.limit)
	}
	return compare(r, value, decimal(value), check.Max, check.Min)
}

// readOutlier compares one source's share of ejected endpoints, from 0 to 1, with the limit.
func readOutlier(check *v1alpha1.OutlierCheck, e Evidence) reading {
	limit, ok := v1alpha1.Fraction(check.Max)
	if !ok {
		return problem("max is not a percentage: %q", check.Max)
	}
	r := reading{limit: "max " + check.Max}
	value, none := e.Value.number("share of ejected endpoints")
	if none != nil {
		return none.against(r.limit)
	}
	if value < 0 || value > 1 {
		return problem("share of ejected endpoints: %s is not from 0 to 1", decimal(value)).against(r.limit)
	}
	return compare(r, value, percent(value), strconv.FormatFloat(limit, 'f', -1, 64), "")
}

// compare completes r with the verdict on the value, which text shows.
func compare(r reading, value float64, text, upper, lower string) reading {
	r.value = text
	for _, l := range []struct {
		text string
		over func(limit float64) bool
	}{
		{upper, func(limit float64) bool { return value > limit }},
		{lower, func(limit float64) bool { return value < limit }},
	} {
		if l.text == "" {
			continue
		}
		limit, err := strconv.ParseFloat(l.text, 64)
		if err != nil {
			return problem("limit %q is not a number", l.text).against(r.limit)
		}
		if l.over(limit) {
			r.verdict = v1alpha1.VerdictFail
			r.message = text + " is outside of " + r.limit
			return r
		}
	}
	r.verdict, r.message = v1alpha1.VerdictPass, text+" is within "+r.limit
	return r
}

// streak turns the verdict on the latest value into one on the values in a row, and counts
// them on in the status of before. Values count in a row when nothing but evaluations
// without a value lies between them: lack of evidence neither absolves a version of the
// failures seen before, nor takes its passes away. A value that breaks a row ends it.
func streak(r *reading, before *v1alpha1.CheckStatus, needPasses, needFailures int32) (passes, failures int32) {
	if before != nil {
		passes, failures = before.Passes, before.Failures
	}
	switch r.verdict {
	case v1alpha1.VerdictPass:
		passes, failures = passes+1, 0
		if passes < needPasses {
			r.verdict = v1alpha1.VerdictNoData
			r.message += fmt.Sprintf(", %d of %d times in a row", passes, needPasses)
		}
	case v1alpha1.VerdictFail:
		passes, failures = 0, failures+1
		if failures < needFailures {
			r.verdict = v1alpha1.VerdictNoData
			r.message += fmt.Sprintf(", %d of %d times in a row", failures, needFailures)
		} else {
			r.message += fmt.Sprintf(", %d times in a row", failures)
		}
	}
	return passes, failures
}
