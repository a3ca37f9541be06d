package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
)

// gatedBatches is in how many batches the manifests release reviews.
const gatedBatches = 4

const (
	// quietFor is how long the rows are silent while only counts grow.
	quietFor = 5 * time.Second
	// outage is how long Prometheus stays down after the gate has seen it.
	outage = 8 * time.Second
)

// promote releases a healthy version.
func (d *demo) promote(ctx context.Context) error {
	released, err := d.releaseReviews(ctx, "v1", "v2", func(ctx context.Context) (outcome, error) {
		c, err := d.untilGated(ctx, ended)
		if err != nil {
			return outcome{}, err
		}
		return outcome{decision: "promoted", evidence: promotionEvidence(c)}, promotedOnEvidence(c, gatedBatches)
	})
	if err != nil {
		return err
	}
	d.saw("reviews v2 is released, and nobody had to approve: %s", released.evidence)
	search, err := d.searchAPI("ratings", nil)
	if err != nil {
		return err
	}
	d.bookinfo.request, err = d.findTrace(ctx, "a request through all four services", trace.throughAllServices, search)
	if err != nil {
		return err
	}
	d.saw("one request through productpage, details, reviews v2 and ratings: %s", d.tracePage(d.bookinfo.request.TraceID))
	return nil
}

// catch releases a version with a defect.
func (d *demo) catch(ctx context.Context) error {
	var harm v1alpha1.GateDecision
	released, err := d.releaseReviews(ctx, "v2", "v3", func(ctx context.Context) (outcome, error) {
		c, err := d.untilGated(ctx, ended)
		if err != nil {
			return outcome{}, err
		}
		if harm, err = caught(c); err != nil {
			return outcome{}, err
		}
		return outcome{decision: fmt.Sprintf("rolled back in batch %d", harm.Batch), evidence: harmEvidence(harm)}, nil
	})
	if err != nil {
		return err
	}
	d.saw("reviews v3 was rolled back in batch %d; %s users' requests failed meanwhile", harm.Batch, released.users)
	if d.bookinfo.failure, err = d.failedRequest(ctx, harm.TraceIDs); err != nil {
		return err
	}
	d.saw("one of them: %s", d.tracePage(d.bookinfo.failure.TraceID))
	d.print("\n")
	if err := d.run(ctx, plugin, "why", bookinfoCanary, "-n", bookinfoNamespace, "--jaeger-url", d.jaeger.QueryURL); err != nil {
		return err
	}
	if !d.programs.jaegerPages {
		d.note("This Jaeger has no web pages; its traces are at %s", d.traceAPI("ID"))
	}
	return nil
}

// outlast releases a healthy version while Prometheus is down for a time.
func (d *demo) outlast(ctx context.Context) error {
	released, err := d.releaseReviews(ctx, "v2", "v4", func(ctx context.Context) (outcome, error) {
		if _, err := d.untilGated(ctx, func(c *v1alpha1.Canary) (bool, error) {
			return c.Status.CurrentBatch == 2 && c.Status.Phase == v1alpha1.PhaseAnalyzing, nil
		}); err != nil {
			return outcome{}, err
		}
		heldFor, err := d.withoutPrometheus(ctx)
		if err != nil {
			return outcome{}, err
		}
		c, err := d.untilGated(ctx, ended)
		if err != nil {
			return outcome{}, err
		}
		return outcome{
			decision: fmt.Sprintf("held for %s, then promoted", heldFor.Round(time.Second)),
			evidence: fmt.Sprintf("%d x Error, %s", holds(c), promotionEvidence(c)),
		}, errors.Join(promotedOnEvidence(c, gatedBatches), wasHeld(c))
	})
	if err != nil {
		return err
	}
	d.saw("reviews v4 is released, now that there is evidence: %s", released.evidence)
	return nil
}

// withoutPrometheus stops Prometheus, sees that the release is held and not blamed, and
// starts it again.
func (d *demo) withoutPrometheus(ctx context.Context) (heldFor time.Duration, err error) {
	before, err := d.load.counts(ctx)
	if err != nil {
		return 0, err
	}
	d.note("Prometheus is stopped now.")
	if err := d.prometheus.stop(ctx); err != nil {
		return 0, err
	}
	c, err := d.untilGated(ctx, func(c *v1alpha1.Canary) (bool, error) { return held(c, 0) })
	if err != nil {
		return 0, err
	}
	batch, since := c.Status.CurrentBatch, d.now()
	if _, err := d.untilGated(ctx, func(c *v1alpha1.Canary) (bool, error) {
		_, err := held(c, batch)
		return d.now().Sub(since) >= outage, err
	}); err != nil {
		return 0, err
	}
	after, err := d.load.counts(ctx)
	if err != nil {
		return 0, err
	}
	d.saw("batch %d is held with the verdict %s and not rolled back; %s users' requests failed meanwhile", batch, v1alpha1.VerdictError, after.since(before))
	d.note("Prometheus is started again.")
	if err := d.runPrometheus(); err != nil {
		return 0, err
	}
	_, err = d.untilGated(ctx, func(c *v1alpha1.Canary) (bool, error) {
		isHeld, err := held(c, batch)
		return !isHeld, err
	})
	return d.now().Sub(since), err
}

