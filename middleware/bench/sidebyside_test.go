package bench

import (
	"io"
	"net/http"
	"slices"
	"testing"
)

// turn is how many requests a contestant handles before it is the other's.
const turn = 500

// BenchmarkSideBySide takes turns between ours and another for a figure that
// holds on a machine with other work: whatever disturbs one disturbs the other
// as much. It reports the processor time per request of the median turn of each
// and the ratio. b.N counts turns.
func BenchmarkSideBySide(b *testing.B) {
	for _, pair := range []struct{ name, ours, theirs string }{
		{"server/sampled+metrics", "ours/sampled+metrics", "otelhttp/sampled+metrics"},
		{"server/unsampled+metrics", "ours/unsampled+metrics", "otelhttp/unsampled+metrics"},
		{"server/sampled", "ours/sampled", "otelhttp/sampled"},
	} {
		b.Run(pair.name, func(b *testing.B) {
			compare(b, serving(b, pair.ours), serving(b, pair.theirs))
		})
	}
	for _, pair := range []struct{ name, ours, theirs string }{
		{"client/sampled+metrics", "ours/sampled+metrics", "otelhttp/sampled+metrics"},
		{"client/unsampled+metrics", "ours/unsampled+metrics", "otelhttp/unsampled+metrics"},
	} {
		b.Run(pair.name, func(b *testing.B) {
			compare(b, sending(b, pair.ours), sending(b, pair.theirs))
		})
	}
}

func compare(b *testing.B, ours, theirs func()) {
	var times [2][]int64
	for range b.N {
		for i, do := range []func(){ours, theirs} {
			start := used(b)
			for range turn {
				do()
			}
			times[i] = append(times[i], used(b)-start)
		}
	}
	median := func(t []int64) float64 {
		slices.Sort(t)
		return float64(t[len(t)/2]) / turn
	}
	o, t := median(times[0]), median(times[1])
	b.ReportMetric(o, "ours-cpu-ns")
	b.ReportMetric(t, "theirs-cpu-ns")
	b.ReportMetric(o/t, "ratio")
	b.ReportMetric(0, "ns/op")
}

// serving returns a function that has a server of the list handle a request.
func serving(b *testing.B, name string) func() {
	for _, c := range servers {
		if c.name == name {
			h := c.wrap(b, http.HandlerFunc(reviews))
			r, w := b3Request(b), discard{http.Header{}}
			return func() { h.ServeHTTP(w, r) }
		}
	}
	b.Fatalf("no server %q", name)
	return nil
}

// sending returns a function that has a client of the list send a request and
// read the answer.
func sending(b *testing.B, name string) func() {
	for _, c := range clients {
		if c.name == name {
			rt, r := c.wrap(b, newStub()), outbound(b)
			return func() {
				resp, err := rt.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				if err := resp.Body.Close(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Fatalf("no client %q", name)
	return nil
}
