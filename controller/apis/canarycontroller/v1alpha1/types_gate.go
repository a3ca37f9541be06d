package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Gate makes promotion depend on evidence. A batch is promoted when every check passes and
// no alert fires; it is never promoted for want of evidence, nor rolled back for it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.checks) && size(self.checks) > 0) || (has(self.alerts) && size(self.alerts) > 0)",message="spec.gate needs at least one check or alert"
type Gate struct {
	// Prometheus is the server that is asked; by default the controller's --prometheus-url.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
	// Interval is the time between evaluations. Default 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be from 1s to 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// HoldDeadline is how long a batch may stay without a verdict, counted from when it
	// became available, or last passed. Default 30m.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="holdDeadline must be at least 1s"
	HoldDeadline *metav1.Duration `json:"holdDeadline,omitempty"`
	// OnHold says what happens after HoldDeadline. Default Pause.
	// +optional
	// +kubebuilder:default=Pause
	OnHold GateAction `json:"onHold,omitempty"`
	// OnFail says what evidence of harm does. Default Rollback.
	// +optional
	// +kubebuilder:default=Rollback
	OnFail GateAction `json:"onFail,omitempty"`
	// FalseRollback is the probability, over the whole rollout, that proportion checks roll
	// back a version that is as good as the old one and within every max. Default 1%.
	// +optional
	// +kubebuilder:default="1%"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}(\.[0-9]{1,6})?%$`
	FalseRollback string `json:"falseRollback,omitempty"`
	// FalsePromotion is the probability that a version worse by harm, or over max, is
	// promoted. Default 1%.
	// +optional
	// +kubebuilder:default="1%"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}(\.[0-9]{1,6})?%$`
	FalsePromotion string `json:"falsePromotion,omitempty"`
	// Checks are all evaluated each time.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Checks []GateCheck `json:"checks,omitempty"`
	// Alerts selects alerting rules of Prometheus that must be loaded, healthy and quiet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Alerts []GateAlert `json:"alerts,omitempty"`
}

// GateAction is what the gate does besides holding.
//
// +kubebuilder:validation:Enum=Pause;Rollback
type GateAction string

const (
	// GatePause leaves everything as it is until a person decides.
	GatePause GateAction = "Pause"
	// GateRollback goes back to the old version.
	GateRollback GateAction = "Rollback"
)

// PrometheusSource is a Prometheus or several that scrape the same targets.
type PrometheusSource struct {
	// Addresses are base URLs; each is asked and the worst answer counts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^https?://[^/?#@]+(/[^?#]*)?$`
	Addresses []string `json:"addresses,omitempty"`
	// Address is the short form of one address.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^?#]*)?$`
	Address string `json:"address,omitempty"`
	// Timeout of one query. Default 10s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('60s')",message="timeout must be from 100ms to 60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Secret in the Canary's namespace with any of the keys token (bearer), username and
	// password (basic), ca.crt (PEM).
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
	// ServerName is the name expected in the server's certificate, if not the address's host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
}

// All returns the addresses, or nil for the controller's own.
func (p *PrometheusSource) All() []string {
	switch {
	case p == nil:
		return nil
	case p.Address != "":
		return append([]string{p.Address}, p.Addresses...)
	}
	return p.Addresses
}

// GateCheck is one check; exactly one kind is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.proportion), has(self.threshold), has(self.outlier)].filter(x, x).size() == 1",message="a check needs exactly one of proportion, threshold and outlier"
type GateCheck struct {
	// Name tells the checks of a gate apart.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`
	// Proportion judges the share of bad requests, by counts of both versions.
	// +optional
	Proportion *ProportionCheck `json:"proportion,omitempty"`
	// Threshold compares a value with limits.
	// +optional
	Threshold *ThresholdCheck `json:"threshold,omitempty"`
	// Outlier limits the share of the new version's endpoints that its callers ejected.
	// +optional
	Outlier *OutlierCheck `json:"outlier,omitempty"`
}

// Kind is the check's kind in status and metrics.
func (c *GateCheck) Kind() CheckKind {
	switch {
	case c.Proportion != nil:
		return CheckProportion
	case c.Outlier != nil:
		return CheckOutlier
	}
	return CheckThreshold
}

// CheckKind is what a check judges by.
//
// +kubebuilder:validation:Enum=proportion;threshold;outlier;alert
type CheckKind string

