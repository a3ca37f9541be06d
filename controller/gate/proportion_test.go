package gate

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func of(bad, total int64) v1alpha1.RequestCounts {
	return v1alpha1.RequestCounts{Bad: bad, Total: total}
}

// The test of the table: max 2%, harm 1%, both levels 1%. It takes a logarithm of the
// evidence of log(100) = 4.605 to promote and of log(200) = 5.298 to blame. The priors on
// healthy and usual shares are Beta(0.5, 99.5), for which n requests without a bad one have
// the marginal s(n) = sqrt(99.25 / (99.25+n)) to six digits; on harmful ones it is Beta(1, 24).
func TestJudge(t *testing.T) {
	test := NewProportion(0.02, 0.01, 0.01, 0.01)
	tests := []struct {
		name         string
		newer, older v1alpha1.RequestCounts
		kind         Old
		want         Finding
	}{
		{"nothing at all", of(0, 0), of(0, 0), NoOld, Finding{}},
		{"no requests of the new version", of(0, 0), of(10, 1e6), Concurrent, Finding{}},
		// log(s(259)) - 259 log(0.98) = -0.6418 + 5.2325 = 4.591, and with one more 4.609.
		{"259 without a bad one", of(0, 259), of(0, 0), NoOld, Finding{WithinHarm: true}},
		{"260 without a bad one", of(0, 260), of(0, 0), NoOld, Finding{BelowMax: true, WithinHarm: true}},
		// 24 n! 23! / (n+24)! / 0.02^n is 42.7 for 3 and 305 for 4.
		{"3 of 3 bad", of(3, 3), of(0, 0), NoOld, Finding{WithinHarm: true}},
		{"4 of 4 bad", of(4, 4), of(0, 0), NoOld, Finding{WithinHarm: true, OverMax: true}},
		{"4 of 4 bad, old without requests", of(4, 4), of(0, 0), Concurrent, Finding{OverMax: true}},
		// log((s(4n) + s(n) s(3n)) / 2) - n log(0.99) is 4.601 for n = 657 and 4.610 for 658.
		{"657 beside 1,971 without a bad one", of(0, 657), of(0, 1971), Concurrent, Finding{BelowMax: true}},
		{"658 beside 1,974 without a bad one", of(0, 658), of(0, 1974), Concurrent, Finding{BelowMax: true, WithinHarm: true}},
		{"the same after an earlier batch", of(0, 658), of(0, 1974), Earlier, Finding{BelowMax: true, WithinHarm: true}},
		{"worse by 0.5%, half of harm, on many", of(10_000, 1e6), of(15_000, 3e6), Concurrent, Finding{BelowMax: true, WithinHarm: true}},
		{"worse by less than harm, below max not proven", of(199_900, 1e7), of(330_000, 3e7), Concurrent, Finding{WithinHarm: true}},
		{"worse by 1.2%, below max", of(14_000, 1e6), of(6_000, 3e6), Concurrent, Finding{BelowMax: true, Worse: true}},
		{"the same after an earlier batch", of(14_000, 1e6), of(6_000, 3e6), Earlier, Finding{BelowMax: true, Worse: true}},
		{"worse by about harm after an earlier batch", of(12_010, 1e6), of(6_000, 3e6), Earlier, Finding{BelowMax: true}},
		{"over max and worse", of(300, 5_000), of(15, 15_000), Concurrent, Finding{OverMax: true, Worse: true}},
		{"both over max", of(300, 5_000), of(900, 15_000), Concurrent, Finding{Shared: true}},
		{"both over max, new much more", of(900, 5_000), of(450, 15_000), Concurrent, Finding{Shared: true, Worse: true}},
		{"over max, old once bad among few", of(300, 5_000), of(1, 3), Concurrent, Finding{OverMax: true}},
		{"exactly at max", of(200, 10_000), of(100, 30_000), Concurrent, Finding{Worse: true}},
		{"all bad", of(1e9, 1e9), of(0, 1e9), Concurrent, Finding{OverMax: true, Worse: true}},
		{"all bad, old too", of(1e9, 1e9), of(1e9, 1e9), Concurrent, Finding{WithinHarm: true, Shared: true}},
	}
	for _, row := range tests {
		if got := test.Judge(row.newer, row.older, row.kind); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
}

func TestFindingVerdict(t *testing.T) {
	for _, test := range []struct {
		finding Finding
		want    v1alpha1.Verdict
	}{
		{Finding{}, v1alpha1.VerdictNoData},
		{Finding{BelowMax: true}, v1alpha1.VerdictNoData},
		{Finding{WithinHarm: true}, v1alpha1.VerdictNoData},
		{Finding{BelowMax: true, WithinHarm: true}, v1alpha1.VerdictPass},
		{Finding{BelowMax: true, Worse: true}, v1alpha1.VerdictFail},
		{Finding{WithinHarm: true, OverMax: true}, v1alpha1.VerdictFail},
		{Finding{Shared: true}, v1alpha1.VerdictNoData},
		{Finding{Shared: true, Worse: true}, v1alpha1.VerdictFail},
	} {
		if got := test.finding.Verdict(); got != test.want {
			t.Errorf("%+v is %s, want %s", test.finding, got, test.want)
		}
	}
}

type judged struct {
	test         Proportion
	newer, older v1alpha1.RequestCounts
	kind         Old
}

func drawJudged(t *rapid.T) judged {
	limit := rapid.Float64Range(0.0005, 0.5).Draw(t, "limit")
	requests := func(name string) v1alpha1.RequestCounts {
		total := int64(rapid.Float64Range(0, 1).Draw(t, name+" size") * rapid.SampledFrom([]float64{50, 2000, 1e5, 1e7}).Draw(t, name+" scale"))
		share := limit * rapid.SampledFrom([]float64{0, 0.1, 0.5, 0.9, 1, 1.2, 2, 10}).Draw(t, name+" share")
		return of(min(total, int64(share*float64(total))+rapid.Int64Range(0, 3).Draw(t, name+" more")), total)
	}
	return judged{
		test:  NewProportion(limit, limit*rapid.Float64Range(0.05, 0.9).Draw(t, "harm"), 0.01, 0.005),
		newer: requests("new"), older: requests("old"),
		kind: rapid.SampledFrom([]Old{NoOld, Concurrent, Earlier}).Draw(t, "kind"),
	}
}

// More bad requests of the new version never make its verdict better, but for what both
// versions share, which is no verdict, and more of the old one never make it worse.
func TestJudgeIsMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJudged(t)
		if j.newer.Total == 0 {
			return
		}
		before := j.test.Judge(j.newer, j.older, j.kind)
		more := j.newer
		more.Bad += rapid.Int64Range(0, more.Total-more.Bad).Draw(t, "added")
		after := j.test.Judge(more, j.older, j.kind)
		if before.Verdict() != v1alpha1.VerdictPass && after.Verdict() == v1alpha1.VerdictPass {
			t.Fatalf("%+v of %v is %s, %+v of %v is Pass", before, j.newer, before.Verdict(), after, more)
		}
		if before.BelowMax && !j.test.Judge(of(0, j.newer.Total), j.older, j.kind).BelowMax {
			t.Fatalf("%v is below max, without a bad one it is not", j.newer)
		}
		if before.OverMax && !after.OverMax && !after.Shared {
			t.Fatalf("%v is over max, %v is not", j.newer, more)
		}
		if before.Worse && !after.Worse {
			t.Fatalf("%v is worse than %v, %v is not", j.newer, j.older, more)
		}
		if j.older.Total > 0 {
			older := j.older
			older.Bad += rapid.Int64Range(0, older.Total-older.Bad).Draw(t, "added to old")
			if f := j.test.Judge(j.newer, older, j.kind); before.Verdict() == v1alpha1.VerdictPass && f.Verdict() == v1alpha1.VerdictFail {
				t.Fatalf("%v passes beside %v and fails beside %v", j.newer, j.older, older)
			}
		}
	})
}

// No verdict of health without requests, nor against the estimates themselves.
func TestJudgeNeedsEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJudged(t)
		f := j.test.Judge(j.newer, j.older, j.kind)
		if j.newer.Total == 0 && f != (Finding{}) {
			t.Fatalf("without requests it finds %+v", f)
		}
		share := float64(j.newer.Bad) / float64(max(1, j.newer.Total))
		if f.BelowMax && share >= j.test.max || f.OverMax && share <= j.test.max {
			t.Fatalf("%v with max %v: %+v", j.newer, j.test.max, f)
		}
		if j.kind != NoOld && f.WithinHarm && (j.older.Total == 0 || share >= float64(j.older.Bad)/float64(j.older.Total)+j.test.harm) {
			t.Fatalf("%v beside %v with harm %v: %+v", j.newer, j.older, j.test.harm, f)
		}
		if f.BelowMax && (f.OverMax || f.Shared) || f.WithinHarm && f.Worse {
			t.Fatalf("contradictory: %+v", f)
		}
	})
}
