package push

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Run runs the job and pushes its metrics before, during and after it, along
// with batch_job_start_timestamp_seconds and, once it has ended,
// batch_job_completion_timestamp_seconds and batch_job_success. After
// Config.Linger the group is deleted, also when the job failed or panicked or
// ctx was cancelled; a cancelled ctx cuts the lingering short.
//
// The error is the job's, joined with an *Error for each kind of request that
// failed to the end: a Pushgateway that is down does not fail or stop a job,
// and errors.As tells the two apart.
func Run(ctx context.Context, c Config, job func(context.Context) error) error {
	p, err := New(c)
	if err != nil {
		return err
	}
	return p.run(ctx, job)
}

func (p *Pusher) run(ctx context.Context, job func(context.Context) error) (err error) {
	record := newRecord()
	all := prometheus.Gatherers{p.c.Gatherer, record.registry}
	// Whatever becomes of the job, its group goes.
	defer func() {
		err = errors.Join(err, p.Delete(context.WithoutCancel(ctx)))
		p.client.CloseIdleConnections()
	}()

	record.start.SetToCurrentTime()
	stopPushing := p.pushEvery(ctx, all)
	jobErr := func() error {
		defer stopPushing()
		return job(ctx)
	}()
	record.end(jobErr == nil)
	pushErr := p.push(context.WithoutCancel(ctx), all)
	if pushErr == nil && p.c.Linger > 0 {
		linger := time.NewTimer(p.c.Linger)
		defer linger.Stop()
		select {
		case <-ctx.Done():
		case <-linger.C:
		}
	}
	return errors.Join(jobErr, pushErr)
}

// pushEvery pushes now and at each interval until the returned function is
// called, which waits for a push under way. What fails here is tried again
// at the next interval, and at the end.
func (p *Pusher) pushEvery(ctx context.Context, g prometheus.Gatherer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.push(ctx, g)
		if p.c.Interval < 0 {
			return
		}
		ticker := time.NewTicker(p.c.Interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = p.push(ctx, g)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// record is what Run adds to the job's own metrics.
type record struct {
	registry *prometheus.Registry
	start    prometheus.Gauge
}

func newRecord() *record {
	r := &record{
		registry: prometheus.NewRegistry(),
		start: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "batch_job_start_timestamp_seconds", Help: "Unix time at which the job started.",
		}),
	}
	r.registry.MustRegister(r.start)
	return r
}

// end adds the outcome, which does not exist before.
func (r *record) end(success bool) {
	completion := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "batch_job_completion_timestamp_seconds", Help: "Unix time at which the job ended.",
	})
	completion.SetToCurrentTime()
	outcome := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "batch_job_success", Help: "1 if the job succeeded, 0 if it failed.",
	})
	if success {
		outcome.Set(1)
	}
	r.registry.MustRegister(completion, outcome)
}
