package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// namespaceFile holds the pod's own namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// errLeaseLost ends the process: another one may be at work already.
var errLeaseLost = errors.New("lost the leader election lease")

// elector runs work while this process leads, or at once where election is off.
type elector struct {
	options electionOptions
	lock    resourcelock.Interface
	leading atomic.Bool
}

func newElector(ctx context.Context, o *options, config *rest.Config) (*elector, error) {
	e := &elector{options: o.election}
	if !o.election.enabled {
		return e, nil
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this process for leader election: %w", err)
	}
	// Lease requests have a client of their own, so that a burst of work cannot delay them.
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "leader-election"))
	if err != nil {
		return nil, fmt.Errorf("making the leader election client: %w", err)
	}
	e.lock, err = resourcelock.New(resourcelock.LeasesResourceLock, leaseNamespace(o.election.namespace), o.election.id,
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{
			Identity: hostname + "_" + string(uuid.NewUUID()),
		})
	if err != nil {
		return nil, fmt.Errorf("making the lease %s: %w", o.election.id, err)
	}
	klog.FromContext(ctx).V(2).Info("Leader election is on", "lease", e.lock.Describe(), "identity", e.lock.Identity())
	return e, nil
}

func leaseNamespace(configured string) string {
	if configured != "" {
		return configured
	}
	if own, err := os.ReadFile(namespaceFile); err == nil {
		return strings.TrimSpace(string(own))
	}
	return "default"
}

// lead waits for the lease, runs work until stop is closed or the lease is lost, and
// gives the lease back only when work has returned. It returns errLeaseLost after a loss.
func (e *elector) lead(ctx context.Context, stop <-chan struct{}, work func(context.Context) error) error {
	if !e.options.enabled {
		e.leading.Store(true)
		return work(ctx)
	}
	electing, endElection := context.WithCancel(ctx)
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		select {
		case <-stop:
			// A leader's work ends the election itself, when it has drained.
			if !e.leading.Load() {
				endElection()
			}
		case <-electing.Done():
		}
	}()
	defer func() {
		endElection()
		<-waiting
	}()

	worked := make(chan error, 1)
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: e.options.id, ReleaseOnCancel: true,
		LeaseDuration: e.options.lease, RenewDeadline: e.options.renew, RetryPeriod: e.options.retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				e.leading.Store(true)
				worked <- work(leading)
				endElection()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up leader election: %w", err)
	}
	le.Run(electing)
	if !e.leading.Load() {
		return nil
	}
	lost := electing.Err() == nil
	endElection()
	workErr := <-worked
	if lost {
		return errLeaseLost
	}
	return workErr
}
