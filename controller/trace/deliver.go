package trace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// scopeName is the instrumentation scope of the spans.
const scopeName = "github.com/canarycontroller/canary-controller/controller/trace"

// backoff says how failed uploads are repeated.
type backoff struct {
	// first and longest are the waits after the first failure and after many.
	first, longest time.Duration
	// refusals is how long a collector that answers may refuse the same spans before they
	// are given up. One that cannot be reached is tried until Run ends.
	refusals time.Duration
}

var defaultBackoff = backoff{first: time.Second, longest: 30 * time.Second, refusals: 15 * time.Minute}

// Run sends what is queued until ctx ends, then what is left, for at most the flush
// timeout. It returns an error when spans were left even then, and when the client cannot
// be started. It owns the client: nothing is sent any more when it has returned.
func (r *Recorder) Run(ctx context.Context) error {
	if !r.Enabled() {
		<-ctx.Done()
		return nil
	}
	if err := r.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("starting the OTLP client: %w", err)
	}
	var batch []*tracepb.Span
	for ctx.Err() == nil {
		if batch = r.take(); len(batch) > 0 {
			if r.send(ctx, batch) {
				batch = nil
			}
			continue
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
		}
	}

	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.FlushTimeout)
	defer cancel()
	if len(batch) == 0 {
		batch = r.take()
	}
	for len(batch) > 0 && r.send(flush, batch) {
		batch = r.take()
	}
	var left int
	for len(batch) > 0 {
		left += len(batch)
		batch = r.take()
	}
	r.metrics.dropped.Add(float64(left))
	var err error
	if left > 0 {
		err = fmt.Errorf("%d spans of rollouts were not sent in the %s after the end of work", left, r.config.FlushTimeout)
	}
	// The clients stop at once when the context has ended, and say so, which is no news.
	if stopErr := r.client.Stop(flush); stopErr != nil && flush.Err() == nil {
		err = errors.Join(err, fmt.Errorf("stopping the OTLP client: %w", stopErr))
	}
	return err
}

// send uploads a batch until it is accepted or given up, which is counted, and returns
// false when ctx ended before.
func (r *Recorder) send(ctx context.Context, batch []*tracepb.Span) (done bool) {
	upload := []*tracepb.ResourceSpans{{
		Resource:   r.resource,
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: scopeName}, Spans: batch}},
	}}
	wait, failing := r.backoff.first, false
	var refusedSince time.Time
	for {
		err := r.client.UploadTraces(ctx, upload)
		switch now := r.now(); {
		case err == nil:
			r.metrics.sent.Add(float64(len(batch)))
			if failing {
				r.log.Info("Sending spans of rollouts works again")
			}
			return true
		case ctx.Err() != nil:
			return false
		case isPartial(err):
			r.metrics.failed.Add(float64(len(batch)))
			r.log.Warn("The collector refused some spans of rollouts", "err", err)
			return true
		case unreachable(err):
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = now
		case now.Sub(refusedSince) >= r.backoff.refusals:
			r.metrics.failed.Add(float64(len(batch)))
			r.log.Error("The collector keeps refusing spans of rollouts; they are given up", "spans", len(batch), "err", err)
			return true
		}
		if !failing {
			failing = true
			r.log.Warn("Sending spans of rollouts failed and is tried again", "err", err)
		}
		// Spread by a fifth either way, so that replicas do not come back at once.
		timer := time.NewTimer(time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		wait = min(2*wait, r.backoff.longest)
	}
}

// unreachable says that no collector has judged the spans: there was no answer, or one
// that says that it is not up to it now.
func unreachable(err error) bool {
	// Clients over HTTP return this when there was no response.
	if _, ok := errors.AsType[*url.Error](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted:
		return true
	}
	return false
}

// isPartial says that the collector has taken a part of the spans, and will not take the
// rest. The error's type is internal to each of the OTLP clients; its text begins the same.
func isPartial(err error) bool { return strings.Contains(err.Error(), "OTLP partial success") }
