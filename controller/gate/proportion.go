package gate

import (
	"math"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// Proportion is the sequential test of one proportion check. It is a value, safe for
// concurrent use. All shares are from 0 to 1.
type Proportion struct {
	max, harm float64
	// Logarithms of the evidence that it takes to promote and to blame.
	promote, blame float64
	// Priors on the share of the new version if it is healthy and if it is not, and of the
	// old one; see NewProportion.
	healthy, harmful, usual beta
}

// NewProportion returns the test with the bound limit on the new version's share of bad
// requests and the bound harm on its difference from the old version's. With probability at
// most falsePromotion it ever passes a version that breaks either bound; with probability
// at most falseRollback it ever fails one that is within limit and no worse than the old.
//
// The priors are scaled by the bounds, which are known before the first request. A prior
// free of scale, such as Jeffreys' Beta(1/2, 1/2), pays about log(n)/2 for shares of 0.01 %
// and takes a third to two thirds more requests to pass a good version.
func NewProportion(limit, harm, falsePromotion, falseRollback float64) Proportion {
	return Proportion{
		max: limit, harm: harm,
		promote: -math.Log(falsePromotion),
		// Two rules can blame, by max and by the old version; each has half.
		blame:   -math.Log(falseRollback / 2),
		healthy: betaOf(0.5, limit/4),
		harmful: betaOf(1, 2*limit),
		usual:   betaOf(0.5, limit/4),
	}
}

// Old says how the old version's counts came to be.
type Old int

const (
	// NoOld: there are none, and only max is judged.
	NoOld Old = iota
	// Concurrent: they are of the same time as the new version's.
	Concurrent
	// Earlier: they are of an earlier batch. What has changed since then, but by less than
	// harm, is no evidence against the new version.
	Earlier
)

// Finding is what the counts show. The first two together are evidence of health, one of
// the next two is evidence of harm.
type Finding struct {
	// BelowMax and WithinHarm: the bounds are kept.
	BelowMax, WithinHarm bool
	// OverMax and Worse: the share is over max, and worse than the old version's.
	OverMax, Worse bool
	// Shared: it is over max, but so is the old version at the same time, for a reason that
	// a rollback would not mend. It is neither health nor harm.
	Shared bool
}

// Verdict is Pass, Fail, or NoData as long as the evidence is not enough. A version within
// both bounds passes although it may be worse than the old one by less than harm.
func (f Finding) Verdict() v1alpha1.Verdict {
	switch {
	case f.BelowMax && f.WithinHarm:
		return v1alpha1.VerdictPass
	case f.OverMax || f.Worse:
		return v1alpha1.VerdictFail
	}
	return v1alpha1.VerdictNoData
}

// Judge looks at the counts since the window started. It may be asked at any number of
// moments. Without requests of the new version it finds nothing.
func (t Proportion) Judge(newer, older v1alpha1.RequestCounts, kind Old) Finding {
	var f Finding
	x1, n1 := float64(newer.Bad), float64(newer.Total)
	if n1 == 0 {
		return f
	}
	share := x1 / n1
	if share < t.max {
		f.BelowMax = t.healthy.marginal(x1, n1)-likelihood(x1, n1, t.max) >= t.promote
	} else if share > t.max {
		f.OverMax = t.harmful.marginal(x1, n1)-likelihood(x1, n1, t.max) >= t.blame
	}
	x0, n0 := float64(older.Bad), float64(older.Total)
	if kind == NoOld {
		f.WithinHarm = true
		return f
	}
	if n0 == 0 {
		return f
	}
	usual := x0 / n0
	if share < usual+t.harm {
		// Half of the prior says that both versions have the same share, of which there is
		// then but one to learn.
		numerator := mixture(
			t.usual.marginal(x1+x0, n1+n0),
			t.healthy.marginal(x1, n1)+t.usual.marginal(x0, n0))
		f.WithinHarm = numerator-likeliestApart(x1, n1, x0, n0, t.harm) >= t.promote
	}
	margin := 0.0
	if kind == Earlier {
		margin = t.harm
	}
	// What is proven to be worse by less than harm is accepted, if only max is kept too.
	if share > usual+margin && !f.WithinHarm {
		numerator := t.harmful.marginal(x1, n1) + t.usual.marginal(x0, n0)
		f.Worse = numerator-likeliestApart(x1, n1, x0, n0, margin) >= t.blame
	}
	// A single bad request among few may be chance; two are not taken for it.
	if f.OverMax && kind == Concurrent && usual > t.max && x0 >= 2 {
		f.OverMax, f.Shared = false, true
	}
	return f
}
