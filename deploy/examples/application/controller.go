package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// controller keeps a Deployment and a Service for each Application.
type controller struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]

	custom       dynamicinformer.DynamicSharedInformerFactory
	builtin      informers.SharedInformerFactory
	applications cache.GenericLister
	deployments  appslisters.DeploymentLister
	services     corelisters.ServiceLister
	synced       []cache.InformerSynced
}

// newController watches one namespace, or all with "".
func newController(client kubernetes.Interface, dyn dynamic.Interface, namespace string) (*controller, error) {
	c := &controller{
		client: client, dynamic: dyn,
		// The name is the label of the queue's metrics; a queue without a
		// name has none.
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "application"}),
		custom:  dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, namespace, nil),
		builtin: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)),
	}
	apps, deployments, services := c.custom.ForResource(applications), c.builtin.Apps().V1().Deployments(), c.builtin.Core().V1().Services()
	c.applications, c.deployments, c.services = apps.Lister(), deployments.Lister(), services.Lister()
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		key      func(metav1.Object) (cache.ObjectName, bool)
	}{
		{apps.Informer(), func(o metav1.Object) (cache.ObjectName, bool) { return cache.MetaObjectToName(o), true }},
		{deployments.Informer(), ownerName},
		{services.Informer(), ownerName},
	} {
		registration, err := w.informer.AddEventHandler(c.enqueue(w.key))
		if err != nil {
			return nil, fmt.Errorf("watching: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// watcher takes the objects of an informer.
type watcher interface {
	Watch(cache.SharedInformer) (cache.ResourceEventHandlerRegistration, error)
}

// watchWith has a watcher follow the Applications too. Call it before run.
func (c *controller) watchWith(w watcher) error {
	registration, err := w.Watch(c.custom.ForResource(applications).Informer())
	if err != nil {
		return fmt.Errorf("watching Applications for metrics: %w", err)
	}
	c.synced = append(c.synced, registration.HasSynced)
	return nil
}

// ownerName is the Application that controls an object. An object that nobody
// controls may be in the way of the Application of its name.
func ownerName(o metav1.Object) (cache.ObjectName, bool) {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return cache.MetaObjectToName(o), true
	}
	if owner.Kind != kind || owner.APIVersion != applications.GroupVersion().String() {
		return cache.ObjectName{}, false
	}
	return cache.NewObjectName(o.GetNamespace(), owner.Name), true
}

// enqueue makes a handler that queues the Application an object is about.
func (c *controller) enqueue(key func(metav1.Object) (cache.ObjectName, bool)) cache.ResourceEventHandler {
	add := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			if name, ok := key(o); ok {
				c.queue.Add(name)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, obj any) { add(obj) },
		DeleteFunc: add,
	}
}

// run works until ctx is done and returns when every worker and informer has
// stopped.
func (c *controller) run(ctx context.Context, workers int) error {
	c.custom.Start(ctx.Done())
	c.builtin.Start(ctx.Done())
	defer c.custom.Shutdown()
	defer c.builtin.Shutdown()
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return errors.New("stopped before the caches were filled")
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
	return nil
}

// next handles one Application. It returns false when the queue is shut down.
func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.sync(ctx, name); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Will try again", "application", name)
		}
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// sync brings the objects of one Application to what it asks for. Applying
// what is already so changes nothing, and so causes no further event.
func (c *controller) sync(ctx context.Context, name cache.ObjectName) error {
	obj, err := c.applications.ByNamespace(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		// The garbage collector deletes what the Application owned.
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Application %s: %w", name, err)
	}
	app, err := decode(obj.(*unstructured.Unstructured))
	if err != nil {
		return err
	}
	if app.DeletionTimestamp != nil {
		return nil
	}
	if taken := c.taken(app); taken != "" {
		return c.setStatus(ctx, app, app.failed(reasonConflict, taken))
	}
	options := metav1.ApplyOptions{FieldManager: manager, Force: true}
	if _, err := c.client.CoreV1().Services(app.Namespace).Apply(ctx, app.service(), options); err != nil {
		return c.applyFailed(ctx, app, "Service", err)
	}
	deployment, err := c.client.AppsV1().Deployments(app.Namespace).Apply(ctx, app.deployment(), options)
	if err != nil {
		return c.applyFailed(ctx, app, "Deployment", err)
	}
	return c.setStatus(ctx, app, app.status(deployment))
}

// taken names an object of the Application's name that is not the
// Application's: it is left alone.
func (c *controller) taken(app *application) string {
	if d, err := c.deployments.Deployments(app.Namespace).Get(app.Name); err == nil && !metav1.IsControlledBy(d, app) {
		return fmt.Sprintf("Deployment %s exists and does not belong to this Application", app.Name)
	}
	if s, err := c.services.Services(app.Namespace).Get(app.Name); err == nil && !metav1.IsControlledBy(s, app) {
		return fmt.Sprintf("Service %s exists and does not belong to this Application", app.Name)
	}
	return ""
}

// applyFailed shows the failure in the status. What the API server finds
// invalid stays invalid until the Application changes; the rest is tried again.
func (c *controller) applyFailed(ctx context.Context, app *application, what string, err error) error {
	statusErr := c.setStatus(ctx, app, app.failed(reasonRefused, err.Error()))
	if apierrors.IsInvalid(err) {
		return statusErr
	}
	return errors.Join(fmt.Errorf("applying %s of Application %s/%s: %w", what, app.Namespace, app.Name, err), statusErr)
}

// setStatus writes the status if it differs.
func (c *controller) setStatus(ctx context.Context, app *application, status applicationStatus) error {
	if reflect.DeepEqual(app.Status, status) {
		return nil
	}
	app.Status = status
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(app)
	if err != nil {
		return fmt.Errorf("encoding Application %s/%s: %w", app.Namespace, app.Name, err)
	}
	_, err = c.dynamic.Resource(applications).Namespace(app.Namespace).UpdateStatus(ctx, &unstructured.Unstructured{Object: content}, metav1.UpdateOptions{FieldManager: manager})
	// After a conflict or a deletion the informer brings the Application again.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing status of Application %s/%s: %w", app.Namespace, app.Name, err)
	}
	return nil
}
