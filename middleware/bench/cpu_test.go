package bench

import (
	"syscall"
	"testing"
)

// cpu starts counting the processor time of the process and returns what
// reports it per operation. On a machine with other work it says more than the
// time on the clock, and it includes what the contestants leave to other
// goroutines: exporting and collecting garbage.
func cpu(b *testing.B) func() {
	start := used(b)
	return func() {
		b.ReportMetric(float64(used(b)-start)/float64(b.N), "cpu-ns/op")
	}
}

func used(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
