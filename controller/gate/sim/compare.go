package main

import "slices"

// errorRates are a rule's two error rates in a cell, and the time that it takes to promote a
// version that is as good as the old one.
type errorRates struct {
	falseRollback, falsePromotion float64
	seconds                       int
}

// errorsOf takes the worse of the two ways to be harmful, worse by harm and at max.
func (o outcome) errorsOf(rule int) errorRates {
	good, harm, limit := &o.tallies[equal][rule], &o.tallies[byHarm][rule], &o.tallies[overMax][rule]
	return errorRates{
		falseRollback:  good.part(good.rolledBack),
		falsePromotion: max(harm.part(harm.promoted), limit.part(limit.promoted)),
		seconds:        good.median(),
	}
}

// decides says that the gate reaches a verdict on good versions in most rollouts of a cell.
func (o outcome) decides() bool {
	good := &o.tallies[equal][0]
	return 2*good.held < good.runs
}

// overLevel are the cells in which the gate decides, but is wrong more often than promised.
func overLevel(outcomes []outcome) []outcome {
	var broken []outcome
	for _, o := range outcomes {
		if e := o.errorsOf(0); o.decides() && (e.falseRollback > level || e.falsePromotion > level) {
			broken = append(broken, o)
		}
	}
	return broken
}

// comparison is how a peer's setting compares with our check over all cells.
type comparison struct {
	name string
	// worst error rates over all cells in which the gate decides.
	falseRollback, falsePromotion float64
	// both counts the cells in which both error rates are at most 1%, and slower is the
	// median over all cells of its time as a multiple of the gate's.
	both   int
	slower float64
	// ignored is the part of versions with five times max that it left running, in the
	// worst cell.
	ignored float64
	// inTime counts the cells in which it takes no more time than the gate; of those,
	// better and notWorse are where it is better on both, and where it is not worse on
	// either and better on one.
	inTime, better, notWorse int
}

func compare(outcomes []outcome) []comparison {
	all := make([]comparison, 0, len(peers()))
	for i, rule := range peers() {
		c := comparison{name: rule.name()}
		var ratios []float64
		for _, o := range outcomes {
			if !o.decides() {
				continue
			}
			we, they := o.errorsOf(0), o.errorsOf(i+1)
			c.falseRollback = max(c.falseRollback, they.falseRollback)
			c.falsePromotion = max(c.falsePromotion, they.falsePromotion)
			if they.falseRollback <= level && they.falsePromotion <= level {
				c.both++
			}
			worst := &o.tallies[fivefold][i+1]
			c.ignored = max(c.ignored, worst.part(worst.held))
			ratios = append(ratios, float64(they.seconds)/float64(we.seconds))
			if they.seconds > we.seconds {
				continue
			}
			c.inTime++
			switch {
			case they.falseRollback < we.falseRollback && they.falsePromotion < we.falsePromotion:
				c.better++
			case they.falseRollback <= we.falseRollback && they.falsePromotion <= we.falsePromotion &&
				(they.falseRollback < we.falseRollback || they.falsePromotion < we.falsePromotion):
				c.notWorse++
			}
		}
		slices.Sort(ratios)
		if len(ratios) > 0 {
			c.slower = ratios[len(ratios)/2]
		}
		all = append(all, c)
	}
	return all
}
