package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// header is what the file was made from; the test holds the committed file to it.
func header(seed uint64, rollouts int) string {
	return fmt.Sprintf("Seed %d, %d rollouts per cell and scenario, %d cells, %d scenarios, %d peer settings.",
		seed, rollouts, len(cells()), len(scenarios), len(peers()))
}

func report(w io.Writer, outcomes []outcome, seed uint64, rollouts int) {
	fmt.Fprintf(w, `# How often the gate is wrong, and how long it takes

Written by `+"`go run ./controller/gate/sim -seed %d -rollouts %d -out docs/gate-simulation.md`"+`; do not edit.
%s

`, seed, rollouts, header(seed, rollouts))
	fmt.Fprint(w, setting)
	outcomes, beyond := outcomes[:len(cells())], outcomes[len(cells()):]
	summarize(w, outcomes)
	ourErrors(w, outcomes)
	ourTimes(w, outcomes)
	outageTable(w, beyond)
	peerTable(w, outcomes)
}

const setting = `## What is simulated

A rollout of four replicas in two batches: the new version has one replica and the old one
three, then the new version has all four. The *rate* is the new version's requests per
second in the first batch; the old version has three times, the new version in the last
batch four times as many. The share of bad requests of the old version is the *base*. The
check has max = 3 x base + 0.5% and the default harm = max / 2, interval 30 s, holdDeadline
30 min, falseRollback 1% and falsePromotion 1%, over the whole rollout. In the last batch
there is no old version, and its counts of the first stand in.

Patterns, in both versions alike: *steady*; *bursts*, 30 s of 2.5 x base, on average 5 min
apart; *drift*, from 0.5 to 1.5 x base and back in an hour, from a random phase.

Scenarios of the new version: *equal* to the old; *worse by harm*; *at max*, the least that
is too much; *five times max*. A false rollback is one of an equal version; a false promotion
is one, through both batches, of a version that is worse by harm or at max. A rollout without
a verdict at the holdDeadline of a batch is *held* for a person: neither promoted nor rolled
back. Failed requests are bad requests that the new version answered until the decision, on
average. Times are medians to the end of the rollout, held ones included.

The number of bad requests is drawn exactly, from a binomial distribution for each 10 s.

Peers judge the share of bad requests in each interval by itself, against a fixed limit:
Flagger by its threshold of failed checks, Argo Rollouts by failureLimit, count and
consecutiveSuccessLimit, both written from their documentation. With *limit max* they have
the check's own max. With *limit tuned* they have base + harm / 2, which takes someone who
knows the base beforehand; the gate does not know it. All rules see the same requests.

`

func summarize(w io.Writer, outcomes []outcome) {
	decided, rollback, promotion, past, pairs, better, notWorse := 0, 0.0, 0.0, 0.0, 0, 0, 0
	for _, o := range outcomes {
		if !o.decides() {
			continue
		}
		decided++
		e := o.errorsOf(0)
		rollback, promotion = max(rollback, e.falseRollback), max(promotion, e.falsePromotion)
		for _, s := range []scenario{byHarm, overMax, fivefold} {
			past = max(past, o.tallies[s][0].part(o.tallies[s][0].pastFirst))
		}
	}
	var broken []string
	for _, o := range overLevel(outcomes) {
		e := o.errorsOf(0)
		broken = append(broken, fmt.Sprintf("%s, base %s, %s requests/s: false rollback %s, false promotion %s",
			o.cell.pattern, percent(o.cell.base), number(o.cell.rate), rate(e.falseRollback), rate(e.falsePromotion)))
	}
	var betters []string
	var best comparison
	for _, c := range compare(outcomes) {
		pairs, better, notWorse = pairs+c.inTime, better+c.better, notWorse+c.notWorse
		if c.better > 0 {
			betters = append(betters, fmt.Sprintf("%s: %d cells", c.name, c.better))
		}
		if c.both > best.both {
			best = c
		}
	}
	fmt.Fprintf(w, "## Result\n\n")
	fmt.Fprintf(w, "- The gate decides on good versions in %d of %d cells; in the others there is too little traffic for the holdDeadline, and most rollouts are held.\n", decided, len(outcomes))
	fmt.Fprintf(w, "- Over those, its false rollbacks are at most %s and its false promotions at most %s of rollouts; at most %s of harmful versions get past the first batch.\n", rate(rollback), rate(promotion), rate(past))
	if len(broken) == 0 {
		fmt.Fprintf(w, "- Both are at most 1%% in every cell.\n")
	} else {
		fmt.Fprintf(w, "- **They are above 1%% in**:\n  - %s\n", strings.Join(broken, "\n  - "))
	}
	fmt.Fprintf(w, "- In %d pairs of a cell and a peer setting the peer takes no more time to promote a good version. In %d of them the peer is better on both errors; in %d it is not worse on either and better on one.\n", pairs, better, notWorse)
	if len(betters) > 0 {
		fmt.Fprintf(w, "- **Better on both**:\n  - %s\n", strings.Join(betters, "\n  - "))
	}
	fmt.Fprintf(w, "- The peer setting that keeps both errors within 1%% in most cells, at whatever time, does so in %d of %d: %s. It takes %.1f times as long as the gate, and leaves %s of versions with five times max running.\n\n",
		best.both, decided, best.name, best.slower, rate(best.ignored))
}

