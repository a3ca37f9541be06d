package command

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	"github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned"
)

// look is what is known of a Canary at one moment.
type look struct {
	// canary as it is, nil when it cannot be seen.
	canary *v1alpha1.Canary
	// deleted says that it is gone; no look follows.
	deleted bool
	// trouble says why it cannot be seen at present; looks go on.
	trouble error
}

// follower sees every change of a Canary, over API servers that come and go.
type follower struct {
	client          versioned.Interface
	namespace, name string
	// pause before another attempt, and between looks where watching is not allowed.
	pause time.Duration
	looks chan look
	done  sync.WaitGroup
	stop  context.CancelFunc
}

// follow starts with the Canary as just read. The caller closes the follower.
func (a *app) follow(ctx context.Context, client versioned.Interface, c *v1alpha1.Canary) *follower {
	f := &follower{client: client, namespace: c.Namespace, name: c.Name, pause: a.tick, looks: make(chan look)}
	ctx, f.stop = context.WithCancel(ctx)
	f.done.Go(func() { f.run(ctx, c.ResourceVersion) })
	return f
}

func (f *follower) close() {
	f.stop()
	f.done.Wait()
}

// send reports whether anybody still listens.
func (f *follower) send(ctx context.Context, l look) bool {
	select {
	case f.looks <- l:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *follower) run(ctx context.Context, version string) {
	for ctx.Err() == nil {
		ended, err := f.watch(ctx, version)
		if ended {
			return
		}
		if err != nil && !apierrors.IsForbidden(err) && !f.send(ctx, look{trouble: err}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(f.pause):
		}
		c, err := f.client.CanarycontrollerV1alpha1().Canaries(f.namespace).Get(ctx, f.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			f.send(ctx, look{deleted: true})
			return
		case err != nil:
			f.send(ctx, look{trouble: err})
			continue
		}
		version = c.ResourceVersion
		if !f.send(ctx, look{canary: c}) {
			return
		}
	}
}

// watch passes changes on from version until the connection ends. Where only reading is
// allowed the error is Forbidden.
func (f *follower) watch(ctx context.Context, version string) (ended bool, err error) {
	w, err := f.client.CanarycontrollerV1alpha1().Canaries(f.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String(), ResourceVersion: version,
	})
	if err != nil {
		if ctx.Err() != nil {
			return true, nil
		}
		return false, err
	}
	defer w.Stop()
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return true, nil
		case event, open = <-w.ResultChan():
		}
		if !open {
			return false, nil
		}
		switch event.Type {
		case watch.Added, watch.Modified:
			if c, ok := event.Object.(*v1alpha1.Canary); ok && !f.send(ctx, look{canary: c}) {
				return true, nil
			}
		case watch.Deleted:
			f.send(ctx, look{deleted: true})
			return true, nil
		case watch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return false, nil
			}
			return false, fmt.Errorf("watching: %w", err)
		}
	}
}
