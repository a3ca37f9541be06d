package outlier

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

const wholeRule = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  name: reviews-cb-policy
  labels: {team: books}
spec:
  host: reviews.prod.svc.cluster.local
  trafficPolicy:
    loadBalancer:
      simple: ROUND_ROBIN
    connectionPool:
      tcp:
        maxConnections: 100
        connectTimeout: 30ms
      http:
        http1MaxPendingRequests: 1
        http2MaxRequests: 1000
        maxRequestsPerConnection: 10
        maxRetries: 3
        idleTimeout: 1m30s
    outlierDetection:
      consecutive5xxErrors: 7
      consecutiveGatewayErrors: 0
      interval: 5m
      baseEjectionTime: 15m
      maxEjectionPercent: 50
      minHealthPercent: 40
status: {}
`

var wholePolicy = TrafficPolicy{
	ConnectionPool: ConnectionPool{
		TCP:  TCPSettings{MaxConnections: 100, ConnectTimeout: 30 * time.Millisecond},
		HTTP: HTTPSettings{HTTP1MaxPendingRequests: 1, HTTP2MaxRequests: 1000, MaxRequestsPerConnection: 10, MaxRetries: 3, IdleTimeout: 90 * time.Second},
	},
	OutlierDetection: &OutlierDetection{
		Consecutive5xxErrors: u32(7), ConsecutiveGatewayErrors: u32(0),
		Interval: 5 * time.Minute, BaseEjectionTime: 15 * time.Minute,
		MaxEjectionPercent: 50, MinHealthPercent: 40,
	},
}

func TestParsePolicy(t *testing.T) {
	whole := Policy{Host: "reviews.prod.svc.cluster.local", TrafficPolicy: wholePolicy}
	bare := wholeRule[strings.Index(wholeRule, "    loadBalancer:"):strings.Index(wholeRule, "status:")]
	for name, tc := range map[string]struct {
		yaml string
		want Policy
	}{
		"whole DestinationRule": {wholeRule, whole},
		"v1beta1":               {strings.Replace(wholeRule, "io/v1", "io/v1beta1", 1), whole},
		"v1alpha3":              {strings.Replace(wholeRule, "io/v1", "io/v1alpha3", 1), whole},
		"trafficPolicy alone":   {bare, Policy{TrafficPolicy: wholePolicy}},
		"under trafficPolicy":   {"trafficPolicy:\n" + bare, Policy{TrafficPolicy: wholePolicy}},
		"document markers":      {"---\n" + wholeRule + "...\n", whole},
		"json":                  {`{"outlierDetection":{"consecutiveErrors":4,"interval":"1.5s"}}`, Policy{TrafficPolicy: TrafficPolicy{OutlierDetection: &OutlierDetection{ConsecutiveErrors: 4, Interval: 1500 * time.Millisecond}}}},
		"detection by default":  {"outlierDetection: {}", Policy{TrafficPolicy: TrafficPolicy{OutlierDetection: &OutlierDetection{}}}},
		"null is unset":         {"outlierDetection: null\nconnectionPool:\n  tcp: {maxConnections: null}", Policy{}},
		"anchors": {"connectionPool:\n  tcp: {connectTimeout: &t 2s}\noutlierDetection: {interval: *t}", Policy{TrafficPolicy: TrafficPolicy{
			ConnectionPool:   ConnectionPool{TCP: TCPSettings{ConnectTimeout: 2 * time.Second}},
			OutlierDetection: &OutlierDetection{Interval: 2 * time.Second}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePolicy([]byte(tc.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Fatalf("got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestParsePolicyErrors(t *testing.T) {
	edit := func(old, replacement string) string {
		if !strings.Contains(wholeRule, old) {
			t.Fatalf("no %q in the rule", old)
		}
		return strings.Replace(wholeRule, old, replacement, 1)
	}
	const od = "spec.trafficPolicy.outlierDetection."
	const http = "spec.trafficPolicy.connectionPool.http."
	for name, tc := range map[string]struct {
		yaml    string
		field   string
		line    int
		problem string
	}{
		"empty":              {"", "", 0, "empty"},
		"only a comment":     {"# nothing\n", "", 0, "empty"},
		"no object":          {"- a\n", "", 1, "must be an object"},
		"not YAML":           {"a: b: c\n", "", 0, "not YAML"},
		"two documents":      {wholeRule + "---\n" + wholeRule, "", 29, "more than one"},
		"other kind":         {edit("kind: DestinationRule", "kind: VirtualService"), "kind", 2, `"VirtualService"`},
		"other group":        {edit("networking.istio.io/v1", "apps/v1"), "apiVersion", 1, `"apps/v1"`},
		"no kind":            {edit("kind: DestinationRule\n", ""), "kind", 1, "required"},
		"no host":            {edit("  host: reviews.prod.svc.cluster.local\n", ""), "spec.host", 7, "required"},
		"empty host":         {edit("reviews.prod.svc.cluster.local", `""`), "spec.host", 7, "empty"},
		"unknown at the top": {wholeRule + "extra: 1\n", "extra", 29, "unknown field"},
		"unknown":            {edit("consecutive5xxErrors", "consecutive5XXErrors"), od + "consecutive5XXErrors", 22, "unknown field"},
		"snake case":         {edit("baseEjectionTime", "base_ejection_time"), od + "base_ejection_time", 25, "unknown field"},
		"unsupported": {edit("      interval: 5m", "      splitExternalLocalOriginErrors: true\n      interval: 5m"),
			od + "splitExternalLocalOriginErrors", 24, "not supported"},
		"subsets":        {edit("status:", "  subsets: []\nstatus:"), "spec.subsets", 28, "not supported"},
		"tls":            {edit("    connectionPool:", "    tls: {mode: SIMPLE}\n    connectionPool:"), "spec.trafficPolicy.tls", 11, "not supported"},
		"other balancer": {edit("ROUND_ROBIN", "LEAST_REQUEST"), "spec.trafficPolicy.loadBalancer.simple", 10, `only ROUND_ROBIN`},
		"given twice":    {edit("      interval: 5m", "      interval: 5m\n      interval: 6m"), od + "interval", 25, "twice"},
		"not a duration": {edit("5m", "5 minutes"), od + "interval", 24, `"5 minutes"`},
		"no unit":        {edit("interval: 5m", "interval: 300"), od + "interval", 24, "must be a string"},
		"zero duration":  {edit("5m", "0s"), od + "interval", 24, "at least 1ms"},
		"too short":      {edit("5m", "10us"), od + "interval", 24, "at least 1ms, got 10µs"},
		"negative":       {edit("15m", "-15m"), od + "baseEjectionTime", 25, "at least 1ms"},
		"too fine":       {edit("30ms", "30.5ms"), "spec.trafficPolicy.connectionPool.tcp.connectTimeout", 14, "whole milliseconds"},
		"percent":        {edit("maxEjectionPercent: 50", "maxEjectionPercent: 101"), od + "maxEjectionPercent", 26, "between 0 and 100, got 101"},
		"negative count": {edit("maxRetries: 3", "maxRetries: -1"), http + "maxRetries", 19, "between 0 and 2147483647, got -1"},
		"negative uint":  {edit("consecutive5xxErrors: 7", "consecutive5xxErrors: -7"), od + "consecutive5xxErrors", 22, "between 0 and 4294967295"},
		"big uint":       {edit("consecutive5xxErrors: 7", "consecutive5xxErrors: 4294967296"), od + "consecutive5xxErrors", 22, "between 0 and 4294967295"},
		"beyond int32":   {edit("http2MaxRequests: 1000", "http2MaxRequests: 2147483648"), http + "http2MaxRequests", 17, "whole number within its range"},
		"float":          {edit("http2MaxRequests: 1000", "http2MaxRequests: 10.5"), http + "http2MaxRequests", 17, "whole number"},
		"quoted number":  {edit("http2MaxRequests: 1000", `http2MaxRequests: "1000"`), http + "http2MaxRequests", 17, "whole number"},
		"per connection": {edit("maxRequestsPerConnection: 10", "maxRequestsPerConnection: 536870913"), http + "maxRequestsPerConnection", 18, "536870912"},
		"a list":         {edit("      http:", "      http: []\n      xttp:"), "spec.trafficPolicy.connectionPool.http", 15, "must be an object"},
		"bare field":     {"outlierDetection:\n  minHealthPercent: -1\n", "outlierDetection.minHealthPercent", 2, "between 0 and 100"},
		"wrapped field":  {"trafficPolicy:\n  outlierDetection:\n    minHealthPercent: 200\n", "trafficPolicy.outlierDetection.minHealthPercent", 3, "between 0 and 100"},
		"too large":      {strings.Repeat("#", maxPolicyBytes+1), "", 0, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(tc.yaml))
			var fe *FieldError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a *FieldError", err)
			}
			if fe.Field != tc.field || fe.Line != tc.line || !strings.Contains(fe.Problem, tc.problem) {
				t.Fatalf("got %q line %d: %s\nwant %q line %d: ...%s...", fe.Field, fe.Line, fe.Problem, tc.field, tc.line, tc.problem)
			}
		})
	}
}

func TestFieldErrorText(t *testing.T) {
	_, err := ParsePolicy([]byte("outlierDetection:\n  interval: 5\n"))
	want := `outlier: policy: outlierDetection.interval (line 2): must be a string, got "5"`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v\nwant %s", err, want)
	}
}

func TestValidate(t *testing.T) {
	p := TrafficPolicy{OutlierDetection: &OutlierDetection{ConsecutiveErrors: -1}}
	want := "outlier: policy: outlierDetection.consecutiveErrors: must be between 0 and 2147483647, got -1"
	if err := p.Validate(); err == nil || err.Error() != want {
		t.Fatalf("got %v\nwant %s", err, want)
	}
	if err := wholePolicy.Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestDefaults(t *testing.T) {
	r := (&OutlierDetection{}).rules()
	want := rules{enabled: true, consecutive5xx: 5, interval: 10 * time.Second, baseEjection: 30 * time.Second,
		maxEjection: 300 * time.Second, maxEjectionPercent: 10}
	if r != want {
		t.Fatalf("got %+v, want %+v", r, want)
	}
	if l := (ConnectionPool{}).limits(); l != (limits{maxConnections: 1<<32 - 1, maxPending: 1<<32 - 1, maxRequests: 1<<32 - 1,
		maxRetries: 1<<32 - 1, maxPerConn: 1<<32 - 1, connectTimeout: 10 * time.Second, idleConnTimeout: time.Hour}) {
		t.Fatalf("limits %+v", l)
	}
	if got := (&OutlierDetection{BaseEjectionTime: 15 * time.Minute}).rules().maxEjection; got != 15*time.Minute {
		t.Fatalf("longest ejection %s, want the base of 15m", got)
	}
}

// Whatever the bytes: no panic, every error names its rule, and what is accepted
// is valid and the same when read again.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(wholeRule))
	f.Add([]byte(`{"outlierDetection":{"consecutiveErrors":4,"interval":"1.5s"}}`))
	f.Add([]byte("connectionPool:\n  tcp: &a {connectTimeout: 2s}\n  http: *a\n"))
	f.Add([]byte("trafficPolicy: {outlierDetection: {interval: 9999999999h}}"))
	f.Add([]byte("outlierDetection: {<<: {interval: 1s}}"))
	f.Add([]byte("a: &a [*a]\n---\n"))
	f.Add([]byte("{? {a: b} : c}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy(data)
		if err != nil {
			var fe *FieldError
			if !errors.As(err, &fe) || fe.Problem == "" {
				t.Fatalf("error without a rule: %#v", err)
			}
			return
		}
		if err := p.TrafficPolicy.Validate(); err != nil {
			t.Fatalf("accepted but not valid: %v", err)
		}
		r := p.TrafficPolicy.OutlierDetection.rules()
		if r.interval <= 0 || r.enabled && (r.baseEjection <= 0 || r.maxEjection < r.baseEjection) {
			t.Fatalf("rules %+v", r)
		}
		again, err := ParsePolicy(data)
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("read again: %+v, %v", again, err)
		}
	})
}
