package gate

import (
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
		return *none
	}
	r := reading{newer: &newer, limit: check.Max}
	var older v1alpha1.RequestCounts
	kind := NoOld
	var missing *reading
	switch {
	case e.OldBad == nil || e.OldTotal == nil:
	case s.OldReplicas > 0:
		kind = Concurrent
		older, missing = counts("old", *e.OldBad, *e.OldTotal)
		switch {
		case missing != nil:
			older = v1alpha1.RequestCounts{}
		case older.Total == 0:
			none := noData("the old version has no requests to compare with since the batch became available")
			missing = &none
		default:
			r.live = &older
		}
	case baseline != nil && baseline.Total > 0:
		kind, older = Earlier, *baseline
	}
	if kind != NoOld && missing == nil {
		r.older = &older
	}
	if newer.Total == 0 {
		r.verdict, r.message = v1alpha1.VerdictNoData, "no requests since the batch became available"
		return r
	}
	finding := test.Judge(newer, older, kind)
	r.value = percent(float64(newer.Bad) / float64(newer.Total))
	r.verdict = finding.Verdict()
	if missing != nil && r.verdict != v1alpha1.VerdictFail {
		// What is over max is so whatever the old version does.
		r.verdict, r.message = missing.verdict, missing.message
		return r
	}
	r.message = describe(check, test, finding, newer, older, kind, missing != nil)
	return r
}

// describe says in one sentence what the counts show, and which bound is still open.
func describe(check *v1alpha1.ProportionCheck, t Proportion, f Finding, newer, older v1alpha1.RequestCounts, kind Old, missing bool) string {
	share := func(c v1alpha1.RequestCounts) string {
		return fmt.Sprintf("%s of %s", percent(float64(c.Bad)/float64(c.Total)), thousands(c.Total))
	}
	seen := share(newer) + " requests are bad"
	old := "the old version"
	if kind != NoOld && !missing {
		seen += ", old " + share(older)
		if kind == Earlier {
			seen += " in the batch before"
			old = "the old version was"
		}
	}
	harm := check.Harm
	if harm == "" {
		harm = percent(t.harm)
	}
	below, within := "below max "+check.Max, "less than "+harm+" worse than "+old
	switch f.Verdict() {
	case v1alpha1.VerdictPass:
		if kind == NoOld {
			return seen + ": " + below
		}
		return seen + ": " + below + " and " + within
	case v1alpha1.VerdictFail:
		var why []string
		if f.OverMax {
			why = append(why, "over max "+check.Max)
		}
		if f.Worse && kind == Earlier {
			why = append(why, "more than "+harm+" worse than "+old)
		} else if f.Worse {
			why = append(why, "worse than "+old)
		}
		return seen + ": " + strings.Join(why, " and ")
	}
	if f.Shared {
		return seen + ": over max " + check.Max + ", but so is the old version, which a rollback would not mend"
	}
	var open []string
	if !f.BelowMax {
		open = append(open, below)
	}
	if !f.WithinHarm {
		open = append(open, within)
	}
	return seen + "; more evidence is needed that this is " + strings.Join(open, " and ")
}

// keepFresh turns evidence of health into NoData when the new version has had no requests
// for a while: what it once did says nothing about what it would do now. It returns when
// the requests were last seen to grow.
func keepFresh(r *reading, before *v1alpha1.CheckStatus, interval time.Duration, now time.Time) *time.Time {
	var had int64
	var grew *time.Time
	if before != nil {
		if before.New != nil {
			had = before.New.Total
		}
		if before.GrewAt != nil {
			grew = &before.GrewAt.Time
		}
	}
	if r.total() > had {
		grew = &now
	}
	if r.verdict == v1alpha1.VerdictPass && (grew == nil || now.Sub(*grew) > freshFor*interval) {
		r.verdict = v1alpha1.VerdictNoData
		since := "yet"
		if grew != nil {
			since = "since " + grew.UTC().Format(time.TimeOnly) + " UTC"
		}
		r.message += ", but no new requests " + since
	}
	return grew
}