func ourErrors(w io.Writer, outcomes []outcome) {
	fmt.Fprint(w, "## The gate's errors\n\nParts of rollouts. *Promoted* is through both batches, *past batch 1* through the first at least, which the level\nof falsePromotion covers too. *Held* is beside the errors, not in them.\n\n"+
		"| pattern | base | max | harm | rate | false rollback | held | by harm: past batch 1 | promoted | held | at max: past batch 1 | promoted | held | five times max: past batch 1 |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, o := range outcomes {
		c := o.cell
		good, harm, limit, worst := &o.tallies[equal][0], &o.tallies[byHarm][0], &o.tallies[overMax][0], &o.tallies[fivefold][0]
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", c.pattern, percent(c.base), percent(c.max()), percent(c.harm()), number(c.rate),
			rate(good.part(good.rolledBack)), rate(good.part(good.held)),
			rate(harm.part(harm.pastFirst)), rate(harm.part(harm.promoted)), rate(harm.part(harm.held)),
			rate(limit.part(limit.pastFirst)), rate(limit.part(limit.promoted)), rate(limit.part(limit.held)), rate(worst.part(worst.pastFirst)))
	}
	fmt.Fprintln(w)
}

func ourTimes(w io.Writer, outcomes []outcome) {
	fmt.Fprint(w, "## The gate's times and failed requests\n\n"+
		"| pattern | base | rate | equal: time | worse by harm: time | failed | at max: time | failed | five times max: time | failed |\n"+
		"|---|---|---|---|---|---|---|---|---|---|\n")
	for _, o := range outcomes {
		c := o.cell
		fmt.Fprintf(w, "| %s | %s | %s | %s ", c.pattern, percent(c.base), number(c.rate), seconds(o.tallies[equal][0].median()))
		for _, s := range []scenario{byHarm, overMax, fivefold} {
			t := &o.tallies[s][0]
			fmt.Fprintf(w, "| %s | %s ", seconds(t.median()), number(t.failed/float64(t.runs)))
		}
		fmt.Fprintln(w, "|")
	}
	fmt.Fprintln(w)
}

// reference are the peers' settings of which the outage table shows the false rollbacks.
func reference() []rule {
	return []rule{flagger(6, atMax, 10, 5), argo(6, atMax, 10, 3, 0)}
}

func outageTable(w io.Writer, outcomes []outcome) {
	fmt.Fprint(w, "## Beyond the promise: outages of what both versions depend on\n\n"+
		"Both versions answer twice max for 60 s, on average 10 min apart, and are equal. This is not what falseRollback\n"+
		"promises, which is of versions within max. In the first batch the gate sees that the old version is over max too,\n"+
		"and holds. **In the last batch nothing is left to tell an outage from a bad release, and it rolls back.** Parts of\n"+
		"rollouts; peers as in their projects' examples.\n\n"+
		"| base | rate | rolled back in batch 1 | in the last batch | held | time |")
	for _, r := range reference() {
		fmt.Fprintf(w, " %s |", r.name())
	}
	fmt.Fprint(w, "\n|---|---|---|---|---|---|---|---|\n")
	for _, o := range outcomes {
		good := o.tallies[equal]
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |", percent(o.cell.base), number(o.cell.rate),
			rate(good[0].part(good[0].backFirst)), rate(good[0].part(good[0].rolledBack-good[0].backFirst)), rate(good[0].part(good[0].held)), seconds(good[0].median()))
		for _, r := range reference() {
			at := 1 + slices.IndexFunc(peers(), func(p rule) bool { return p.name() == r.name() })
			fmt.Fprintf(w, " %s |", rate(good[at].part(good[at].rolledBack)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

func peerTable(w io.Writer, outcomes []outcome) {
	fmt.Fprint(w, "## Peers\n\nOver the cells in which the gate decides. *In time* counts those in which the peer takes no more time\n"+
		"to promote a good version than the gate; of them, those where it is *better on both* errors, and where it\n"+
		"is *not worse* on either and better on one. *Both within 1%* counts the cells at whatever time; *time* is the\n"+
		"median of its time as a multiple of the gate's; *left running* is the part of versions with five times max that\n"+
		"it neither promoted nor rolled back, in the worst cell.\n\n"+
		"| rule | worst false rollback | worst false promotion | both within 1% | time | left running | in time | better on both | not worse |\n|---|---|---|---|---|---|---|---|---|\n")
	decided, ignored := 0, 0.0
	var we errorRates
	for _, o := range outcomes {
		if o.decides() {
			decided++
			worst := &o.tallies[fivefold][0]
			ignored = max(ignored, worst.part(worst.held))
			e := o.errorsOf(0)
			we.falseRollback, we.falsePromotion = max(we.falseRollback, e.falseRollback), max(we.falsePromotion, e.falsePromotion)
		}
	}
	fmt.Fprintf(w, "| **canary-controller** | %s | %s | %d | 1.0 | %s | | | |\n", rate(we.falseRollback), rate(we.falsePromotion), decided-len(overLevel(outcomes)), rate(ignored))
	for _, c := range compare(outcomes) {
		fmt.Fprintf(w, "| %s | %s | %s | %d | %.1f | %s | %d | %d | %d |\n", c.name, rate(c.falseRollback), rate(c.falsePromotion), c.both, c.slower, rate(c.ignored), c.inTime, c.better, c.notWorse)
	}
}

func rate(part float64) string { return strconv.FormatFloat(100*part, 'f', 2, 64) + "%" }

func percent(part float64) string { return strconv.FormatFloat(100*part, 'g', 4, 64) + "%" }

func number(f float64) string {
	if f >= 100 || f == float64(int64(f)) {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

func seconds(s int) string { return (time.Duration(s) * time.Second).String() }
