package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// cell is one kind of service.
type cell struct {
	// rate is the new version's requests per second in the first batch.
	rate float64
	// base is the old version's share of bad requests.
	base    float64
	pattern pattern
}

// max is what such a service would be given as max: three times its usual share, and half a
// percent for services that hardly ever fail. Bursts and drift stay within it.
func (c cell) max() float64 { return 3*c.base + 0.005 }

// harm is the check's default, half of max.
func (c cell) harm() float64 { return c.max() / 2 }

func cells() []cell {
	var all []cell
	for _, p := range []pattern{steady, bursts, drift} {
		for _, base := range []float64{0.0001, 0.001, 0.01, 0.05} {
			for _, rate := range []float64{1, 10, 100, 1000} {
				all = append(all, cell{rate, base, p})
			}
		}
	}
	return all
}

// outages are cells in which the promise of no false rollback does not hold: both versions
// are over max for a while.
func outages() []cell {
	var all []cell
	for _, base := range []float64{0.001, 0.01} {
		for _, rate := range []float64{1, 10, 100, 1000} {
			all = append(all, cell{rate, base, outage})
		}
	}
	return all
}

// tally counts how a rule ended the rollouts of one cell and scenario.
type tally struct {
	runs, promoted, rolledBack, held int
	// pastFirst counts those that the first batch did not end, backFirst those that were
	// rolled back in it.
	pastFirst, backFirst int
	// ends counts rollouts by the steps they took.
	ends []int32
	// failed sums the bad requests that the new version answered.
	failed float64
}

func (t *tally) add(r result, failed int64) {
	t.runs++
	switch r.ending {
	case promoted:
		t.promoted++
	case rolledBack:
		t.rolledBack++
	case held:
		t.held++
	}
	if r.ending == promoted || r.all > r.first {
		t.pastFirst++
	} else if r.ending == rolledBack {
		t.backFirst++
	}
	if t.ends == nil {
		t.ends = make([]int32, horizon+1)
	}
	t.ends[r.all]++
	t.failed += float64(failed)
}

func (t *tally) part(n int) float64 { return float64(n) / float64(t.runs) }

// median is the time in seconds within which half of the rollouts had ended.
func (t *tally) median() int {
	seen := 0
	for step, n := range t.ends {
		if seen += int(n); 2*seen >= t.runs {
			return step * stepSeconds
		}
	}
	return horizon * stepSeconds
}

// outcome is how every rule did in one cell: by scenario, then by rule, ours first.
type outcome struct {
	cell    cell
	tallies map[scenario][]tally
}

// simulate runs all cells and scenarios, each with a random source of its own, so that the
// result does not depend on how many run at a time. It stops early, with what is then
// incomplete, when ctx ends.
func simulate(ctx context.Context, all []cell, seed uint64, rollouts int, progress func(done, of int)) []outcome {
	outcomes := make([]outcome, len(all))
	for i := range outcomes {
		outcomes[i] = outcome{all[i], map[scenario][]tally{}}
	}
	jobs := len(all) * len(scenarios)
	var next, done atomic.Int64
	var lock sync.Mutex
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), jobs) {
		workers.Go(func() {
			for job := int(next.Add(1)) - 1; job < jobs && ctx.Err() == nil; job = int(next.Add(1)) - 1 {
				i, s := job/len(scenarios), scenarios[job%len(scenarios)]
				tallies := simulateOne(ctx, all[i], s, rand.New(rand.NewPCG(seed, uint64(job))), rollouts)
				lock.Lock()
				outcomes[i].tallies[s] = tallies
				progress(int(done.Add(1)), jobs)
				lock.Unlock()
			}
		})
	}
	workers.Wait()
	return outcomes
}

func simulateOne(ctx context.Context, c cell, s scenario, random *rand.Rand, rollouts int) []tally {
	rules := append([]rule{newOurs(c)}, peers()...)
	tallies := make([]tally, len(rules))
	t := newTraffic(c, s, random)
	for range rollouts {
		if ctx.Err() != nil {
			break
		}
		t.restart()
		// The gate's first look is spread over one interval.
		spread := random.IntN(ourInterval)
		for i, rule := range rules {
			r := rule.run(t, spread)
			t.upTo(r.all)
			inFirst, _ := t.first.between(0, r.first)
			inLast, _ := t.last.between(r.first, r.all)
			tallies[i].add(r, inFirst+inLast)
		}
	}
	return tallies
}
