package reconcile

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/canarycontroller/canary-controller/controller/apis/canarycontroller/v1alpha1"
	canaryfake "github.com/canarycontroller/canary-controller/controller/generated/clientset/versioned/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// observed collects what the controller tells its observer.
type observed struct {
	mu     sync.Mutex
	errs   []error
	phases map[v1alpha1.Phase]int
}

func (o *observed) Synced(_ time.Duration, _ string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
	}
}

func (o *observed) StatusWritten(_, after *v1alpha1.Canary) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.phases[after.Status.Phase]++
}

func (o *observed) Deleted(*v1alpha1.Canary) {}

// TestAPanicInOneItemDoesNotStopTheOthers needs an API client that panics, which no real
// API server brings about.
func TestAPanicInOneItemDoesNotStopTheOthers(t *testing.T) {
	bad, _ := release(t, func(c *v1alpha1.Canary) { c.Name, c.UID = "bad", "bad" })
	good := bad.DeepCopy()
	good.Name, good.UID = "good", "good"
	good.Spec.Info.NewDeploymentYaml = "kind: Job\napiVersion: batch/v1\n"
	canaries := canaryfake.NewSimpleClientset(bad, good)
	canaries.PrependReactor("patch", "canaries", func(clienttesting.Action) (bool, runtime.Object, error) {
		panic("out of order")
	})
	seen := &observed{phases: map[v1alpha1.Phase]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := New(ctx, Options{Kubernetes: emptyCluster(t), Canaries: canaries, Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	if !c.Start(ctx, stop) {
		t.Fatal("caches were not filled")
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, stop, 1, 1) }()

	deadline := time.Now().Add(20 * time.Second)
	for {
		seen.mu.Lock()
		panicked, invalid := len(seen.errs) > 1, seen.phases[v1alpha1.PhaseInvalid] > 0
		seen.mu.Unlock()
		if panicked && invalid {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("panics %t, other Canary marked invalid %t", panicked, invalid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("Run returned %v", err)
	}
	cancel()
	c.Close()
	if err := seen.errs[0]; !strings.Contains(err.Error(), "syncing Canary prod/bad panicked: out of order") || errors.Is(err, errConflict) {
		t.Errorf("the panic became %v", err)
	}
}
