package trace

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestUnreachableCollectorIsWaitedFor(t *testing.T) {
	client := &fake{answer: func(_ context.Context, call int) error {
		if call < 6 {
			return status.Error(codes.Unavailable, "down")
		}
		return nil
	}}
	r, reg := recorder(t, client, Config{})
	r.backoff.refusals = 0
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 4 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if client.calls != 6 {
		t.Errorf("%d calls", client.calls)
	}
	checkMetrics(t, reg, 4, 0, 0)
}

func TestRefusedSpansAreGivenUp(t *testing.T) {
	var mu sync.Mutex
	now := at(100).Time
	client := &fake{answer: func(_ context.Context, call int) error {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(20 * time.Second)
		if call <= 4 {
			return errors.New("failed to send to collector: 401 Unauthorized")
		}
		return nil
	}}
	r, reg := recorder(t, client, Config{BatchSize: 2})
	r.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	eventually(t, "sending", func() bool { return len(client.names()) == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	// Refused at 20, 40, 60 and 80 s: a minute after the first the first batch is given up.
	if diff := cmp.Diff([]string{"batch 1", SpanRollout}, client.names()); diff != "" {
		t.Error(diff)
	}
	checkMetrics(t, reg, 2, 2, 0)
}

func TestPartlyRefusedSpansAreNotSentAgain(t *testing.T) {
	client := &fake{answer: func(context.Context, int) error {
		return errors.New("OTLP partial success: no room (2 spans rejected)")
	}}
	r, reg := recorder(t, client, Config{})
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	eventually(t, "giving up", func() bool { return testutil.ToFloat64(r.metrics.failed) == 4 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if client.calls != 1 {
		t.Errorf("%d calls", client.calls)
	}
	checkMetrics(t, reg, 0, 4, 0)
}

// TestShutdownFlushes holds that what an upload, cut short by the end, had on the way is
// sent again before Run returns.
func TestShutdownFlushes(t *testing.T) {
	begun := make(chan struct{})
	client := &fake{answer: func(ctx context.Context, call int) error {
		if call == 1 {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}}
	r, reg := recorder(t, client, Config{BatchSize: 1})
	r.Resume(completedCourse()[4])
	stop := start(t, r)
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(completed, client.names()); diff != "" {
		t.Error(diff)
	}
	checkMetrics(t, reg, 4, 0, 0)
}

func TestShutdownEndsInTime(t *testing.T) {
	client := &fake{answer: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	r, reg := recorder(t, client, Config{FlushTimeout: 20 * time.Millisecond, BatchSize: 1})
	r.Resume(completedCourse()[4])
	if err := start(t, r)(); err == nil || !strings.Contains(err.Error(), "4 spans of rollouts were not sent") {
		t.Errorf("got %v", err)
	}
	if !client.stopped {
		t.Error("the client was not stopped")
	}
	checkMetrics(t, reg, 0, 0, 4)
}
