package main

import (
	"fmt"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/gate"
)

type ending int

const (
	promoted ending = iota
	rolledBack
	held
)

// result is how a rule ended a rollout.
type result struct {
	ending ending
	// first and all are the steps of the first batch, and of both.
	first, all int
}

// rule judges a rollout of two batches.
type rule interface {
	name() string
	run(t *traffic, spread int) result
}

// ours is the gate's proportion check with its defaults: interval 30 s, holdDeadline 30 min,
// falsePromotion and falseRollback 1%.
type ours struct {
	test gate.Proportion
}

const (
	ourInterval = 30 / stepSeconds
	batches     = 2
	level       = 0.01
)

func newOurs(c cell) ours {
	return ours{gate.NewProportion(c.max(), c.harm(), level, level/batches)}
}

func (ours) name() string { return "canary-controller" }

func (o ours) run(t *traffic, spread int) result {
	var baseline v1alpha1.RequestCounts
	end, verdict := o.batch(t, 0, spread, func(to int) (v1alpha1.RequestCounts, v1alpha1.RequestCounts, gate.Old) {
		baseline = countsOf(t.old, 0, to)
		return countsOf(t.first, 0, to), baseline, gate.Concurrent
	})
	if verdict != promoted {
		return result{verdict, end, end}
	}
	first := end
	end, verdict = o.batch(t, first, spread, func(to int) (v1alpha1.RequestCounts, v1alpha1.RequestCounts, gate.Old) {
		return countsOf(t.last, first, to), baseline, gate.Earlier
	})
	return result{verdict, first, end}
}

func countsOf(s series, from, to int) v1alpha1.RequestCounts {
	bad, total := s.between(from, to)
	return v1alpha1.RequestCounts{Bad: bad, Total: total}
}

// batch evaluates at each interval until there is a verdict or the deadline has passed.
func (o ours) batch(t *traffic, start, spread int, seen func(to int) (newer, older v1alpha1.RequestCounts, kind gate.Old)) (int, ending) {
	for at := start + ourInterval + spread; at <= start+deadline; at += ourInterval {
		t.upTo(at)
		switch o.test.Judge(seen(at)).Verdict() {
		case v1alpha1.VerdictPass:
			return at, promoted
		case v1alpha1.VerdictFail:
			return at, rolledBack
		}
	}
	return start + deadline, held
}

// peer is a rule that judges the share of bad requests in the window since the last look,
// each time by itself, against a fixed limit.
type peer struct {
	label string
	// every is the steps between two looks; limit is the accepted share.
	every int
	limit limit
	// decide maps the looks of both batches, of which failed says the outcome, to an ending
	// and the number of looks in the first batch and in both.
	decide func(failed func(batch, look int) bool) (ending, int, int)
}

// limit is what a person would configure.
type limit string

const (
	// atMax is the same max that our check has.
	atMax limit = "max"
	// tuned is halfway between the true share of the old version and harm above it, which
	// takes someone who knows that share beforehand.
	tuned limit = "tuned"
)

func (l limit) of(c cell) float64 {
	if l == tuned {
		return c.base + c.harm()/2
	}
	return c.max()
}

func (p peer) name() string {
	return fmt.Sprintf("%s, limit %s, each %d s", p.label, p.limit, p.every*stepSeconds)
}

func (p peer) run(t *traffic, _ int) result {
	accepted := p.limit.of(t.cell)
	ending, first, all := p.decide(func(batch, look int) bool {
		s := &t.first
		if batch > 0 {
			s = &t.last
		}
		t.upTo((look + 1) * p.every)
		bad, total := s.between(look*p.every, (look+1)*p.every)
		// A window without requests fails in both projects; none is so short here.
		return total == 0 || float64(bad) > accepted*float64(total)
	})
	return result{ending, first * p.every, all * p.every}
}