// ended says whether the release is over.
func ended(c *v1alpha1.Canary) (bool, error) {
	switch c.Status.Phase {
	case v1alpha1.PhaseCompleted, v1alpha1.PhaseRolledBack:
		return true, nil
	case v1alpha1.PhaseInvalid, v1alpha1.PhaseFailed, v1alpha1.PhaseAwaitingApproval:
		return false, fmt.Errorf("the phase is %s: %s", c.Status.Phase, c.Status.Message)
	}
	return false, nil
}

// releaseReviews applies the Canary of a version and has course follow it to its end. It
// counts what failed for users meanwhile and keeps the outcome for the table.
func (d *demo) releaseReviews(ctx context.Context, from, to string, course func(context.Context) (outcome, error)) (outcome, error) {
	before, err := d.load.counts(ctx)
	if err != nil {
		return outcome{}, err
	}
	begun := d.now()
	if err := d.run(ctx, "apply", "-f", bookinfoExamples+"reviews-"+to+".yaml"); err != nil {
		return outcome{}, err
	}
	d.note("In each batch its gate judges the failed requests of both versions, and how slow the new one is.")
	released, err := course(ctx)
	if err != nil {
		return outcome{}, err
	}
	released.release = fmt.Sprintf("reviews %s → %s", from, to)
	released.took = d.now().Sub(begun)
	// A pod that was let go serves until its callers know.
	if err := d.settled(ctx); err != nil {
		return outcome{}, err
	}
	c, err := d.reviews(ctx)
	if err != nil {
		return outcome{}, err
	}
	released.traceID = c.Status.Rollout.TraceID
	after, err := d.load.counts(ctx)
	if err != nil {
		return outcome{}, err
	}
	released.users = after.since(before)
	d.bookinfo.released = append(d.bookinfo.released, released)
	return released, nil
}

// settled waits until reviews has no more pods than it should.
func (d *demo) settled(ctx context.Context) error {
	for {
		pods, err := d.kube.CoreV1().Pods(bookinfoNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=reviews"})
		if err != nil {
			return fmt.Errorf("listing the pods of reviews: %w", err)
		}
		if len(pods.Items) == replicas {
			return nil
		}
		if err := d.pause(ctx, fmt.Errorf("reviews has %d pods, not %d", len(pods.Items), replicas)); err != nil {
			return err
		}
	}
}

func (d *demo) reviews(ctx context.Context) (*v1alpha1.Canary, error) {
	c, err := d.canaries.CanarycontrollerV1alpha1().Canaries(bookinfoNamespace).Get(ctx, bookinfoCanary, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the Canary %s: %w", bookinfoCanary, err)
	}
	return c, nil
}

// untilGated shows what the gate sees and decides until done says so, which gets the
// Canary's status as an answer to its present spec.
func (d *demo) untilGated(ctx context.Context, done func(*v1alpha1.Canary) (bool, error)) (*v1alpha1.Canary, error) {
	for {
		waiting := errors.New("the operator has not answered to the last change")
		c, err := d.reviews(ctx)
		switch {
		case err != nil:
			waiting = err
		case c.Status.ObservedGeneration == c.Generation:
			d.told.show(d.screen, c)
			is, err := done(c)
			if is || err != nil {
				return c, err
			}
			waiting = fmt.Errorf("the phase is %s: %s", c.Status.Phase, c.Status.Message)
		}
		if err := d.pause(ctx, waiting); err != nil {
			return nil, err
		}
	}
}

// told is what was shown of a gated release.
type told struct {
	rollout, row string
	decisions    int
	// at is when the latest line was shown, evaluations how many the gate had made then.
	at          time.Time
	evaluations int32
}

// show shows what is new: rows that differ, decisions, and now and then how the evidence
// grows.
func (t *told) show(s *screen, c *v1alpha1.Canary) {
	var decisions []v1alpha1.GateDecision
	var evaluations int32
	if g := c.Status.Gate; g != nil {
		decisions, evaluations = g.Decisions, g.Evaluations
	}
	if id := c.Status.Rollout; id != nil && id.ID != t.rollout {
		*t = told{rollout: id.ID}
	}
	for _, decision := range decisions[min(t.decisions, len(decisions)):] {
		// That nothing is known yet when a batch begins is no news.
		if decision.Action != actionHold || decision.Verdict != v1alpha1.VerdictNoData {
			s.decision(decision)
			t.at = s.now()
		}
	}
	t.decisions = len(decisions)
	row := row(c) + string(c.Status.Phase)
	switch {
	case row != t.row:
		s.row(c)
	case c.Status.Phase == v1alpha1.PhaseAnalyzing && evaluations > 0 && evaluations != t.evaluations && s.now().Sub(t.at) >= quietFor:
		s.row(c)
		s.because(string(c.Status.Verdict), c.Status.Gate.Message)
	default:
		return
	}
	t.row, t.at, t.evaluations = row, s.now(), evaluations
}
