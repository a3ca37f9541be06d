package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/canarycontroller/canary-controller/deploy/lab/internal/pod"
)

// Options say which nodes to run.
type Options struct {
	// Kubeconfig holds the nodes' credentials.
	Kubeconfig string
	// Nodes is how many there are, named NamePrefix-0 and on.
	Nodes      int
	NamePrefix string
	// Address and Port are where the kubelet API listens.
	Address string
	Port    int
	// Cert, Key and CA serve the kubelet API; callers need a certificate of CA.
	Cert, Key, CA string
	// Version is the kubelet version the nodes report.
	Version string
	// Pod configures the runtime; Client and Recorder are filled in.
	Pod pod.Config
	Log *slog.Logger
}

// Kubelet is the running nodes.
type Kubelet struct {
	engine      *pod.Engine
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	broadcaster record.EventBroadcaster
	server      *http.Server
}

// podWorkers handle the pods' changes and their status reports.
const podWorkers = 8

// Start joins the nodes and returns when all are ready. ctx bounds the start
// only; Stop ends the nodes.
func Start(ctx context.Context, opts Options) (_ *Kubelet, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", opts.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "lab-kubelet"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &Kubelet{cancel: cancel, broadcaster: record.NewBroadcaster(record.WithContext(run))}
	defer func() {
		if err != nil {
			k.Stop()
		}
	}()
	k.broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := k.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: opts.NamePrefix + "-0"})
	opts.Pod.Client, opts.Pod.Recorder = client, recorder
	opts.Pod.Host = opts.Address
	k.engine = pod.NewEngine(opts.Pod)

	pods, err := k.startPods(run, client, recorder, opts)
	if err != nil {
		return nil, err
	}
	if err := k.serve(opts, pods); err != nil {
		return nil, err
	}
	return k, k.startNodes(ctx, run, client, opts)
}

// startPods runs the pod controller of all nodes.
func (k *Kubelet) startPods(run context.Context, client kubernetes.Interface, recorder record.EventRecorder, opts Options) (api.PodListerFunc, error) {
	assigned := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}))
	// The pod controller wants informers to resolve references in pods, which
	// the engine does itself: they are never started.
	unused := informers.NewSharedInformerFactory(client, 0)
	nodes := map[string]bool{}
	for i := range opts.Nodes {
		nodes[nodeName(opts, i)] = true
	}
	limiter := func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Millisecond, 5*time.Second)
	}
	informer := assigned.Core().V1().Pods()
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient:                            &podClient{PodsGetter: client.CoreV1(), lister: informer.Lister(), engine: k.engine},
		PodInformer:                          informer,
		EventRecorder:                        quietRecorder{recorder},
		Provider:                             k.engine,
		ConfigMapInformer:                    unused.Core().V1().ConfigMaps(),
		SecretInformer:                       unused.Core().V1().Secrets(),
		ServiceInformer:                      unused.Core().V1().Services(),
		SyncPodsFromKubernetesRateLimiter:    limiter(),
		DeletePodsFromKubernetesRateLimiter:  limiter(),
		SyncPodStatusFromProviderRateLimiter: limiter(),
		PodEventFilterFunc:                   func(_ context.Context, p *corev1.Pod) bool { return nodes[p.Spec.NodeName] },
		SkipDownwardAPIResolution:            true,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the pod controller: %w", err)
	}
	assigned.Start(run.Done())
	k.wg.Go(func() {
		if err := controller.Run(run, podWorkers); err != nil {
			opts.Log.Error("the pod controller ended", "error", err)
		}
	})
	k.wg.Go(func() {
		<-run.Done()
		assigned.Shutdown()
	})
	select {
	case <-controller.Ready():
	case <-controller.Done():
		return nil, fmt.Errorf("starting the pod controller: %w", controller.Err())
	case <-run.Done():
		return nil, run.Err()
	}
	lister := informer.Lister()
	return func(context.Context) ([]*corev1.Pod, error) { return lister.List(labels.Everything()) }, nil
}

// serve serves the part of the kubelet API that the lab has: pods and logs.
func (k *Kubelet) serve(opts Options, pods api.PodListerFunc) error {
	cert, err := tls.LoadX509KeyPair(opts.Cert, opts.Key)
	if err != nil {
		return fmt.Errorf("loading the kubelet's certificate: %w", err)
	}
	ca, err := os.ReadFile(opts.CA)
	if err != nil {
		return fmt.Errorf("loading the kubelet's client authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	listener, err := tls.Listen("tcp", fmt.Sprintf("%s:%d", opts.Address, opts.Port), &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		MinVersion:   tls.VersionTLS12,
	})
	if err != nil {
		return fmt.Errorf("serving the kubelet API: %w", err)
	}
	k.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: api.PodHandler(api.PodHandlerConfig{
			GetContainerLogs:      k.engine.ContainerLogs,
			GetPods:               k.engine.GetPods,
			GetPodsFromKubernetes: pods,
		}, false),
	}
	k.wg.Go(func() {
		if err := k.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			opts.Log.Error("serving the kubelet API", "error", err)
		}
	})
	return nil
}

// startNodes registers the nodes and keeps them alive.
func (k *Kubelet) startNodes(ctx, run context.Context, client kubernetes.Interface, opts Options) error {
	controllers := make([]*node.NodeController, 0, opts.Nodes)
	for i := range opts.Nodes {
		object := newNode(opts, i, time.Now())
		c, err := node.NewNodeController(node.NaiveNodeProvider{}, object, client.CoreV1().Nodes(),
			node.WithNodeEnableLeaseV1(client.CoordinationV1().Leases(corev1.NamespaceNodeLease), node.DefaultLeaseDuration))
		if err != nil {
			return fmt.Errorf("creating node %s: %w", object.Name, err)
		}
		controllers = append(controllers, c)
		k.wg.Go(func() {
			if err := c.Run(run); err != nil && run.Err() == nil {
				opts.Log.Error("a node ended", "node", object.Name, "error", err)
			}
		})
	}
	for _, c := range controllers {
		select {
		case <-c.Ready():
		case <-c.Done():
			return fmt.Errorf("starting a node: %w", c.Err())
		case <-ctx.Done():
			return fmt.Errorf("starting the nodes: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Stop kills every pod's processes and ends the nodes. The API server keeps
// the node and pod objects.
func (k *Kubelet) Stop() {
	if k.engine != nil {
		k.engine.Close()
	}
	if k.server != nil {
		_ = k.server.Close()
	}
	k.cancel()
	k.wg.Wait()
	k.broadcaster.Shutdown()
}
