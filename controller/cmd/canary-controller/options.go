package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/canarycontroller/canary-controller/exporter/outlier"
)

// options are the command's flags.
type options struct {
	kubeconfig string
	namespace  string
	workers    int
	qps        float32
	burst      int
	resync     time.Duration
	logFormat  string
	verbosity  int
	healthAddr string
	metrics    metricsOptions
	outlier    outlierOptions
	gate       gateOptions
	// otlpEndpoint is where the spans of rollouts go.
	otlpEndpoint string
	election     electionOptions
	showVersion  bool
}

type metricsOptions struct {
	address           string
	secure            bool
	certFile, keyFile string
	maxCanaries       int
}

type outlierOptions struct {
	source, selector string
	port             int
}

type electionOptions struct {
	enabled             bool
	namespace, id       string
	lease, renew, retry time.Duration
}

func parse(args []string, output io.Writer) (*options, error) {
	o := &options{}
	flags := pflag.NewFlagSet("canary-controller", pflag.ContinueOnError)
	flags.SetOutput(output)
	flags.SortFlags = false
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; without it the pod's ServiceAccount, then $KUBECONFIG")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "the only namespace to work in; empty for all")
	flags.IntVar(&o.workers, "workers", 4, "Canaries worked on at once")
	flags.Float32Var(&o.qps, "kube-api-qps", 50, "requests a second to the API server, sustained")
	flags.IntVar(&o.burst, "kube-api-burst", 100, "requests a second to the API server, at most for a moment")
	flags.DurationVar(&o.resync, "resync", 10*time.Minute, "how often every Canary is looked at without a change; 0 for never")
	flags.StringVar(&o.logFormat, "log-format", "text", "text or json")
	flags.IntVarP(&o.verbosity, "v", "v", 0, "log verbosity, 0 to 9")
	flags.StringVar(&o.healthAddr, "health-address", ":8081", "address of /healthz and /readyz; empty for none")
	flags.StringVar(&o.metrics.address, "metrics-address", "127.0.0.1:8080", "address of /metrics; empty for none")
	flags.BoolVar(&o.metrics.secure, "metrics-secure", false, "serve /metrics over TLS, to bearers of a token with the right to get it (TokenReview and SubjectAccessReview)")
	flags.StringVar(&o.metrics.certFile, "metrics-tls-cert-file", "", "certificate for --metrics-secure, read again when it changes; empty for a self-signed one")
	flags.StringVar(&o.metrics.keyFile, "metrics-tls-key-file", "", "key of the certificate")
	flags.IntVar(&o.metrics.maxCanaries, "metrics-max-canaries", 20000, "number of Canaries above which their own series are left out")
	flags.StringVar(&o.outlier.source, "outlier-source", "none", "where outlier ejections are read: none, envoy-stats, envoy-admin or prometheus")
	flags.StringVar(&o.outlier.selector, "outlier-proxy-selector", "security.istio.io/tlsMode=istio", "label selector of the pods whose proxies are read")
	flags.IntVar(&o.outlier.port, "outlier-proxy-port", 0, "port of the proxies; 0 for the source's own")
	o.gate.add(flags)
	flags.StringVar(&o.otlpEndpoint, "otlp-endpoint", "", "OTLP collector for the traces of rollouts, such as http://collector:4317 (gRPC) or http://collector:4318 (HTTP); empty for $OTEL_EXPORTER_OTLP_ENDPOINT, or none")
	flags.BoolVar(&o.election.enabled, "leader-elect", true, "work only while holding a Lease, so that replicas take over from each other")
	flags.StringVar(&o.election.namespace, "leader-election-namespace", "", "namespace of the Lease; empty for the pod's own, or default outside a cluster")
	flags.StringVar(&o.election.id, "leader-election-id", "canary-controller", "name of the Lease")
	flags.DurationVar(&o.election.lease, "leader-elect-lease-duration", 15*time.Second, "how long others wait for a leader that is silent")
	flags.DurationVar(&o.election.renew, "leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew before it gives up")
	flags.DurationVar(&o.election.retry, "leader-elect-retry-period", 2*time.Second, "how often to try")
	flags.BoolVar(&o.showVersion, "version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q, every setting is a flag", flags.Arg(0))
	}
	return o, o.validate()
}

func (o *options) validate() error {
	if _, err := outlier.ParseKind(o.outlier.source); err != nil {
		return fmt.Errorf("--outlier-source: %w", err)
	}
	if err := o.gate.validate(); err != nil {
		return err
	}
	switch {
	case o.workers < 1:
		return fmt.Errorf("--workers is %d, it must be at least 1", o.workers)
	case !(o.qps > 0):
		return fmt.Errorf("--kube-api-qps is %g, it must be positive", o.qps)
	case o.burst < 1:
		return fmt.Errorf("--kube-api-burst is %d, it must be at least 1", o.burst)
	case o.resync < 0:
		return fmt.Errorf("--resync is %s, it must not be negative", o.resync)
	case o.logFormat != "text" && o.logFormat != "json":
		return fmt.Errorf("--log-format is %q, it must be text or json", o.logFormat)
	case o.verbosity < 0 || o.verbosity > 9:
		return fmt.Errorf("--v is %d, it must be from 0 to 9", o.verbosity)
	case (o.metrics.certFile == "") != (o.metrics.keyFile == ""):
		return errors.New("--metrics-tls-cert-file and --metrics-tls-key-file go together")
	case o.metrics.certFile != "" && !o.metrics.secure:
		return errors.New("--metrics-tls-cert-file needs --metrics-secure")
	case o.outlier.source == string(outlier.KindPrometheus) && len(o.gate.prometheus) == 0:
		return errors.New("--outlier-source prometheus needs --prometheus-url")
	case o.election.enabled && o.election.id == "":
		return errors.New("--leader-election-id must not be empty")
	// The rules of client-go's elector, whose jitter of a retry is 1.2.
	case o.election.enabled && (o.election.lease < time.Second || o.election.lease <= o.election.renew ||
		float64(o.election.renew) <= leaderelection.JitterFactor*float64(o.election.retry) || o.election.retry <= 0):
		return fmt.Errorf("--leader-elect-lease-duration (%s) must be at least 1s and longer than --leader-elect-renew-deadline (%s), and that longer than 1.2 times --leader-elect-retry-period (%s)",
			o.election.lease, o.election.renew, o.election.retry)
	}
	return nil
}

// logger sets up structured logging for this process and client-go.
func (o *options) logger(w io.Writer) klog.Logger {
	// logr's verbosity N is slog's level -N.
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	var handler slog.Handler = slog.NewTextHandler(w, handlerOptions)
	if o.logFormat == "json" {
		handler = slog.NewJSONHandler(w, handlerOptions)
	}
	logger := logr.FromSlogHandler(handler)
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	slog.SetDefault(slog.New(handler))
	return logger
}
