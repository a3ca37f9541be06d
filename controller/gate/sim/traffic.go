package main

import (
	"math"
	"math/rand/v2"
)

// The time of the simulation goes in steps of ten seconds, within which the share of bad
// requests does not change.
const (
	stepSeconds = 10
	// horizon is as long as any rule takes: two batches to the hold deadline.
	horizon = 2 * deadline
	// deadline is the gate's default holdDeadline of 30 min, of each batch.
	deadline = 1800 / stepSeconds
	// Replicas, and with them requests, of the new and of the old version in the two
	// batches of a rollout of four replicas: 1 and 3, then 4 and none.
	newFirst, oldFirst, newLast = 1, 3, 4
)

// pattern is how the share of bad requests changes with time, in the same way for both
// versions: its base is multiplied by a factor.
type pattern string

const (
	steady pattern = "steady"
	// bursts: 30 s of 2.5 times the base, at random, one in five minutes.
	bursts pattern = "bursts"
	// drift: from half to one and a half of the base and back in an hour.
	drift pattern = "drift"
	// outage: 60 s of twice max, at random, one in ten minutes.
	outage pattern = "outage"
)

const (
	burstFactor  = 2.5
	burstSteps   = 3
	burstsApart  = 300 / stepSeconds
	driftPart    = 0.5
	driftSeconds = 3600
	outageFactor = 2
	outageSteps  = 60 / stepSeconds
	outagesApart = 600 / stepSeconds
)

// factors draws the factors of all steps.
func (c cell) factors(r *rand.Rand, into []float64) {
	at := func(factor float64, steps int, apart float64) {
		left := 0
		for i := range into {
			if left == 0 && r.Float64() < 1/apart {
				left = steps
			}
			into[i] = 1
			if left > 0 {
				into[i], left = factor, left-1
			}
		}
	}
	switch c.pattern {
	case bursts:
		at(burstFactor, burstSteps, burstsApart)
	case outage:
		at(outageFactor*c.max()/c.base, outageSteps, outagesApart)
	case drift:
		phase := r.Float64()
		for i := range into {
			into[i] = 1 + driftPart*math.Sin(2*math.Pi*(float64(i*stepSeconds)/driftSeconds+phase))
		}
	default:
		for i := range into {
			into[i] = 1
		}
	}
}

// scenario is how the new version behaves.
type scenario string

const (
	equal    scenario = "equal"
	byHarm   scenario = "worse by harm"
	overMax  scenario = "at max"
	fivefold scenario = "five times max"
)

var scenarios = []scenario{equal, byHarm, overMax, fivefold}

// share is the new version's share of bad requests while the old one's is usual.
func (s scenario) share(c cell, usual float64) float64 {
	switch s {
	case byHarm:
		return min(1, usual+c.harm())
	case overMax:
		return c.max()
	case fivefold:
		return min(1, 5*c.max())
	}
	return usual
}

// series are cumulative counts at the start of each step.
type series struct {
	total, bad []int64
}

func newSeries() series {
	return series{make([]int64, horizon+1), make([]int64, horizon+1)}
}

// between are the counts from one step to a later one.
func (s series) between(from, to int) (bad, total int64) {
	return s.bad[to] - s.bad[from], s.total[to] - s.total[from]
}

// traffic is what every rule sees of one rollout: the counts of the new and the old version
// as they would be in the first and in the last batch, at all times. It is drawn as far as
// it is looked at.
type traffic struct {
	cell     cell
	scenario scenario
	random   *rand.Rand
	factor   []float64
	drawn    int
	// first and last are the new version's in either batch, old is the old version's in the first.
	first, last, old series
}

func newTraffic(c cell, s scenario, r *rand.Rand) *traffic {
	return &traffic{cell: c, scenario: s, random: r, factor: make([]float64, horizon), first: newSeries(), last: newSeries(), old: newSeries()}
}

// restart draws another rollout.
func (t *traffic) restart() {
	t.drawn = 0
	t.cell.factors(t.random, t.factor)
}

// upTo draws the steps before end.
func (t *traffic) upTo(end int) {
	for ; t.drawn < end; t.drawn++ {
		usual := t.cell.base * t.factor[t.drawn]
		share := t.scenario.share(t.cell, usual)
		t.add(&t.first, newFirst, share)
		t.add(&t.old, oldFirst, usual)
		t.add(&t.last, newLast, share)
	}
}

// add draws one step. How many requests there are is a normal approximation of a Poisson
// distribution, which no result hangs on; how many of them are bad is exact.
func (t *traffic) add(s *series, replicas, share float64) {
	mean := t.cell.rate * replicas * stepSeconds
	n := max(0, int(math.Round(mean+math.Sqrt(mean)*t.random.NormFloat64())))
	s.total[t.drawn+1] = s.total[t.drawn] + int64(n)
	s.bad[t.drawn+1] = s.bad[t.drawn] + int64(binomial(t.random, n, share))
}
