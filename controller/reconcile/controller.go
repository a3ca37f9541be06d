package reconcile

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
	canaryinformers "github.com/canarycontroller/canary-controller/controller/generated/informers/externalversions"
	canarylisters "github.com/canarycontroller/canary-controller/controller/generated/listers/canarycontroller/v1alpha1"
)

// QueueName is the name of the work queue in metrics.
const QueueName = "canaries"

// drainTimeout is how long items in work may go on after a stop is asked for. It is below
// the 30 s that a kubelet grants by default.
const drainTimeout = 20 * time.Second

// Options configure a Controller.
type Options struct {
	Kubernetes kubernetes.Interface
	Canaries   versioned.Interface
	// Namespace limits the controller to one namespace; empty for all.
	Namespace string
	// Resync is how often every Canary is looked at without a change; 0 for never.
	Resync time.Duration
	// Now is the clock; nil for time.Now.
	Now func() time.Time
	// Gatherer asks for evidence; nil when no Canary can have any.
	Gatherer Gatherer
	// Observer hears of syncs and status changes; nil for none.
	Observer Observer
}

// Observer hears what the controller did. Its methods are called from several workers
// at once and must not block.
type Observer interface {
	// Synced tells of one finished sync, and of the trace of the rollout it was about.
	Synced(took time.Duration, traceID string, err error)
	// StatusWritten tells of a status that the API server has accepted. Both objects are
	// only to be read.
	StatusWritten(before, after *v1alpha1.Canary)
	// Deleted tells of a Canary that is about to go, perhaps more than once.
	Deleted(c *v1alpha1.Canary)
}

// Controller reconciles Canaries. Create it with New, call Start once, then Run once.
type Controller struct {
	kube     kubernetes.Interface
	canaries versioned.Interface
	now      func() time.Time
	observer Observer
	gatherer Gatherer

	factories   []interface{ Start(<-chan struct{}) }
	shutdown    []interface{ Shutdown() }
	canary      cache.SharedIndexInformer
	canaryList  canarylisters.CanaryLister
	deployment  cache.SharedIndexInformer
	deployments appslisters.DeploymentLister
	autoscaler  cache.SharedIndexInformer
	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister

	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// gates are the Canaries whose evidence is due, gatherings the evidence by Canary.
	gates      workqueue.TypedInterface[cache.ObjectName]
	gatherings sync.Map
	recorder   record.EventRecorder
	events     record.EventBroadcaster

	// ledger remembers what this process wrote last, by Deployment.
	ledger ledger
	// written is the resourceVersion of the last status written, by Canary.
	written sync.Map
}

// New returns a controller whose informers are not yet started.
func New(ctx context.Context, o Options) (*Controller, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	kubeFactory := informers.NewSharedInformerFactoryWithOptions(o.Kubernetes, 0,
		informers.WithNamespace(o.Namespace))
	canaryFactory := canaryinformers.NewSharedInformerFactoryWithOptions(o.Canaries, o.Resync,
		canaryinformers.WithNamespace(o.Namespace))
	canary := canaryFactory.Canarycontroller().V1alpha1().Canaries()
	deployment := kubeFactory.Apps().V1().Deployments()
	autoscaler := kubeFactory.Autoscaling().V2().HorizontalPodAutoscalers()

	c := &Controller{
		kube: o.Kubernetes, canaries: o.Canaries, now: o.Now, observer: o.Observer, gatherer: o.Gatherer,
		factories:   []interface{ Start(<-chan struct{}) }{kubeFactory, canaryFactory},
		shutdown:    []interface{ Shutdown() }{kubeFactory, canaryFactory},
		canary:      canary.Informer(),
		canaryList:  canary.Lister(),
		deployment:  deployment.Informer(),
		deployments: deployment.Lister(),
		autoscaler:  autoscaler.Informer(),
		autoscalers: autoscaler.Lister(),
		ledger:      ledger{entries: map[types.NamespacedName]ledgerEntry{}},
	}
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](50*time.Millisecond, time.Minute),
			&workqueue.TypedBucketRateLimiter[cache.ObjectName]{Limiter: rate.NewLimiter(50, 300)},
		),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: QueueName})
	c.gates = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: GateQueueName})
	// A rollout of many batches is many different events about one object; the defaults
	// would drop all after the 25th and merge similar ones.
	c.events = record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(
		record.CorrelatorOptions{BurstSize: 1000, QPS: 1, MaxEvents: 1000}))
	recorderScheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(recorderScheme); err != nil {
		return nil, fmt.Errorf("registering the Canary types for events: %w", err)
	}
	c.recorder = c.events.NewRecorder(recorderScheme, corev1.EventSource{Component: v1alpha1.FieldManager})
	if err := c.watch(klog.FromContext(ctx)); err != nil {
		return nil, err
	}
	return c, nil
}