// The kinds of checks.
const (
	CheckProportion CheckKind = "proportion"
	CheckThreshold  CheckKind = "threshold"
	CheckOutlier    CheckKind = "outlier"
	CheckAlert      CheckKind = "alert"
)

// CheckKinds lists every kind.
func CheckKinds() []CheckKind {
	return []CheckKind{CheckProportion, CheckThreshold, CheckOutlier, CheckAlert}
}

// ProportionCheck judges bad against all requests since the batch became available, with a
// sequential test whose errors hold at any number of looks.
//
// +kubebuilder:validation:XValidation:rule="has(self.preset) != has(self.bad)",message="a proportion check needs either preset, or bad and total"
// +kubebuilder:validation:XValidation:rule="has(self.bad) == has(self.total) && has(self.oldBad) == has(self.oldTotal)",message="bad goes with total, and oldBad with oldTotal"
// +kubebuilder:validation:XValidation:rule="!has(self.harm) || has(self.preset) || has(self.oldBad)",message="harm is the difference from the old version and needs oldBad and oldTotal"
type ProportionCheck struct {
	// Preset names ready-made queries.
	// +optional
	Preset Preset `json:"preset,omitempty"`
	// Bad and Total are queries of the new version's bad and of all its requests in
	// {{ .Window }}; each must return one series.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Bad string `json:"bad,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Total string `json:"total,omitempty"`
	// OldBad and OldTotal are the same of the old version.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	OldBad string `json:"oldBad,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	OldTotal string `json:"oldTotal,omitempty"`
	// Max is the share of bad requests that is never accepted.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}(\.[0-9]{1,6})?%$`
	Max string `json:"max"`
	// Harm is the difference from the old version's share that must be caught. Default: half of max.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}(\.[0-9]{1,6})?%$`
	Harm string `json:"harm,omitempty"`
}

// Preset is a set of ready-made queries.
//
// +kubebuilder:validation:Enum=http-server;istio;envoy
type Preset string

// The presets.
const (
	// PresetHTTPServer reads http_server_request_duration_seconds of our middleware.
	PresetHTTPServer Preset = "http-server"
	// PresetIstio reads istio_requests_total as the destination reports it.
	PresetIstio Preset = "istio"
	// PresetEnvoy reads envoy_cluster_upstream_rq_xx of the clusters named after the Deployments.
	PresetEnvoy Preset = "envoy"
)

// ThresholdCheck compares the single value of a query with limits.
//
// +kubebuilder:validation:XValidation:rule="has(self.max) || has(self.min)",message="a threshold check needs max or min"
// +kubebuilder:validation:XValidation:rule="!has(self.minSamples) || self.minSamples == 0 || has(self.samples)",message="minSamples needs the query samples"
type ThresholdCheck struct {
	// Query returns the value.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// Max and Min are the limits; a value equal to one is within it.
	// +optional
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	Max string `json:"max,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	Min string `json:"min,omitempty"`
	// Samples is a query of how many observations the value rests on.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Samples string `json:"samples,omitempty"`
	// MinSamples is the number of observations below which there is no verdict.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinSamples int64 `json:"minSamples,omitempty"`
	// Passes and Failures are how many evaluations in a row it takes. Default 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Passes int32 `json:"passes,omitempty"`
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Failures int32 `json:"failures,omitempty"`
}

// OutlierCheck limits the share of the new version's endpoints that are ejected by the
// proxies that call it, as canary_outlier_ejected_endpoints counts them.
type OutlierCheck struct {
	// Max is the accepted share of ejected endpoints.
	// +kubebuilder:validation:Pattern=`^([0-9]{1,2}(\.[0-9]{1,6})?|100)%$`
	Max string `json:"max"`
	// Passes and Failures are how many evaluations in a row it takes. Default 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Passes int32 `json:"passes,omitempty"`
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Failures int32 `json:"failures,omitempty"`
}

// GateAlert selects alerting rules by labels of the rules themselves. Of their alerts,
// those count whose labels namespace and canary, where they have them, are this Canary's.
type GateAlert struct {
	// MatchLabels are equal to the rule's; alertname is its name.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=10
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 128 && size(self[name]) <= 256)",message="names in matchLabels may have 128 characters, values 256"
	MatchLabels map[string]string `json:"matchLabels"`
}
