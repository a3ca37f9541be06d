package outlier

import (
	"fmt"
	"math"
	"time"
)

// Defaults that Istio and Envoy apply to fields left unset.
const (
	DefaultConsecutive5xxErrors = 5
	DefaultInterval             = 10 * time.Second
	DefaultBaseEjectionTime     = 30 * time.Second
	DefaultMaxEjectionPercent   = 10
	DefaultConnectTimeout       = 10 * time.Second
	DefaultIdleTimeout          = time.Hour

	// MaxEjectionTime caps base ejection time x times ejected, unless the base
	// itself is longer (Envoy's max_ejection_time, which Istio does not expose).
	MaxEjectionTime = 300 * time.Second
)

// maxRequestsPerConnectionLimit is the bound Istio documents for the field.
const maxRequestsPerConnectionLimit = 1 << 29

// TrafficPolicy is the part of an Istio DestinationRule's trafficPolicy that
// this transport implements. Field names and meanings are those of
// networking.istio.io/v1; the zero value limits nothing and ejects nothing.
type TrafficPolicy struct {
	ConnectionPool ConnectionPool
	// OutlierDetection nil means that no endpoint is ever ejected; a pointer to
	// the zero value means detection with every default.
	OutlierDetection *OutlierDetection
}

// ConnectionPool bounds what the transport has open and outstanding to all
// endpoints together.
type ConnectionPool struct {
	TCP  TCPSettings
	HTTP HTTPSettings
}

// TCPSettings are connectionPool.tcp.
type TCPSettings struct {
	// MaxConnections to all endpoints; 0 is unlimited. As in Envoy, an endpoint
	// chosen by the balancer may always have one, so the total can exceed this
	// by the number of endpoints without a connection.
	MaxConnections int32
	// ConnectTimeout covers TCP connect and the TLS handshake; 0 is 10 s.
	ConnectTimeout time.Duration
}

// HTTPSettings are connectionPool.http. Despite their names both limits apply
// to HTTP/1.1 and HTTP/2. 0 is unlimited.
type HTTPSettings struct {
	// HTTP1MaxPendingRequests bounds the requests waiting for a connection,
	// those waiting for their connection to be established included.
	HTTP1MaxPendingRequests int32
	// HTTP2MaxRequests bounds the requests that hold a connection.
	HTTP2MaxRequests int32
	// MaxRequestsPerConnection closes a connection after that many requests; 1
	// disables keep-alive.
	MaxRequestsPerConnection int32
	// MaxRetries bounds the retries outstanding at one time.
	MaxRetries int32
	// IdleTimeout closes a connection without requests; 0 is one hour. It is
	// checked once per outlier detection interval.
	IdleTimeout time.Duration
}

// OutlierDetection is trafficPolicy.outlierDetection.
type OutlierDetection struct {
	// ConsecutiveErrors is Istio's deprecated field: it counts gateway errors
	// and turns 5xx detection off, each unless the newer field is set.
	ConsecutiveErrors int32
	// ConsecutiveGatewayErrors counts 502, 503, 504 and failures to connect or
	// to get an answer; nil or 0 disables it.
	ConsecutiveGatewayErrors *uint32
	// Consecutive5xxErrors counts every 5xx and the same failures; nil is 5, 0
	// disables it.
	Consecutive5xxErrors *uint32
	// Interval between sweeps, which return endpoints and decay their
	// multiplier; 0 is 10 s.
	Interval time.Duration
	// BaseEjectionTime times the number of ejections in a row is how long an
	// ejection lasts; 0 is 30 s.
	BaseEjectionTime time.Duration
	// MaxEjectionPercent of the endpoints may be ejected, and always one; 0 is
	// 10, as Istio cannot tell 0 from unset.
	MaxEjectionPercent int32
	// MinHealthPercent: with a smaller share of endpoints healthy, ejection is
	// off: all endpoints get traffic and no further one is ejected. 0 disables
	// that.
	MinHealthPercent int32
}

// FieldError says which field of a policy breaks which rule. ParsePolicy and
// TrafficPolicy.Validate return it.
type FieldError struct {
	// Field is the path, such as trafficPolicy.outlierDetection.interval; empty
	// when the document as a whole is at fault.
	Field string
	// Line in the YAML, from 1; 0 when unknown or not read from YAML.
	Line int
	// Problem is the rule that is broken.
	Problem string
}

func (e *FieldError) Error() string {
	s := "outlier: policy"
	if e.Field != "" {
		s += ": " + e.Field
	}
	if e.Line > 0 {
		s += fmt.Sprintf(" (line %d)", e.Line)
	}
	return s + ": " + e.Problem
}

// Validate checks every value and returns a *FieldError for the first that
// breaks a rule, with the path counted from the trafficPolicy.
func (p TrafficPolicy) Validate() error {
	if err := p.validate(); err != nil {
		return err
	}
	return nil
}