// flagger: each tick of the interval asks for the last interval. A tick that fails does not
// advance the release and adds to failedChecks, which counts over the whole analysis and is
// never lowered; at threshold the release is rolled back. Iterations ticks that pass advance
// it. (docs.flagger.app, "Deployment Strategies" and "Canary analysis".)
func flagger(every int, l limit, iterations, threshold int) peer {
	return peer{
		label: fmt.Sprintf("Flagger iterations %d, threshold %d", iterations, threshold), every: every, limit: l,
		decide: func(failed func(batch, look int) bool) (ending, int, int) {
			look, failures, first := 0, 0, 0
			for batch := range batches {
				for passes := 0; passes < iterations; look++ {
					if !failed(batch, look) {
						passes++
					} else if failures++; failures >= threshold {
						if batch == 0 {
							first = look + 1
						}
						return rolledBack, first, look + 1
					}
				}
				if batch == 0 {
					first = look
				}
			}
			return promoted, first, look
		},
	}
}

// argo: an AnalysisRun for each batch takes count measurements. More than failureLimit
// failed ones, in any order, abort the rollout; -1 disables that. With
// consecutiveSuccessLimit it succeeds at that many successes in a row, and is inconclusive,
// which pauses, when count comes first; without, it succeeds at count.
// (argo-rollouts.readthedocs.io, "Analysis & Progressive Delivery".)
func argo(every int, l limit, count, failureLimit, consecutiveSuccessLimit int) peer {
	label := fmt.Sprintf("Argo count %d, failureLimit %d", count, failureLimit)
	if consecutiveSuccessLimit > 0 {
		label += fmt.Sprintf(", consecutiveSuccessLimit %d", consecutiveSuccessLimit)
	}
	return peer{
		label: label, every: every, limit: l,
		decide: func(failed func(batch, look int) bool) (ending, int, int) {
			look, first := 0, 0
			for batch := range batches {
				failures, inRow, taken := 0, 0, 0
				for done := false; !done; look++ {
					if taken == count {
						return held, firstOr(batch, first, look), look
					}
					taken++
					if failed(batch, look) {
						failures, inRow = failures+1, 0
						if failureLimit >= 0 && failures > failureLimit {
							return rolledBack, firstOr(batch, first, look+1), look + 1
						}
					} else {
						inRow++
					}
					done = consecutiveSuccessLimit > 0 && inRow >= consecutiveSuccessLimit ||
						consecutiveSuccessLimit == 0 && taken == count
				}
				first = firstOr(batch, first, look)
			}
			return promoted, first, look
		},
	}
}

func firstOr(batch, first, look int) int {
	if batch == 0 {
		return look
	}
	return first
}

// peers are the settings of the projects' own examples (Flagger: threshold 5 or 10, ten
// steps or iterations; Argo Rollouts: failureLimit 3 of count 10 or 20, the default
// failureLimit 0, consecutiveSuccessLimit 4) and others from hasty to patient.
func peers() []rule {
	var all []rule
	for _, every := range []int{30 / stepSeconds, 60 / stepSeconds} {
		for _, l := range []limit{atMax, tuned} {
			for _, iterations := range []int{1, 2, 3, 5, 10, 20} {
				if iterations*every > 600/stepSeconds {
					continue
				}
				for _, threshold := range []int{1, 2, 3, 5, 10} {
					if threshold <= 2*iterations {
						all = append(all, flagger(every, l, iterations, threshold))
					}
				}
			}
			for _, count := range []int{1, 2, 3, 5, 10, 20} {
				if count*every > 1200/stepSeconds {
					continue
				}
				for _, failureLimit := range []int{0, 1, 3} {
					if failureLimit < count {
						all = append(all, argo(every, l, count, failureLimit, 0))
					}
				}
			}
			for _, inRow := range []int{2, 4, 6} {
				for _, failureLimit := range []int{-1, 0, 3} {
					all = append(all, argo(every, l, 20, failureLimit, inRow))
				}
			}
		}
	}
	return all
}
