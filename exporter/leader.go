package exporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaderElection holds the metrics of client-go's leader election.
type leaderElection struct {
	master   *prometheus.GaugeVec
	slowpath *prometheus.CounterVec
	probed   bool
}

func newLeaderElection() *leaderElection {
	return &leaderElection{
		master: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status",
			Help: "Whether this process holds the lease of that name: 1 leader, 0 standby.",
		}, []string{"name"}),
		slowpath: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leader_election_slowpath_total",
			Help: "Renewals of the lease of that name that had to read it first.",
		}, []string{"name"}),
	}
}

func (l *leaderElection) collectors() []prometheus.Collector {
	return []prometheus.Collector{l.master, l.slowpath}
}

// install offers the metrics to client-go and reports whether it took them.
func (l *leaderElection) install() (bool, error) {
	leaderelection.SetProvider(l)
	// There is no way to read the provider back, but an elector asks it for
	// metrics when it is made. This one is never run.
	_, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          probeLock{},
		LeaseDuration: 3 * time.Second,
		RenewDeadline: 2 * time.Second,
		RetryPeriod:   time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
		},
		Name: probeQueue,
	})
	if err != nil {
		return false, fmt.Errorf("making an elector to see whose metrics client-go uses: %w", err)
	}
	return l.probed, nil
}

// NewLeaderMetric implements leaderelection.MetricsProvider.
func (l *leaderElection) NewLeaderMetric() leaderelection.LeaderMetric { return l }

// On implements leaderelection.LeaderMetric.
func (l *leaderElection) On(name string) { l.master.WithLabelValues(name).Set(1) }

// Off implements leaderelection.LeaderMetric. Electors call it once when they
// are made, so that a standby shows 0.
func (l *leaderElection) Off(name string) {
	if name == probeQueue {
		l.probed = true
		return
	}
	l.master.WithLabelValues(name).Set(0)
	l.slowpath.WithLabelValues(name)
}

// SlowpathExercised implements leaderelection.LeaderMetric.
func (l *leaderElection) SlowpathExercised(name string) { l.slowpath.WithLabelValues(name).Inc() }

// probeLock is the lock of an elector that never runs.
type probeLock struct{}

var errProbe = errors.New("the probe's lock is never used")

func (probeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, errProbe
}
func (probeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return errProbe }
func (probeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error { return errProbe }
func (probeLock) RecordEvent(string)                                              {}
func (probeLock) Identity() string                                                { return probeQueue }
func (probeLock) Describe() string                                                { return probeQueue }