func (p TrafficPolicy) validate() *FieldError {
	pool := p.ConnectionPool
	for _, c := range []struct {
		field string
		value int32
		most  int32
	}{
		{"connectionPool.tcp.maxConnections", pool.TCP.MaxConnections, math.MaxInt32},
		{"connectionPool.http.http1MaxPendingRequests", pool.HTTP.HTTP1MaxPendingRequests, math.MaxInt32},
		{"connectionPool.http.http2MaxRequests", pool.HTTP.HTTP2MaxRequests, math.MaxInt32},
		{"connectionPool.http.maxRequestsPerConnection", pool.HTTP.MaxRequestsPerConnection, maxRequestsPerConnectionLimit},
		{"connectionPool.http.maxRetries", pool.HTTP.MaxRetries, math.MaxInt32},
	} {
		if err := checkRange(c.field, c.value, c.most); err != nil {
			return err
		}
	}
	if err := checkDuration("connectionPool.tcp.connectTimeout", pool.TCP.ConnectTimeout); err != nil {
		return err
	}
	if err := checkDuration("connectionPool.http.idleTimeout", pool.HTTP.IdleTimeout); err != nil {
		return err
	}
	o := p.OutlierDetection
	if o == nil {
		return nil
	}
	for _, c := range []struct {
		field string
		value int32
		most  int32
	}{
		{"outlierDetection.consecutiveErrors", o.ConsecutiveErrors, math.MaxInt32},
		{"outlierDetection.maxEjectionPercent", o.MaxEjectionPercent, 100},
		{"outlierDetection.minHealthPercent", o.MinHealthPercent, 100},
	} {
		if err := checkRange(c.field, c.value, c.most); err != nil {
			return err
		}
	}
	if err := checkDuration("outlierDetection.interval", o.Interval); err != nil {
		return err
	}
	return checkDuration("outlierDetection.baseEjectionTime", o.BaseEjectionTime)
}

func checkRange(field string, value, most int32) *FieldError {
	if value < 0 || value > most {
		return &FieldError{Field: field, Problem: fmt.Sprintf("must be between 0 and %d, got %d", most, value)}
	}
	return nil
}

// checkDuration applies the rule of Istio's validation: at least 1 ms and whole
// milliseconds. Zero means unset here; the YAML reader rejects a written zero.
func checkDuration(field string, d time.Duration) *FieldError {
	switch {
	case d == 0:
		return nil
	case d < time.Millisecond:
		return &FieldError{Field: field, Problem: fmt.Sprintf("must be at least 1ms, got %s", d)}
	case d%time.Millisecond != 0:
		return &FieldError{Field: field, Problem: fmt.Sprintf("must be whole milliseconds, got %s", d)}
	}
	return nil
}

// limits are the pool's bounds with "unset" already turned into a number.
type limits struct {
	maxConnections  int64
	maxPending      int64
	maxRequests     int64
	maxRetries      int64
	maxPerConn      int64
	connectTimeout  time.Duration
	idleConnTimeout time.Duration
}

func (c ConnectionPool) limits() limits {
	return limits{
		maxConnections:  orUnlimited(c.TCP.MaxConnections),
		maxPending:      orUnlimited(c.HTTP.HTTP1MaxPendingRequests),
		maxRequests:     orUnlimited(c.HTTP.HTTP2MaxRequests),
		maxRetries:      orUnlimited(c.HTTP.MaxRetries),
		maxPerConn:      orUnlimited(c.HTTP.MaxRequestsPerConnection),
		connectTimeout:  orDuration(c.TCP.ConnectTimeout, DefaultConnectTimeout),
		idleConnTimeout: orDuration(c.HTTP.IdleTimeout, DefaultIdleTimeout),
	}
}

// orUnlimited maps 0 to 2^32-1, which is what Istio writes into Envoy's
// circuit breakers for a field that is unset.
func orUnlimited(v int32) int64 {
	if v == 0 {
		return math.MaxUint32
	}
	return int64(v)
}

func orDuration(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

// rules are the detector's numbers, defaults applied.
type rules struct {
	enabled            bool
	consecutive5xx     uint32
	consecutiveGateway uint32
	interval           time.Duration
	baseEjection       time.Duration
	maxEjection        time.Duration
	maxEjectionPercent int
	minHealthPercent   int
}

func (o *OutlierDetection) rules() rules {
	if o == nil {
		return rules{interval: DefaultInterval}
	}
	r := rules{
		enabled:            true,
		consecutive5xx:     DefaultConsecutive5xxErrors,
		interval:           orDuration(o.Interval, DefaultInterval),
		baseEjection:       orDuration(o.BaseEjectionTime, DefaultBaseEjectionTime),
		maxEjectionPercent: DefaultMaxEjectionPercent,
		minHealthPercent:   int(o.MinHealthPercent),
	}
	r.maxEjection = max(MaxEjectionTime, r.baseEjection)
	if o.MaxEjectionPercent > 0 {
		r.maxEjectionPercent = int(o.MaxEjectionPercent)
	}
	if o.ConsecutiveErrors > 0 {
		r.consecutiveGateway = uint32(o.ConsecutiveErrors)
		r.consecutive5xx = 0
	}
	if o.ConsecutiveGatewayErrors != nil {
		r.consecutiveGateway = *o.ConsecutiveGatewayErrors
	}
	if o.Consecutive5xxErrors != nil {
		r.consecutive5xx = *o.Consecutive5xxErrors
	}
	return r
}
