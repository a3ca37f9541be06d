package gate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// reading is what one source's evidence about one check amounts to.
type reading struct {
	verdict               v1alpha1.Verdict
	message, value, limit string
	// newer and older are the counts judged; live are the old version's own in this batch.
	newer, older, live *v1alpha1.RequestCounts
	// samples is what a threshold check's value rests on.
	samples int64
}

// rank orders verdicts, the best first; what is none of them is worst of all.
func rank(v v1alpha1.Verdict) int {
	if i := slices.Index(v1alpha1.Verdicts(), v); i >= 0 {
		return i
	}
	return len(v1alpha1.Verdicts())
}

// total is the number of the new version's requests or samples that the reading rests on.
func (r reading) total() int64 {
	if r.newer == nil {
		return r.samples
	}
	return r.newer.Total
}

// worse says that r counts rather than other: its verdict is worse, or rests on fewer
// requests, as that of a Prometheus does that has stopped to scrape.
func (r reading) worse(other reading) bool {
	if a, b := rank(r.verdict), rank(other.verdict); a != b {
		return a > b
	}
	return r.total() < other.total()
}

func noData(format string, args ...any) reading {
	return reading{verdict: v1alpha1.VerdictNoData, message: fmt.Sprintf(format, args...)}
}

func problem(format string, args ...any) reading {
	return reading{verdict: v1alpha1.VerdictError, message: fmt.Sprintf(format, args...)}
}

// against is r with the limit that there was no value to compare with.
func (r reading) against(limit string) reading {
	r.limit = limit
	return r
}

// number is the sample's value, or the reading that says why there is none.
func (s Sample) number(what string) (float64, *reading) {
	switch {
	case s.Verdict == v1alpha1.VerdictNoData || s.Verdict == v1alpha1.VerdictError:
		return 0, &reading{verdict: s.Verdict, message: what + ": " + s.Problem}
	case s.Verdict != "":
		r := problem("%s: a sample cannot have the verdict %s", what, s.Verdict)
		return 0, &r
	case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
		r := problem("%s: %v is not a finite number", what, s.Value)
		return 0, &r
	}
	return s.Value, nil
}

// mostRequests is where a float64 stops to hold every whole number.
const mostRequests = 1 << 53

// count is the sample as a number of requests. Prometheus extrapolates increases to the
// ends of the window, so they are not whole; they are rounded to the nearest.
func (s Sample) count(what string) (int64, *reading) {
	value, none := s.number(what)
	if none != nil {
		return 0, none
	}
	value = math.Round(value)
	if value < 0 {
		r := problem("%s: %s is negative", what, decimal(value))
		return 0, &r
	}
	if value > mostRequests {
		r := problem("%s: %s is too many to count", what, decimal(value))
		return 0, &r
	}
	return int64(value), nil
}

// counts reads the requests of one version.
func counts(version string, bad, total Sample) (v1alpha1.RequestCounts, *reading) {
	t, none := total.count("requests of the " + version + " version")
	if none != nil {
		return v1alpha1.RequestCounts{}, none
	}
	b, none := bad.count("bad requests of the " + version + " version")
	if none != nil {
		return v1alpha1.RequestCounts{}, none
	}
	if b > t {
		r := problem("the %s version has more bad requests (%s) than requests (%s)", version, thousands(b), thousands(t))
		return v1alpha1.RequestCounts{}, &r
	}
	return v1alpha1.RequestCounts{Bad: b, Total: t}, nil
}

// decimal writes a number as a person would, never with an exponent below 10^15.
func decimal(f float64) string {
	if math.Abs(f) >= 1e15 || f != 0 && math.Abs(f) < 1e-6 {
		return strconv.FormatFloat(f, 'g', 4, 64)
	}
	text := strconv.FormatFloat(f, 'f', digits(f, 4), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// percent writes a share with two digits that count, such as 0.12%.
func percent(share float64) string {
	p := share * 100
	if p == math.Trunc(p) {
		return strconv.FormatFloat(p, 'f', 0, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', digits(p, 2), 64) + "%"
}

// digits is how many decimals show n significant digits of f, at least one and at most nine.
func digits(f float64, n int) int {
	if f == 0 {
		return 1
	}
	return min(max(n-1-int(math.Floor(math.Log10(math.Abs(f)))), 1), 9)
}

// thousands writes 24300 as 24,300.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
