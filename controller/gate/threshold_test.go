package gate

import (
	"math"
	"testing"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func TestReadThreshold(t *testing.T) {
	upTo := v1alpha1.ThresholdCheck{Max: "0.5"}
	between := v1alpha1.ThresholdCheck{Max: "10", Min: "-2.5"}
	sampled := v1alpha1.ThresholdCheck{Max: "0.5", Samples: "q", MinSamples: 500}
	samples := func(v, n float64) Evidence { return Evidence{Value: value(v), Samples: &Sample{Value: n}} }
	tests := []struct {
		name                  string
		check                 v1alpha1.ThresholdCheck
		e                     Evidence
		verdict               v1alpha1.Verdict
		value, limit, message string
	}{
		{"within max", upTo, Evidence{Value: value(0.31)}, v1alpha1.VerdictPass, "0.31", "max 0.5", "0.31 is within max 0.5"},
		{"equal to max", upTo, Evidence{Value: value(0.5)}, v1alpha1.VerdictPass, "0.5", "max 0.5", "0.5 is within max 0.5"},
		{"over max", upTo, Evidence{Value: value(0.50001)}, v1alpha1.VerdictFail, "0.5", "max 0.5", "0.5 is outside of max 0.5"},
		{"within both", between, Evidence{Value: value(0)}, v1alpha1.VerdictPass, "0", "max 10, min -2.5", "0 is within max 10, min -2.5"},
		{"equal to min", between, Evidence{Value: value(-2.5)}, v1alpha1.VerdictPass, "-2.5", "max 10, min -2.5", "-2.5 is within max 10, min -2.5"},
		{"below min", between, Evidence{Value: value(-3)}, v1alpha1.VerdictFail, "-3", "max 10, min -2.5", "-3 is outside of max 10, min -2.5"},
		{"over both", between, Evidence{Value: value(11)}, v1alpha1.VerdictFail, "11", "max 10, min -2.5", "11 is outside of max 10, min -2.5"},
		{"enough samples", sampled, samples(0.1, 500), v1alpha1.VerdictPass, "0.1", "max 0.5", "0.1 is within max 0.5"},
		{"too few samples", sampled, samples(9, 499), v1alpha1.VerdictNoData, "", "max 0.5", "499 samples are fewer than the 500 needed for a verdict"},
		{"no samples", sampled, Evidence{Value: value(9), Samples: &Sample{Verdict: v1alpha1.VerdictNoData, Problem: "no series"}}, v1alpha1.VerdictNoData, "", "max 0.5", "samples: no series"},
		{"samples not asked for", sampled, Evidence{Value: value(9)}, v1alpha1.VerdictError, "", "max 0.5", "samples: the query was not asked"},
		{"negative samples", sampled, samples(0.1, -1), v1alpha1.VerdictError, "", "max 0.5", "samples: -1 is negative"},
		{"no data", upTo, Evidence{Value: none(v1alpha1.VerdictNoData, "NaN")}, v1alpha1.VerdictNoData, "", "max 0.5", "value: NaN"},
		{"an error", upTo, Evidence{Value: none(v1alpha1.VerdictError, "status 503")}, v1alpha1.VerdictError, "", "max 0.5", "value: status 503"},
		{"infinite", upTo, Evidence{Value: value(math.Inf(-1))}, v1alpha1.VerdictError, "", "max 0.5", "value: -Inf is not a finite number"},
		{"no limits", v1alpha1.ThresholdCheck{}, Evidence{Value: value(1)}, v1alpha1.VerdictError, "", "", "the check has neither max nor min"},
		{"a limit that is no number", v1alpha1.ThresholdCheck{Max: "x"}, Evidence{Value: value(1)}, v1alpha1.VerdictError, "", "max x", `limit "x" is not a number`},
	}
	for _, test := range tests {
		r := readThreshold(&test.check, test.e)
		if r.verdict != test.verdict || r.value != test.value || r.limit != test.limit || r.message != test.message {
			t.Errorf("%s:\n got %s %q %q: %s\nwant %s %q %q: %s", test.name, r.verdict, r.value, r.limit, r.message, test.verdict, test.value, test.limit, test.message)
		}
	}
}

func TestReadOutlier(t *testing.T) {
	check := v1alpha1.OutlierCheck{Max: "25%"}
	tests := []struct {
		name    string
		e       Evidence
		verdict v1alpha1.Verdict
		message string
	}{
		{"none", Evidence{Value: value(0)}, v1alpha1.VerdictPass, "0% is within max 25%"},
		{"one of four", Evidence{Value: value(0.25)}, v1alpha1.VerdictPass, "25% is within max 25%"},
		{"one of three", Evidence{Value: value(1.0 / 3)}, v1alpha1.VerdictFail, "33.3% is outside of max 25%"},
		{"nobody looks", Evidence{Value: none(v1alpha1.VerdictNoData, "no proxy is observed")}, v1alpha1.VerdictNoData, "share of ejected endpoints: no proxy is observed"},
		{"not a share", Evidence{Value: value(1.5)}, v1alpha1.VerdictError, "share of ejected endpoints: 1.5 is not from 0 to 1"},
		{"negative", Evidence{Value: value(-0.5)}, v1alpha1.VerdictError, "share of ejected endpoints: -0.5 is not from 0 to 1"},
	}
	for _, test := range tests {
		r := readOutlier(&check, test.e)
		if r.verdict != test.verdict || r.message != test.message || r.limit != "max 25%" {
			t.Errorf("%s: %s %q: %s; want %s: %s", test.name, r.verdict, r.limit, r.message, test.verdict, test.message)
		}
	}
	if r := readOutlier(&v1alpha1.OutlierCheck{Max: "1"}, Evidence{Value: value(0)}); r.verdict != v1alpha1.VerdictError || r.message != `max is not a percentage: "1"` {
		t.Errorf("%s: %s", r.verdict, r.message)
	}
}

// Each letter is an evaluation: p within the limits, f outside, n without data, e an error.
func TestStreak(t *testing.T) {
	verdicts := map[rune]v1alpha1.Verdict{'p': v1alpha1.VerdictPass, 'f': v1alpha1.VerdictFail, 'n': v1alpha1.VerdictNoData, 'e': v1alpha1.VerdictError}
	tests := []struct {
		course           string
		passes, failures int32
		want             v1alpha1.Verdict
		inRow            [2]int32
		message          string
	}{
		{"p", 3, 3, v1alpha1.VerdictNoData, [2]int32{1, 0}, "seen, 1 of 3 times in a row"},
		{"pp", 3, 3, v1alpha1.VerdictNoData, [2]int32{2, 0}, "seen, 2 of 3 times in a row"},
		{"ppp", 3, 3, v1alpha1.VerdictPass, [2]int32{3, 0}, "seen"},
		{"pppp", 3, 3, v1alpha1.VerdictPass, [2]int32{4, 0}, "seen"},
		{"p", 1, 3, v1alpha1.VerdictPass, [2]int32{1, 0}, "seen"},
		{"ff", 3, 3, v1alpha1.VerdictNoData, [2]int32{0, 2}, "seen, 2 of 3 times in a row"},
		{"fff", 3, 3, v1alpha1.VerdictFail, [2]int32{0, 3}, "seen, 3 times in a row"},
		{"ffpf", 3, 3, v1alpha1.VerdictNoData, [2]int32{0, 1}, "seen, 1 of 3 times in a row"},
		{"ppfp", 3, 3, v1alpha1.VerdictNoData, [2]int32{1, 0}, "seen, 1 of 3 times in a row"},
		{"ppfppp", 3, 3, v1alpha1.VerdictPass, [2]int32{3, 0}, "seen"},
		{"pppn", 3, 3, v1alpha1.VerdictNoData, [2]int32{3, 0}, "seen"},
		{"pppe", 3, 3, v1alpha1.VerdictError, [2]int32{3, 0}, "seen"},
		{"ppenp", 3, 3, v1alpha1.VerdictPass, [2]int32{3, 0}, "seen"},
		{"fneff", 3, 3, v1alpha1.VerdictFail, [2]int32{0, 3}, "seen, 3 times in a row"},
		{"nnnn", 1, 1, v1alpha1.VerdictNoData, [2]int32{0, 0}, "seen"},
		{"fff", 3, 4, v1alpha1.VerdictNoData, [2]int32{0, 3}, "seen, 3 of 4 times in a row"},
	}
	for _, test := range tests {
		var before *v1alpha1.CheckStatus
		var r reading
		for _, letter := range test.course {
			r = reading{verdict: verdicts[letter], message: "seen"}
			passes, failures := streak(&r, before, test.passes, test.failures)
			before = &v1alpha1.CheckStatus{Passes: passes, Failures: failures}
		}
		if got := [2]int32{before.Passes, before.Failures}; r.verdict != test.want || got != test.inRow || r.message != test.message {
			t.Errorf("%s with %d and %d: %s %v %q, want %s %v %q", test.course, test.passes, test.failures, r.verdict, got, r.message, test.want, test.inRow, test.message)
		}
	}
}
