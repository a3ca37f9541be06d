package prometheus

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

const (
	// shownSeries is how many of several series a problem names.
	shownSeries = 3
	// maxProblem bounds what a server's words take in a status, in bytes.
	maxProblem = 256
)

func noData(format string, args ...any) gate.Sample {
	return gate.Sample{Verdict: v1alpha1.VerdictNoData, Problem: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) gate.Sample {
	return gate.Sample{Verdict: v1alpha1.VerdictError, Problem: fmt.Sprintf(format, args...)}
}

// number reads the result of an instant query: one finite number, or why it is none.
func number(value model.Value) gate.Sample {
	switch v := value.(type) {
	case *model.Scalar:
		return finite(float64(v.Value))
	case model.Vector:
		switch {
		case len(v) == 0:
			return noData("the query returns no series")
		case len(v) > 1:
			return failed("the query returns %d series, it must return one: %s", len(v), names(v))
		case v[0].Histogram != nil:
			return failed("the query returns a native histogram, it must return a number")
		}
		return finite(float64(v[0].Value))
	case model.Matrix:
		return failed("the query returns a range, it must return one number")
	case *model.String:
		return failed("the query returns a string, it must return a number")
	}
	return failed("the query returns a %T, it must return a number", value)
}

func finite(f float64) gate.Sample {
	switch {
	case math.IsNaN(f):
		return noData("the query returns NaN")
	case math.IsInf(f, 1):
		return failed("the query returns +Inf")
	case math.IsInf(f, -1):
		return failed("the query returns -Inf")
	}
	return gate.Sample{Value: f}
}

// count is a number that cannot be negative.
func count(s gate.Sample) gate.Sample {
	if s.Verdict == "" && s.Value < 0 {
		return failed("the query returns %s, a count cannot be negative", strconv.FormatFloat(s.Value, 'g', -1, 64))
	}
	return s
}

// names lists the first few label sets. The server's order is not always the same.
func names(v model.Vector) string {
	all := make([]string, 0, len(v))
	for _, s := range v {
		all = append(all, s.Metric.String())
	}
	slices.Sort(all)
	shown := make([]string, 0, shownSeries)
	for _, name := range all[:min(len(all), shownSeries)] {
		shown = append(shown, clip(name))
	}
	text := strings.Join(shown, ", ")
	if more := len(all) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// clip shortens a server's words and keeps them on one line.
func clip(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= maxProblem {
		return text
	}
	cut := maxProblem
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + "…"
}
