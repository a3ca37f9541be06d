package gate

import "math"

// The sequential test of a proportion check rests on mixture martingales.
//
// For one version with x bad of n requests and any fixed prior Beta(a, b) on its share,
//
//	M(x, n; p) = B(a+x, b+n-x) / B(a, b) / (p^x (1-p)^(n-x))
//
// is a nonnegative martingale of mean 1 when p is the true share, so by Ville's inequality
// it ever reaches 1/alpha with probability at most alpha, however often one looks (Robbins
// 1970, "Statistical methods related to the law of the iterated logarithm"; Howard, Ramdas,
// McAuliffe and Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence
// sequences"). The same holds of the product over two versions, of any mixture of priors
// over both shares, and against a composite hypothesis when the likelihood in the
// denominator is the largest that the hypothesis allows (Turner, Ly and Grünwald 2024,
// "Generic E-variables for exact sequential k-sample tests that allow for optional
// stopping"). The numerators thus only decide how soon a verdict comes, never how often it
// is wrong; everything here is in natural logarithms.

// beta is a prior on a share.
type beta struct {
	a, b, logB float64
}

// betaOf is the prior with the shape a and the given mean. A small shape spreads it over
// orders of magnitude below its mean.
func betaOf(a, mean float64) beta {
	mean = min(mean, 0.5)
	b := a * (1 - mean) / mean
	return beta{a: a, b: b, logB: logBeta(a, b)}
}

// marginal is the logarithm of the probability of one order of x bad among n requests.
func (p beta) marginal(x, n float64) float64 {
	return logBeta(p.a+x, p.b+n-x) - p.logB
}

func logBeta(a, b float64) float64 {
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	return la + lb - lab
}

// mixture is the logarithm of the mean of probabilities given by their logarithms.
func mixture(logs ...float64) float64 {
	top := math.Inf(-1)
	for _, l := range logs {
		top = max(top, l)
	}
	sum := 0.0
	for _, l := range logs {
		sum += math.Exp(l - top)
	}
	return top + math.Log(sum/float64(len(logs)))
}

// likelihood is the logarithm of the probability of one order of x bad among n requests
// when the share is p.
func likelihood(x, n, p float64) float64 {
	l := 0.0
	if x > 0 {
		l += x * math.Log(p)
	}
	if n > x {
		l += (n - x) * math.Log1p(-p)
	}
	return l
}

// likeliestApart is the largest likelihood of both versions' counts among all shares with
// new = old + d, for d from 0 to below 1. It is concave in the share, so that the root of
// its slope is found by bisection.
func likeliestApart(newX, newN, oldX, oldN, d float64) float64 {
	if d == 0 {
		x, n := newX+oldX, newN+oldN
		return likelihood(x, n, x/n)
	}
	slope := func(p float64) float64 {
		s := newX/(p+d) - (newN-newX)/(1-p-d)
		if oldX > 0 {
			s += oldX / p
		}
		return s - (oldN-oldX)/(1-p)
	}
	low, high := 0.0, 1-d
	for range 64 {
		middle := (low + high) / 2
		if middle == low || middle == high {
			break
		}
		if slope(middle) > 0 {
			low = middle
		} else {
			high = middle
		}
	}
	// Whichever end of the last bracket has a likelihood at all: at share 0 or 1 there may be none.
	at := func(p float64) float64 { return likelihood(newX, newN, p+d) + likelihood(oldX, oldN, p) }
	return max(at(low), at(high))
}
