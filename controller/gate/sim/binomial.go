package main

import (
	"math"
	"math/rand/v2"
)

// binomial draws how many of n independent events of probability p happen. It is exact: by
// inversion where few are expected, otherwise by Hörmann's transformed rejection (BTRS,
// "The generation of binomial random variates", 1993).
func binomial(r *rand.Rand, n int, p float64) int {
	switch {
	case n <= 0 || p <= 0:
		return 0
	case p >= 1:
		return n
	case p > 0.5:
		return n - binomial(r, n, 1-p)
	case float64(n)*p < 10:
		return inversion(r, n, p)
	}
	return rejection(r, float64(n), p)
}

func inversion(r *rand.Rand, n int, p float64) int {
	odds := p / (1 - p)
	f := math.Exp(float64(n) * math.Log1p(-p))
	u := r.Float64()
	k := 0
	for u > f && k < n {
		u -= f
		k++
		f *= float64(n-k+1) / float64(k) * odds
	}
	return k
}

func rejection(r *rand.Rand, n, p float64) int {
	deviation := math.Sqrt(n * p * (1 - p))
	b := 1.15 + 2.53*deviation
	a := -0.0873 + 0.0248*b + 0.01*p
	c := n*p + 0.5
	quick := 0.92 - 4.2/b
	alpha := (2.83 + 5.1/b) * deviation
	logOdds := math.Log(p / (1 - p))
	mode := math.Floor((n + 1) * p)
	top := factorial(mode) + factorial(n-mode)
	for {
		v, u := r.Float64(), r.Float64()-0.5
		us := 0.5 - math.Abs(u)
		k := math.Floor((2*a/us+b)*u + c)
		if us >= 0.07 && v <= quick {
			return int(k)
		}
		if k < 0 || k > n {
			continue
		}
		if math.Log(v*alpha/(a/(us*us)+b)) <= top-factorial(k)-factorial(n-k)+(k-mode)*logOdds {
			return int(k)
		}
	}
}

func factorial(k float64) float64 {
	l, _ := math.Lgamma(k + 1)
	return l
}
