package exporter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// Install makes client-go report its work queues (workqueue_*), requests to
// the API server (rest_client_*) and leader election (leader_election_*) to
// reg. Call it once per process, before the first queue, client or elector is
// made; those made earlier stay silent. The label controller of the queues is
// the given name, or with "" the name of each queue.
//
// client-go has one slot for each of the three, filled by who comes first.
// Importing a package can be enough, such as
// k8s.io/component-base/metrics/prometheus/workqueue or controller-runtime's
// metrics. If a slot is already taken, Install registers nothing and returns an
// error that says which.
func Install(reg prometheus.Registerer, controller string) error {
	queues, client, leader := newWorkqueues(controller), newRESTClient(), newLeaderElection()

	var errs []error
	taken := func(what, slot, culprit string) {
		errs = append(errs, fmt.Errorf("%s metrics would be missing: another component already called %s, which only heeds the first call; "+
			"look for Install called twice, sigs.k8s.io/controller-runtime, or an import of %s", what, slot, culprit))
	}
	if !installWorkqueues(queues) {
		taken("work queue", "workqueue.SetProvider", "k8s.io/component-base/metrics/prometheus/workqueue")
	}
	if !client.install() {
		taken("REST client", "client-go/tools/metrics.Register", "k8s.io/component-base/metrics/prometheus/restclient")
	}
	if ok, err := leader.install(); err != nil {
		errs = append(errs, err)
	} else if !ok {
		taken("leader election", "leaderelection.SetProvider", "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection")
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return register(reg, "client-go's metrics", slices.Concat(queues.collectors(), client.collectors(), leader.collectors()))
}

// installWorkqueues offers the metrics to client-go and reports whether it
// took them. There is no way to read the provider back, but a queue asks it
// for metrics when it is made.
func installWorkqueues(w *Workqueues) bool {
	workqueue.SetProvider(w)
	workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: probeQueue}).ShutDown()
	return w.probed
}

// register registers all or none.
func register(reg prometheus.Registerer, what string, collectors []prometheus.Collector) error {
	for i, c := range collectors {
		if err := reg.Register(c); err != nil {
			for _, done := range collectors[:i] {
				reg.Unregister(done)
			}
			return fmt.Errorf("registering %s: %w", what, err)
		}
	}
	return nil
}
