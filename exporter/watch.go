package exporter

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Watch feeds Objects from an informer of T. Series are there when the
// registration has synced. Hand the registration to RemoveEventHandler of the
// informer to end it.
func (o *Objects[T]) Watch(informer cache.SharedInformer) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { o.observe(obj) },
		UpdateFunc: o.observeChange,
		DeleteFunc: o.observeDeletion,
	})
	if err != nil {
		return nil, fmt.Errorf("watching objects %s for their metrics: %w", o.c.Name, err)
	}
	return registration, nil
}

func (o *Objects[T]) observe(obj any) {
	object, ok := obj.(T)
	if !ok {
		o.renderErrors.Inc()
		o.c.Logger.Error("The informer holds another type", "collector", o.c.Name, "type", fmt.Sprintf("%T", obj))
		return
	}
	if err := o.Put(object); err != nil {
		o.c.Logger.Error("Metrics of an object are missing", "collector", o.c.Name, "err", err)
	}
}

func (o *Objects[T]) observeChange(old, current any) {
	before, ok := old.(T)
	after, okAfter := current.(T)
	if ok && okAfter && before.GetUID() == after.GetUID() && before.GetResourceVersion() != "" && before.GetResourceVersion() == after.GetResourceVersion() {
		// A resync.
		return
	}
	o.observe(current)
}

func (o *Objects[T]) observeDeletion(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		// The final state was missed, and with it perhaps a successor's creation;
		// the informer would then have reported a change instead.
		if key, err := cache.ParseObjectName(tombstone.Key); err == nil {
			o.DeleteKey(key.Namespace, key.Name)
		}
		return
	}
	if object, ok := obj.(T); ok {
		o.Delete(object)
	}
}
