package gate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// freshFor is for how many intervals the evidence of health stands without new requests.
const freshFor = 3

// harmOf is the difference that must be caught; unless stated it is half of max.
func harmOf(check *v1alpha1.ProportionCheck, limit float64) (float64, bool) {
	if check.Harm == "" {
		return limit / 2, true
	}
	return v1alpha1.Fraction(check.Harm)
}

// proportionOf is the test of a check. FalseRollback is of the whole rollout: the check's
// share of it is what is left when every batch and every proportion check has the same.
func proportionOf(spec *v1alpha1.Gate, check *v1alpha1.ProportionCheck, batches int32) (Proportion, error) {
	share := func(field, text string) (float64, error) {
		f, ok := v1alpha1.Fraction(text)
		if !ok || f <= 0 || f >= 1 {
			return 0, fmt.Errorf("%s is not a percentage above 0%% and below 100%%: %q", field, text)
		}
		return f, nil
	}
	limit, err := share("max", check.Max)
	if err != nil {
		return Proportion{}, err
	}
	harm, ok := harmOf(check, limit)
	if !ok || harm <= 0 || harm >= 1 {
		return Proportion{}, fmt.Errorf("harm is not a percentage above 0%% and below 100%%: %q", check.Harm)
	}
	falsePromotion, err := share("falsePromotion", spec.FalsePromotion)
	if err != nil {
		return Proportion{}, err
	}
	falseRollback, err := share("falseRollback", spec.FalseRollback)
	if err != nil {
		return Proportion{}, err
	}
	checks := 0
	for i := range spec.Checks {
		if spec.Checks[i].Proportion != nil {
			checks++
		}
	}
	spread := float64(max(1, batches)) * float64(max(1, checks))
	return NewProportion(limit, harm, falsePromotion, falseRollback/spread), nil
}

// readProportion judges the counts of one source.
func readProportion(spec *v1alpha1.Gate, check *v1alpha1.ProportionCheck, e Evidence, s Situation, baseline *v1alpha1.RequestCounts) reading {
	test, err := proportionOf(spec, check, s.Batches)
	if err != nil {
		return problem("%v", err)
	}
	newer, none := counts("new", e.NewBad, e.NewTotal)
	if none != nil {
		return none.against(check.Max)
	}
	r := reading{newer: &newer, limit: check.Max}
	kind, older, missing := olderCounts(e, s, baseline)
	if older != nil {
		r.older = older
		if kind == Concurrent {
			r.live = older
		}
	} else {
		older = &v1alpha1.RequestCounts{}
	}
	finding := test.Judge(newer, *older, kind)
	r.verdict = finding.Verdict()
	switch {
	case missing != nil && missing.verdict == v1alpha1.VerdictError && r.verdict != v1alpha1.VerdictFail:
		r.verdict, r.message = missing.verdict, missing.message
	case newer.Total == 0:
		r.message = "no requests since the batch became available"
	case missing != nil && r.verdict != v1alpha1.VerdictFail:
		r.verdict, r.message = missing.verdict, missing.message
	default:
		// What is over max is so whatever the old version does.
		r.message = describe(finding, kind, newer, r.older, check.Max, cmp.Or(check.Harm, percent(test.harm)))
	}
	if newer.Total > 0 {
		r.value = percent(float64(newer.Bad) / float64(newer.Total))
	}
	return r
}

// olderCounts are the counts to compare with; or the reason why there are none although
// there is something to compare with.
func olderCounts(e Evidence, s Situation, baseline *v1alpha1.RequestCounts) (Old, *v1alpha1.RequestCounts, *reading) {
	switch {
	case s.OldReplicas == 0 && baseline != nil && baseline.Total > 0:
		return Earlier, baseline, nil
	case s.OldReplicas == 0 && s.Batch > 1 && e.OldTotal != nil:
		// Under another name the check had no old version to be compared with yet, or that one
		// never had a request.
		r := noData("there are no counts of the old version from an earlier batch to compare with")
		return NoOld, nil, &r
	case s.OldReplicas == 0 || e.OldBad == nil || e.OldTotal == nil:
		// What the old version's last pods still do while they go is no measure.
		return NoOld, nil, nil
	}
	older, none := counts("old", *e.OldBad, *e.OldTotal)
	if none == nil && older.Total == 0 {
		r := noData("the old version has no requests to compare with since the batch became available")
		none = &r
	}
	if none != nil {
		return Concurrent, nil, none
	}
	return Concurrent, &older, nil
}

// describe says in one sentence what the counts show, and which bound is still open. Older
// is nil when there is nothing to compare with.
func describe(f Finding, kind Old, newer v1alpha1.RequestCounts, older *v1alpha1.RequestCounts, limit, harm string) string {
	share := func(c v1alpha1.RequestCounts) string {
		return fmt.Sprintf("%s of %s", percent(float64(c.Bad)/float64(c.Total)), thousands(c.Total))
	}
	seen := share(newer) + " requests are bad"
	if older != nil {
		seen += ", old " + share(*older)
		if kind == Earlier {
			seen += " in an earlier batch"
		}
	}
	below, within := "below max "+limit, "less than "+harm+" worse than old"
	var why []string
	switch f.Verdict() {
	case v1alpha1.VerdictPass:
		why = append(why, below)
		if kind != NoOld {
			why = append(why, within)
		}
		return seen + ": " + strings.Join(why, " and ")
	case v1alpha1.VerdictFail:
		if f.OverMax {
			why = append(why, "over max "+limit)
		}
		if f.Worse && kind == Earlier {
			why = append(why, "more than "+harm+" worse than old")
		} else if f.Worse {
			why = append(why, "worse than old")
		}
		return seen + ": " + strings.Join(why, " and ")
	}
	if f.Shared {
		return seen + ": over max " + limit + ", but so is the old version, which a rollback would not mend"
	}
	if !f.BelowMax {
		why = append(why, below)
	}
	if !f.WithinHarm {
		why = append(why, within)
	}
	return seen + "; more evidence is needed that this is " + strings.Join(why, " and ")
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// keepFresh turns evidence of health into NoData when the new version has had no requests
// for a while: what it once did says nothing about what it would do now. It returns the
// most requests ever seen in the batch, through looks at which there was nothing to see, and
// when that last grew. Of a check that is new in the middle of a batch it is not known when
// its requests came; first says that it is not.
func keepFresh(r *reading, before *v1alpha1.CheckStatus, first bool, interval time.Duration, now time.Time) (peak int64, grew *time.Time) {
	if before != nil {
		peak = before.Peak
		if before.GrewAt != nil {
			// Later than now is by another controller's clock.
			grew = new(earlier(before.GrewAt.Time, now))
		}
	}
	if r.total() > peak {
		peak = r.total()
		if before != nil || first {
			grew = &now
		}
	}
	if r.verdict == v1alpha1.VerdictPass && (grew == nil || now.Sub(*grew) > freshFor*interval) {
		r.verdict = v1alpha1.VerdictNoData
		since := "yet"
		if grew != nil {
			since = "since " + grew.UTC().Format(time.TimeOnly) + " UTC"
		}
		r.message += ", but no new requests " + since
	}
	return peak, grew
}
