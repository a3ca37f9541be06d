package pod

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		limit time.Duration
		// runs are how long each run of the container lasts.
		runs []time.Duration
		want []time.Duration
	}{
		{"doubles to five minutes", DefaultMaxBackoff,
			make([]time.Duration, 8),
			[]time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 300 * time.Second, 300 * time.Second}},
		{"capped from the beginning", time.Second,
			make([]time.Duration, 4),
			[]time.Duration{0, time.Second, time.Second, time.Second}},
		{"starts afresh after a long run", DefaultMaxBackoff,
			[]time.Duration{0, 0, 0, 11 * time.Minute, 0},
			[]time.Duration{0, 10 * time.Second, 20 * time.Second, 0, 10 * time.Second}},
		{"a run shorter than the reset does not", DefaultMaxBackoff,
			[]time.Duration{0, 0, 9 * time.Minute},
			[]time.Duration{0, 10 * time.Second, 20 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b backoff
			now := start
			for i, run := range tc.runs {
				now = now.Add(run)
				failed := now
				if got := max(b.waiting(failed, now), 0); got != tc.want[i] {
					t.Fatalf("after run %d: waits %s, want %s", i, got, tc.want[i])
				}
				now = now.Add(tc.want[i])
				if got := b.waiting(failed, now); got > 0 {
					t.Fatalf("after run %d: still waits %s when the delay is over", i, got)
				}
				b = b.next(failed, now, tc.limit)
			}
		})
	}
}
