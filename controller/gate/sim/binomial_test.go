package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Draws by either method are held to the exact probabilities of every outcome that is
// likely enough to judge.
func TestBinomialIsExact(t *testing.T) {
	const draws = 200_000
	for _, test := range []struct {
		n int
		p float64
	}{
		{1, 0.3}, {20, 0.02}, {100, 0.05}, {1000, 0.0001}, // by inversion
		{50, 0.3}, {1000, 0.012}, {300_000, 0.0001}, {30_000, 0.05}, {40, 0.5}, // by rejection
		{50, 0.8}, {1000, 0.999}, // from the other side
	} {
		random := rand.New(rand.NewPCG(3, uint64(test.n)))
		seen := map[int]int{}
		for range draws {
			seen[binomial(random, test.n, test.p)]++
		}
		judged := 0
		for k := 0; k <= test.n; k++ {
			n, x := float64(test.n), float64(k)
			log := factorial(n) - factorial(x) - factorial(n-x) + x*math.Log(test.p) + (n-x)*math.Log1p(-test.p)
			want := draws * math.Exp(log)
			if want < 1e-6 && seen[k] > 0 {
				t.Errorf("n %d, p %v: %d, which is next to impossible, came %d times", test.n, test.p, k, seen[k])
			}
			if want < 20 {
				continue
			}
			judged++
			if off := (float64(seen[k]) - want) / math.Sqrt(want); math.Abs(off) > 5 {
				t.Errorf("n %d, p %v: %d came %d times, want %.0f", test.n, test.p, k, seen[k], want)
			}
		}
		if judged == 0 {
			t.Errorf("n %d, p %v: nothing was judged", test.n, test.p)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for _, test := range []struct {
		n    int
		p    float64
		want int
	}{{0, 0.5, 0}, {10, 0, 0}, {10, 1, 10}, {-1, 0.5, 0}} {
		if got := binomial(random, test.n, test.p); got != test.want {
			t.Errorf("binomial(%d, %v) is %d, want %d", test.n, test.p, got, test.want)
		}
	}
}
