package pod

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/process"
)

// Config is what an [Engine] needs.
type Config struct {
	Client   kubernetes.Interface
	Recorder record.EventRecorder
	Spawner  *process.Spawner
	// Dir holds the pods' files, Logs their output.
	Dir, Logs string
	// Images is the image table's file. It is read anew at each start of a
	// container.
	Images string
	// Addresses is the range pods get theirs from, without the first Reserved.
	Addresses netip.Prefix
	Reserved  int
	// Host is the nodes' address.
	Host string
	// Server and CAFile are for the kubeconfig each container gets.
	Server, CAFile string
	// MaxBackoff caps the delay before a container that failed, or an image
	// that could not be had, is tried again.
	MaxBackoff time.Duration
	Log        *slog.Logger
}

// Engine runs pods. It implements virtual-kubelet's PodLifecycleHandler and
// PodNotifier and is safe for concurrent use.
type Engine struct {
	cfg       Config
	addresses *addresses
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu     sync.Mutex
	closed bool
	pods   map[types.UID]*podRun
	byName map[types.NamespacedName]*podRun
	notify func(*corev1.Pod)
}

// NewEngine returns an engine with no pods. Close ends it.
func NewEngine(cfg Config) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{
		cfg:       cfg,
		addresses: newAddresses(cfg.Addresses, cfg.Reserved),
		ctx:       ctx,
		cancel:    cancel,
		pods:      map[types.UID]*podRun{},
		byName:    map[types.NamespacedName]*podRun{},
	}
}

func name(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// goRun runs f in a goroutine that Close waits for, unless the engine is
// closed already.
func (e *Engine) goRun(f func(context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.wg.Go(func() { f(e.ctx) })
}

// CreatePod starts a pod. Failures of the pod itself show in its status, as a
// kubelet's do, and are no error here.
func (e *Engine) CreatePod(_ context.Context, pod *corev1.Pod) error {
	ip := e.cfg.Host
	if !pod.Spec.HostNetwork {
		var err error
		if ip, err = e.addresses.take(); err != nil {
			return err
		}
	}
	p := newPodRun(e, pod, ip)
	e.mu.Lock()
	if e.closed || e.pods[pod.UID] != nil {
		e.mu.Unlock()
		p.releaseAddress()
		return nil
	}
	e.pods[pod.UID] = p
	e.byName[name(pod)] = p
	e.mu.Unlock()
	p.begin()
	return nil
}

// UpdatePod takes in a new version of a pod's specification.
//
// A pod that is not known yet is started: it took the name of one that was
// removed by force and still ends.
func (e *Engine) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	p := e.find(pod)
	if p == nil {
		return e.CreatePod(ctx, pod)
	}
	p.update(pod)
	return nil
}

// DeletePod begins to stop a pod, within its grace period, and returns at
// once. When everything has ended the pod is removed from the API server.
func (e *Engine) DeletePod(_ context.Context, pod *corev1.Pod) error {
	p := e.find(pod)
	if p == nil {
		return errdefs.NotFoundf("pod %s is not known", name(pod))
	}
	p.delete(pod)
	return nil
}

func (e *Engine) find(pod *corev1.Pod) *podRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pods[pod.UID]
}

func (e *Engine) named(n types.NamespacedName) *podRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byName[n]
}

// forget drops a pod that has ended.
func (e *Engine) forget(p *podRun) {
	e.mu.Lock()
	if e.pods[p.uid] == p {
		delete(e.pods, p.uid)
	}
	if e.byName[p.name] == p {
		delete(e.byName, p.name)
	}
	e.mu.Unlock()
}

// GetPod returns the pod with its current status.
func (e *Engine) GetPod(_ context.Context, namespace, podName string) (*corev1.Pod, error) {
	p := e.named(types.NamespacedName{Namespace: namespace, Name: podName})
	if p == nil {
		return nil, errdefs.NotFoundf("pod %s/%s is not known", namespace, podName)
	}
	return p.current(), nil
}

// GetPodStatus returns the pod's current status.
func (e *Engine) GetPodStatus(ctx context.Context, namespace, podName string) (*corev1.PodStatus, error) {
	pod, err := e.GetPod(ctx, namespace, podName)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns every pod.
func (e *Engine) GetPods(context.Context) ([]*corev1.Pod, error) {
	e.mu.Lock()
	runs := make([]*podRun, 0, len(e.pods))
	for _, p := range e.pods {
		runs = append(runs, p)
	}
	e.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(runs))
	for _, p := range runs {
		pods = append(pods, p.current())
	}
	return pods, nil
}

// NotifyPods says where changes of status go.
func (e *Engine) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notify = notify
}

func (e *Engine) publish(pod *corev1.Pod) {
	e.mu.Lock()
	notify := e.notify
	e.mu.Unlock()
	if notify != nil {
		notify(pod)
	}
}

// Stopped waits until nothing of the pod runs any more, or ctx ends.
func (e *Engine) Stopped(ctx context.Context, n types.NamespacedName, uid types.UID) {
	e.mu.Lock()
	p := e.pods[uid]
	e.mu.Unlock()
	if p == nil || p.name != n {
		return
	}
	select {
	case <-p.stopped:
	case <-ctx.Done():
	}
}

// Close kills everything that runs and waits for it.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	runs := make([]*podRun, 0, len(e.pods))
	for _, p := range e.pods {
		runs = append(runs, p)
	}
	e.mu.Unlock()
	e.cancel()
	for _, p := range runs {
		p.abandon()
	}
	e.wg.Wait()
}

func (e *Engine) podDir(uid types.UID) string { return filepath.Join(e.cfg.Dir, string(uid)) }

// LogDir is where a pod's output goes, in the layout of a kubelet.
func LogDir(logs string, n types.NamespacedName, uid types.UID) string {
	return filepath.Join(logs, fmt.Sprintf("%s_%s_%s", n.Namespace, n.Name, uid))
}

func (e *Engine) removeFiles(p *podRun) {
	if err := os.RemoveAll(e.podDir(p.uid)); err != nil {
		e.cfg.Log.Warn("removing the files of a pod", "pod", p.name, "error", err)
	}
}
