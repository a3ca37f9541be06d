package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/canarycontroller/canary-controller/controller/gate/prometheus"
	"github.com/canarycontroller/canary-controller/exporter/canary"
)

// gateOptions say where evidence comes from.
type gateOptions struct {
	prometheus        []string
	caFile, tokenFile string
	allow             []string
	clusterDomain     string
	workers           int
	concurrent        int
	queriesPerSecond  float64
	timeout           time.Duration
}

func (o *gateOptions) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.prometheus, "prometheus-url", nil, "Prometheus for gates, and for --outlier-source prometheus; several, separated by commas, for servers that scrape the same targets")
	flags.StringVar(&o.caFile, "prometheus-ca-file", "", "certificates (PEM) to verify that Prometheus with, read again when it changes; empty for the system's")
	flags.StringVar(&o.tokenFile, "prometheus-bearer-token-file", "", "token for that Prometheus, read for each request")
	flags.StringSliceVar(&o.allow, "gate-allow", nil, "host patterns (*.example.com) and CIDRs that a Canary's own spec.gate.prometheus may name, besides the Services of the cluster")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "domain of the cluster's Services")
	flags.IntVar(&o.workers, "gate-workers", 16, "evaluations of gates at once")
	flags.IntVar(&o.concurrent, "gate-concurrent-queries", 8, "queries that one Prometheus works on at once")
	flags.Float64Var(&o.queriesPerSecond, "gate-queries-per-second", 50, "queries a second to one Prometheus")
	flags.DurationVar(&o.timeout, "gate-query-timeout", 10*time.Second, "timeout of a query, unless spec.gate.prometheus.timeout says otherwise")
}

func (o *gateOptions) validate() error {
	switch {
	case o.workers < 1:
		return fmt.Errorf("--gate-workers is %d, it must be at least 1", o.workers)
	case o.concurrent < 1:
		return fmt.Errorf("--gate-concurrent-queries is %d, it must be at least 1", o.concurrent)
	case !(o.queriesPerSecond > 0):
		return fmt.Errorf("--gate-queries-per-second is %g, it must be positive", o.queriesPerSecond)
	case o.timeout <= 0 || o.timeout > time.Minute:
		return fmt.Errorf("--gate-query-timeout is %s, it must be above 0 and at most 1m", o.timeout)
	}
	return nil
}

// firstPrometheus is the one that outlier ejections are read from.
func (o *gateOptions) firstPrometheus() string {
	if len(o.prometheus) == 0 {
		return ""
	}
	return o.prometheus[0]
}

// newGatherer makes what asks for evidence. Secrets are read one by one when a Canary
// names them, and not watched: the operator sees no Secret that it is not told to.
func newGatherer(o *gateOptions, kube kubernetes.Interface, instruments *canary.Instruments) (*prometheus.Gatherer, error) {
	gatherer, err := prometheus.New(prometheus.Config{
		Addresses: o.prometheus, CAFile: o.caFile, BearerTokenFile: o.tokenFile,
		Allow: o.allow, ClusterDomain: o.clusterDomain,
		Timeout: o.timeout, MaxConcurrent: o.concurrent, QueriesPerSecond: o.queriesPerSecond,
		Secret: func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
			secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("reading Secret %s/%s: %w", namespace, name, err)
			}
			return secret.Data, nil
		},
		Observe: func(result string, took time.Duration) {
			instruments.ObserveGateQuery(canary.QueryResult(result), took, "")
		},
		Logger: slog.Default(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the gate: %w", err)
	}
	return gatherer, nil
}
