package gate

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestMarginalByHand(t *testing.T) {
	// Beta(1, 1): B(2, 2) / B(1, 1) = 1/6. Beta(1, 3), of mean 1/4: B(1, 5) / B(1, 3) = (1/5) / (1/3).
	near(t, "marginal of 1 in 2", math.Exp(betaOf(1, 0.5).marginal(1, 2)), 1.0/6)
	near(t, "marginal of 0 in 2", math.Exp(betaOf(1, 0.25).marginal(0, 2)), 3.0/5)
	near(t, "likelihood of 1 in 2", math.Exp(likelihood(1, 2, 0.5)), 0.25)
	near(t, "likelihood of 0 in 3 at 0", likelihood(0, 3, 0), 0)
	near(t, "likelihood of 3 in 3 at 1", likelihood(3, 3, 1), 0)
	near(t, "mixture", math.Exp(mixture(math.Log(0.2), math.Log(0.4))), 0.3)
}

// The martingale has mean 1: the sum over all outcomes of probability times M is that of
// the marginals, which are probabilities too.
func TestMartingaleHasMeanOne(t *testing.T) {
	const n = 12
	for _, p := range []float64{0.001, 0.05, 0.3} {
		for _, prior := range []beta{betaOf(0.5, 0.01), betaOf(1, 0.2)} {
			mean := 0.0
			for x := 0.0; x <= n; x++ {
				orders := math.Exp(-logBeta(x+1, n-x+1)) / (n + 1)
				mean += orders * math.Exp(likelihood(x, n, p)) * math.Exp(prior.marginal(x, n)-likelihood(x, n, p))
			}
			near(t, "mean", mean, 1)
		}
	}
}

func TestLikeliestApartByHand(t *testing.T) {
	at := func(newX, newN, oldX, oldN, newP, oldP float64) float64 {
		return likelihood(newX, newN, newP) + likelihood(oldX, oldN, oldP)
	}
	tests := []struct {
		name                      string
		newX, newN, oldX, oldN, d float64
		want                      float64
	}{
		{"together: pooled 4 of 40", 3, 10, 1, 30, 0, at(3, 10, 1, 30, 0.1, 0.1)},
		{"the estimates are apart by just d", 3, 10, 1, 10, 0.2, at(3, 10, 1, 10, 0.3, 0.1)},
		{"nothing bad: old at 0", 0, 10, 0, 10, 0.1, at(0, 10, 0, 10, 0.1, 0)},
		{"all bad: new at 1", 10, 10, 10, 10, 0.1, at(10, 10, 10, 10, 1, 0.9)},
		// Slope -20/(1-p-d) + 10/p = 0 at p = 0.3 for d = 0.1 and old 10 of 10.
		{"old all bad, new none", 0, 20, 10, 10, 0.1, at(0, 20, 10, 10, 0.4, 0.3)},
	}
	for _, test := range tests {
		near(t, test.name, likeliestApart(test.newX, test.newN, test.oldX, test.oldN, test.d), test.want)
	}
}

// No point of the line is likelier than what likeliestApart finds.
func TestLikeliestApartIsTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newN, oldN := rapid.Int64Range(1, 1e6).Draw(t, "newN"), rapid.Int64Range(1, 1e6).Draw(t, "oldN")
		newX, oldX := rapid.Int64Range(0, newN).Draw(t, "newX"), rapid.Int64Range(0, oldN).Draw(t, "oldX")
		d := rapid.Float64Range(0.0001, 0.5).Draw(t, "d")
		best := likeliestApart(float64(newX), float64(newN), float64(oldX), float64(oldN), d)
		p := rapid.Float64Range(0, 1-d).Draw(t, "p")
		l := likelihood(float64(newX), float64(newN), p+d) + likelihood(float64(oldX), float64(oldN), p)
		if l > best+1e-9*math.Abs(best) {
			t.Fatalf("at %v the likelihood is %v, above %v", p, l, best)
		}
	})
}

// TestLevelsOfOneVersion computes, without chance, how probable it is that a version at max
// ever passes, or ever fails, when it is looked at after each of 20,000 requests: the
// distribution of the bad ones that have not met a verdict is carried from one request to
// the next.
func TestLevelsOfOneVersion(t *testing.T) {
	const limit, alpha, requests = 0.02, 0.01, 20_000
	test := NewProportion(limit, limit/2, alpha, alpha)
	alive := []float64{1}
	passed, failed := 0.0, 0.0
	for n := int64(1); n <= requests; n++ {
		next := make([]float64, len(alive)+1)
		for x, p := range alive {
			next[x] += p * (1 - limit)
			next[x+1] += p * limit
		}
		for x := range next {
			if next[x] < 1e-14 {
				continue
			}
			switch test.Judge(v1alpha1.RequestCounts{Bad: int64(x), Total: n}, v1alpha1.RequestCounts{}, NoOld).Verdict() {
			case v1alpha1.VerdictPass:
				passed, next[x] = passed+next[x], 0
			case v1alpha1.VerdictFail:
				failed, next[x] = failed+next[x], 0
			}
		}
		for len(next) > 1 && next[len(next)-1] < 1e-14 {
			next = next[:len(next)-1]
		}
		alive = next
	}
	if passed > alpha || passed < alpha/20 {
		t.Errorf("a version at max passes with probability %v; the level is %v", passed, alpha)
	}
	if failed > alpha/2 || failed < alpha/40 {
		t.Errorf("a version at max fails with probability %v; the level is %v", failed, alpha/2)
	}
}

// TestLevelsOfTwoVersions draws rollouts in which the new version is worse by just harm, and
// equal ones, and looks at them after each handful of requests.
func TestLevelsOfTwoVersions(t *testing.T) {
	const limit, harm, base, alpha, rollouts, looks = 0.1, 0.04, 0.02, 0.05, 1000, 150
	test := NewProportion(limit, harm, alpha, alpha)
	random := rand.New(rand.NewPCG(7, 7))
	draw := func(n int, p float64) (bad int64) {
		for range n {
			if random.Float64() < p {
				bad++
			}
		}
		return bad
	}
	run := func(share float64) map[v1alpha1.Verdict]int {
		ended := map[v1alpha1.Verdict]int{}
		for range rollouts {
			var newer, older v1alpha1.RequestCounts
			verdict := v1alpha1.VerdictNoData
			for look := 0; look < looks && verdict == v1alpha1.VerdictNoData; look++ {
				newer.Bad, newer.Total = newer.Bad+draw(10, share), newer.Total+10
				older.Bad, older.Total = older.Bad+draw(30, base), older.Total+30
				verdict = test.Judge(newer, older, Concurrent).Verdict()
			}
			ended[verdict]++
		}
		return ended
	}
	// Five standard deviations above the level is no chance.
	allowed := int(alpha*rollouts + 5*math.Sqrt(alpha*rollouts))
	if good := run(base); good[v1alpha1.VerdictFail] > allowed || good[v1alpha1.VerdictPass] < rollouts*9/10 {
		t.Errorf("equal versions ended as %v", good)
	}
	if bad := run(base + harm); bad[v1alpha1.VerdictPass] > allowed || bad[v1alpha1.VerdictFail] < rollouts*9/10 {
		t.Errorf("versions worse by harm ended as %v", bad)
	}
}
