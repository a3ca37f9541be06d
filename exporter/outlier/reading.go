package outlier

import (
	"time"
)

// EjectionType is why Envoy ejected an endpoint, the label "type" of
// canary_outlier_ejections_total.
type EjectionType string

// The kinds of ejection of Envoy's outlier detection
// (https://www.envoyproxy.io/docs/envoy/latest/configuration/upstream/cluster_manager/cluster_stats#outlier-detection-statistics).
const (
	Consecutive5xx                EjectionType = "consecutive_5xx"
	ConsecutiveGatewayFailure     EjectionType = "consecutive_gateway_failure"
	ConsecutiveLocalOriginFailure EjectionType = "consecutive_local_origin_failure"
	SuccessRate                   EjectionType = "success_rate"
	LocalOriginSuccessRate        EjectionType = "local_origin_success_rate"
	FailurePercentage             EjectionType = "failure_percentage"
	LocalOriginFailurePercentage  EjectionType = "local_origin_failure_percentage"
	// Unspecified are enforced ejections that no counter of a known kind
	// accounts for: where only the total is published, where Envoy has a new
	// kind, and where ejections were seen in an endpoint list.
	Unspecified EjectionType = "unspecified"
)

// EjectionTypes are all kinds, in the order of the counters of a
// [ClusterReading].
var EjectionTypes = [numTypes]EjectionType{
	Consecutive5xx, ConsecutiveGatewayFailure, ConsecutiveLocalOriginFailure,
	SuccessRate, LocalOriginSuccessRate, FailurePercentage, LocalOriginFailurePercentage,
	Unspecified,
}

const (
	numTypes = 8
	// In a reading, where the last of the types would stand, is Envoy's own
	// total over all kinds.
	counterTotal = numTypes - 1
)

// counterOf maps the tail of a counter's name, after "ejections_enforced_",
// to its place in ClusterReading.Enforced. Envoy's documentation and its code
// disagree on the last kind; both spellings are read.
var counterOf = map[string]int{
	"consecutive_5xx":                  0,
	"consecutive_gateway_failure":      1,
	"consecutive_local_origin_failure": 2,
	"success_rate":                     3,
	"local_origin_success_rate":        4,
	"failure_percentage":               5,
	"local_origin_failure_percentage":  6,
	"failure_percentage_local_origin":  6,
	"total":                            counterTotal,
}

// Reading is what one proxy said in one sweep. A source hands over whole
// readings only: a body that broke off is a failure, not a reading.
type Reading struct {
	// Proxy identifies the proxy across sweeps: a pod's UID or the labels of
	// a scrape target.
	Proxy string
	// Created is when the proxy's container started, as the API server knows
	// it, and Booted when the proxy itself says it started. Zero is unknown.
	Created, Booted time.Time
	// At is when reading the proxy began.
	At time.Time
	// Clusters are the clusters of interest that the proxy has.
	Clusters []ClusterReading
}

// ClusterReading is one proxy's view of one cluster.
type ClusterReading struct {
	// Name is Envoy's cluster name.
	Name string
	// Active is the number of endpoints ejected now; meaningful if HasActive.
	Active    float64
	HasActive bool
	// Enforced are the enforced ejections since the proxy started, in the
	// order of EjectionTypes with the total over all kinds last. A negative
	// value means that the proxy does not publish the counter.
	Enforced [numTypes]float64
	// Connections are the connections made to the cluster since the proxy
	// started; negative if the proxy does not say.
	Connections float64
	// Endpoints are the endpoints of the cluster, from sources that have them.
	Endpoints []EndpointReading
}

// EndpointReading is one proxy's view of one endpoint.
type EndpointReading struct {
	// Address is the endpoint's IP without port.
	Address string
	// Ejected: outlier detection has taken the endpoint out.
	Ejected bool
	// Connections made to the endpoint; negative if the proxy does not say.
	Connections float64
}

func newClusterReading(name string) *ClusterReading {
	c := &ClusterReading{Name: name, Connections: -1}
	for i := range c.Enforced {
		c.Enforced[i] = -1
	}
	return c
}

// Sink takes what a source reads. A source may call it from several goroutines.
type Sink interface {
	// Observe takes one proxy's reading.
	Observe(Reading)
	// Fail records that a proxy could not be read.
	Fail(proxy string, err error)
}