// Informer returns the shared informer of Canaries, for collectors to listen to.
func (c *Controller) Informer() cache.SharedIndexInformer { return c.canary }

// Lister returns the lister of Canaries.
func (c *Controller) Lister() canarylisters.CanaryLister { return c.canaryList }

// Start fills the caches and keeps them current until ctx ends; a process that waits to
// become leader starts early, so that it can take over at once. It returns true when they
// are filled and false when stop or ctx ended the wait.
func (c *Controller) Start(ctx context.Context, stop <-chan struct{}) (filled bool) {
	for _, factory := range c.factories {
		factory.Start(ctx.Done())
	}
	return cache.WaitForCacheSync(stop, func() bool { return ctx.Err() != nil || c.HasSynced() }) && ctx.Err() == nil
}

// HasSynced says whether the caches are filled.
func (c *Controller) HasSynced() bool {
	return c.canary.HasSynced() && c.deployment.HasSynced() && c.autoscaler.HasSynced()
}

// Run works until stop is closed, then finishes the items in work for at most 20 s; when
// ctx ends it stops at once. It returns after every worker has.
func (c *Controller) Run(ctx context.Context, stop <-chan struct{}, workers, gateWorkers int) error {
	logger := klog.FromContext(ctx)
	c.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
	defer c.events.Shutdown()

	work, cancel := context.WithCancel(ctx)
	defer cancel()
	// Evidence that is still being asked for at the end is of no use to anybody.
	asking, stopAsking := context.WithCancel(work)
	defer stopAsking()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c.processNext(work) {
			}
		})
	}
	for range gateWorkers {
		group.Go(func() {
			for c.gatherNext(asking) {
			}
		})
	}
	logger.Info("Workers started", "workers", workers, "gateWorkers", gateWorkers)
	select {
	case <-stop:
	case <-ctx.Done():
	}
	stopAsking()
	c.gates.ShutDown()
	c.queue.ShutDown()
	timer := time.AfterFunc(drainTimeout, cancel)
	defer timer.Stop()
	group.Wait()
	logger.Info("Workers stopped")
	return context.Cause(ctx)
}

// Close waits for the informers after the context of Start has ended.
func (c *Controller) Close() {
	for _, factory := range c.shutdown {
		factory.Shutdown()
	}
}

// processNext works on one item and returns false when there will be no more.
func (c *Controller) processNext(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "canary", name)
	started := c.now()
	err := c.syncSafely(klog.NewContext(ctx, logger), name)
	if c.observer != nil {
		c.observer.Synced(c.now().Sub(started), c.traceOf(name), err)
	}
	switch {
	case err == nil:
		c.queue.Forget(name)
	case ctx.Err() != nil:
	default:
		if !IsConflict(err) {
			logger.Error(err, "Sync failed, will be retried", "failures", c.queue.NumRequeues(name)+1)
		}
		c.queue.AddRateLimited(name)
	}
	return true
}

// traceOf returns the trace of a Canary's rollout, or "".
func (c *Controller) traceOf(name cache.ObjectName) string {
	canary, err := c.canaryList.Canaries(name.Namespace).Get(name.Name)
	if err != nil || canary.Status.Rollout == nil {
		return ""
	}
	return canary.Status.Rollout.TraceID
}

// syncSafely turns a panic into an error, so that one object cannot stop the others.
func (c *Controller) syncSafely(ctx context.Context, name cache.ObjectName) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("syncing Canary %s panicked: %v\n%s", name, p, debug.Stack())
		}
	}()
	return c.sync(ctx, name)
}
