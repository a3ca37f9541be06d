//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// snapshot is the state of a namespace's Deployments at one moment.
type snapshot map[string]struct{ wanted, available int32 }

// recorder keeps every state that a namespace's Deployments passed through.
type recorder struct {
	s      *space
	cancel context.CancelFunc
	done   sync.WaitGroup
	states []snapshot
}

// watchDeployments records from now until stop.
func (s *space) watchDeployments() *recorder {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	r := &recorder{s: s, cancel: cancel}
	list, err := s.kube.AppsV1().Deployments(s.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	current := snapshot{}
	record := func(d *appsv1.Deployment) {
		current[d.Name] = struct{ wanted, available int32 }{*d.Spec.Replicas, d.Status.AvailableReplicas}
	}
	for _, d := range list.Items {
		record(&d)
	}
	r.states = append(r.states, maps.Clone(current))
	events, err := s.kube.AppsV1().Deployments(s.name).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		s.Fatal(err)
	}
	r.done.Go(func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			d, ok := event.Object.(*appsv1.Deployment)
			if !ok {
				continue
			}
			if event.Type == watch.Deleted {
				delete(current, d.Name)
			} else {
				record(d)
			}
			r.states = append(r.states, maps.Clone(current))
		}
	})
	s.Cleanup(r.stop)
	return r
}

func (r *recorder) stop() {
	r.cancel()
	r.done.Wait()
}

// holds fails the test at the first state that check refuses.
func (r *recorder) holds(check func(snapshot) error) {
	r.s.Helper()
	for n, state := range r.states {
		if err := check(state); err != nil {
			r.s.Errorf("state %d of %d: %v (%v)", n+1, len(r.states), err, state)
			return
		}
	}
	if len(r.states) < 2 {
		r.s.Error("the watch saw no change")
	}
}

// neverBelow holds that at least so many replicas were available at every moment.
func (r *recorder) neverBelow(total int32) {
	r.s.Helper()
	r.holds(func(at snapshot) error {
		var available int32
		for _, d := range at {
			available += d.available
		}
		if available < total {
			return fmt.Errorf("%d replicas available, at least %d must be", available, total)
		}
		return nil
	})
}

// neverAbove holds that at most so many replicas were wanted at every moment.
func (r *recorder) neverAbove(limit int32, what string) {
	r.s.Helper()
	r.holds(func(at snapshot) error {
		var wanted int32
		for _, d := range at {
			wanted += d.wanted
		}
		if wanted > limit {
			return fmt.Errorf("%d replicas wanted, at most %d may be (%s)", wanted, limit, what)
		}
		return nil
	})
}

// toldOnce checks that an event was told exactly once.
func (s *space) toldOnce(event string) func() error {
	return func() error {
		count := 0
		for _, told := range s.events() {
			if told == event {
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("event %q was told %d times", event, count)
		}
		return nil
	}
}
