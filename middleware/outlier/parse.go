package outlier

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxPolicyBytes is the size of the largest object etcd stores by default; no
// DestinationRule can be bigger.
const maxPolicyBytes = 3 << 19

// Policy is what ParsePolicy read.
type Policy struct {
	// Host is spec.host, empty when only a trafficPolicy was given. The
	// transport does not interpret it.
	Host          string
	TrafficPolicy TrafficPolicy
}

// ParsePolicy reads the YAML or JSON of a whole DestinationRule, of an object
// with a trafficPolicy, or of the trafficPolicy itself.
//
// It is strict: an unknown field, a field of DestinationRule that this
// transport does not implement, a duplicate, a second document or a wrong value
// is a *FieldError naming the path and the line. Durations are written as in
// Istio (1h, 5m, 30s, 100ms), at least 1ms and in whole milliseconds. Of a whole
// object, metadata and status are not looked at.
func ParsePolicy(data []byte) (Policy, error) {
	if len(data) > maxPolicyBytes {
		return Policy{}, &FieldError{Problem: fmt.Sprintf("%d bytes are more than the %d a DestinationRule can have", len(data), maxPolicyBytes)}
	}
	root, ferr := document(data)
	if ferr != nil {
		return Policy{}, ferr
	}
	p := &policyReader{lines: map[string]int{}}
	if err := p.read(root); err != nil {
		return Policy{}, err
	}
	if err := p.policy.TrafficPolicy.validate(); err != nil {
		err.Field = join(p.prefix, err.Field)
		err.Line = p.lines[err.Field]
		return Policy{}, err
	}
	return p.policy, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document gives the root of the only document in data.
func document(data []byte) (*yaml.Node, *FieldError) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &FieldError{Problem: "the document is empty"}
	} else if err != nil {
		return nil, syntaxError(err)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, &FieldError{Line: second.Line, Problem: "more than one YAML document"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &FieldError{Problem: "the document is empty"}
	}
	return doc.Content[0], nil
}

func syntaxError(err error) *FieldError {
	text := err.Error()
	fe := &FieldError{Problem: "not YAML: " + yamlLine.ReplaceAllString(text, "")}
	if m := yamlLine.FindStringSubmatch(text); m != nil && m[1] != "" {
		if line, convErr := strconv.Atoi(m[1]); convErr == nil {
			fe.Line = line
		}
	}
	return fe
}

// policyReader fills a Policy from YAML nodes and remembers where each field
// was, for the errors of the validation that follows.
type policyReader struct {
	policy Policy
	prefix string
	lines  map[string]int
}

// field reads the value found at a path.
type field func(n *yaml.Node, path string) error

func skip(*yaml.Node, string) error { return nil }

func (p *policyReader) read(root *yaml.Node) error {
	switch {
	case hasKey(root, "kind") || hasKey(root, "apiVersion") || hasKey(root, "spec"):
		p.prefix = "spec.trafficPolicy"
		if err := require(root, "", "apiVersion", "kind", "spec"); err != nil {
			return err
		}
		return p.object(root, "", map[string]field{
			"apiVersion": p.apiVersion,
			"kind":       p.kind,
			"metadata":   skip,
			"status":     skip,
			"spec":       p.spec,
		})
	case hasKey(root, "trafficPolicy"):
		p.prefix = "trafficPolicy"
		return p.spec(root, "")
	}
	return p.trafficPolicy(root, "")
}

func (p *policyReader) apiVersion(n *yaml.Node, path string) error {
	v, err := text(n, path)
	if err != nil {
		return err
	}
	switch v {
	case "networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3":
		return nil
	}
	return &FieldError{Field: path, Line: n.Line, Problem: fmt.Sprintf("must be networking.istio.io/v1, v1beta1 or v1alpha3, got %q", v)}
}

func (p *policyReader) kind(n *yaml.Node, path string) error {
	v, err := text(n, path)
	if err != nil {
		return err
	}
	if v != "DestinationRule" {
		return &FieldError{Field: path, Line: n.Line, Problem: fmt.Sprintf("must be DestinationRule, got %q", v)}
	}
	return nil
}

func (p *policyReader) spec(n *yaml.Node, path string) error {
	// Only a whole DestinationRule needs its host.
	if path != "" {
		if err := require(n, path, "host"); err != nil {
			return err
		}
	}
	return p.object(n, path, map[string]field{
		"host": func(n *yaml.Node, path string) (err error) {
			p.policy.Host, err = text(n, path)
			if err == nil && p.policy.Host == "" {
				err = &FieldError{Field: path, Line: n.Line, Problem: "must not be empty"}
			}
			return err
		},
		"trafficPolicy": p.trafficPolicy,
	}, "subsets", "exportTo", "workloadSelector")
}

func (p *policyReader) trafficPolicy(n *yaml.Node, path string) error {
	return p.object(n, path, map[string]field{
		"connectionPool":   p.connectionPool,
		"outlierDetection": p.outlierDetection,
		"loadBalancer":     p.loadBalancer,
	}, "tls", "portLevelSettings", "tunnel", "proxyProtocol", "retryBudget")
}

// loadBalancer accepts the one algorithm there is, so that a rule that says so
// can be used unchanged.
func (p *policyReader) loadBalancer(n *yaml.Node, path string) error {
	return p.object(n, path, map[string]field{
		"simple": func(n *yaml.Node, path string) error {
			v, err := text(n, path)
			if err == nil && v != "ROUND_ROBIN" {
				err = &FieldError{Field: path, Line: n.Line, Problem: fmt.Sprintf("only ROUND_ROBIN is supported by this transport, got %q", v)}
			}
			return err
		},
	}, "consistentHash", "localityLbSetting", "warmupDurationSecs", "warmup")
}

func (p *policyReader) connectionPool(n *yaml.Node, path string) error {
	pool := &p.policy.TrafficPolicy.ConnectionPool
	return p.object(n, path, map[string]field{
		"tcp": func(n *yaml.Node, path string) error {
			return p.object(n, path, map[string]field{
				"maxConnections": number(&pool.TCP.MaxConnections),
				"connectTimeout": duration(&pool.TCP.ConnectTimeout),
			}, "tcpKeepalive", "maxConnectionDuration", "idleTimeout")
		},
		"http": func(n *yaml.Node, path string) error {
			return p.object(n, path, map[string]field{
				"http1MaxPendingRequests":  number(&pool.HTTP.HTTP1MaxPendingRequests),
				"http2MaxRequests":         number(&pool.HTTP.HTTP2MaxRequests),
				"maxRequestsPerConnection": number(&pool.HTTP.MaxRequestsPerConnection),
				"maxRetries":               number(&pool.HTTP.MaxRetries),
				"idleTimeout":              duration(&pool.HTTP.IdleTimeout),
			}, "h2UpgradePolicy", "useClientProtocol", "maxConcurrentStreams")
		},
	})
}

func (p *policyReader) outlierDetection(n *yaml.Node, path string) error {
	if isNull(n) {
		return nil
	}
	o := &OutlierDetection{}
	p.policy.TrafficPolicy.OutlierDetection = o
	return p.object(n, path, map[string]field{
		"consecutiveErrors":        number(&o.ConsecutiveErrors),
		"consecutiveGatewayErrors": optional(&o.ConsecutiveGatewayErrors),
		"consecutive5xxErrors":     optional(&o.Consecutive5xxErrors),
		"interval":                 duration(&o.Interval),
		"baseEjectionTime":         duration(&o.BaseEjectionTime),
		"maxEjectionPercent":       number(&o.MaxEjectionPercent),
		"minHealthPercent":         number(&o.MinHealthPercent),
	}, "splitExternalLocalOriginErrors", "consecutiveLocalOriginFailures")
}

// object reads the fields of a mapping. unsupported are those that Istio knows
// and this transport does not, so that the error can tell the two apart.
func (p *policyReader) object(n *yaml.Node, path string, fields map[string]field, unsupported ...string) error {
	n = target(n)
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return &FieldError{Field: path, Line: n.Line, Problem: "must be an object"}
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		at := join(path, printable(key.Value))
		if key.Kind != yaml.ScalarNode {
			return &FieldError{Field: path, Line: key.Line, Problem: "field names must be plain strings"}
		}
		if seen[key.Value] {
			return &FieldError{Field: at, Line: key.Line, Problem: "is given twice"}
		}
		seen[key.Value] = true
		p.lines[at] = key.Line
		read, ok := fields[key.Value]
		if !ok {
			for _, u := range unsupported {
				if u == key.Value {
					return &FieldError{Field: at, Line: key.Line, Problem: "is not supported by this transport"}
				}
			}
			return &FieldError{Field: at, Line: key.Line, Problem: "unknown field"}
		}
		if err := read(value, at); err != nil {
			return err
		}
	}
	return nil
}

// require says which field is missing from a mapping.
func require(n *yaml.Node, path string, names ...string) error {
	for _, name := range names {
		if !hasKey(n, name) {
			return &FieldError{Field: join(path, name), Line: n.Line, Problem: "is required"}
		}
	}
	return nil
}

func number(into *int32) field {
	return func(n *yaml.Node, path string) error {
		v, set, err := integer(n, path, 32)
		if set {
			*into = int32(v)
		}
		return err
	}
}

// optional reads one of the fields that are a UInt32Value in Istio's API, where
// 0 and unset differ.
func optional(into **uint32) field {
	return func(n *yaml.Node, path string) error {
		v, set, err := integer(n, path, 64)
		if err != nil || !set {
			return err
		}
		u := uint32(v)
		if int64(u) != v {
			return &FieldError{Field: path, Line: n.Line, Problem: fmt.Sprintf("must be between 0 and 4294967295, got %d", v)}
		}
		*into = &u
		return nil
	}
}

func integer(n *yaml.Node, path string, bits int) (v int64, set bool, err error) {
	if isNull(n) {
		return 0, false, nil
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		return 0, false, &FieldError{Field: path, Line: n.Line, Problem: "must be a whole number" + got(n)}
	}
	v, convErr := strconv.ParseInt(n.Value, 10, bits)
	if convErr != nil {
		return 0, false, &FieldError{Field: path, Line: n.Line, Problem: "must be a whole number within its range" + got(n)}
	}
	return v, true, nil
}

func duration(into *time.Duration) field {
	return func(n *yaml.Node, path string) error {
		if isNull(n) {
			return nil
		}
		v, err := text(n, path)
		if err != nil {
			return err
		}
		d, parseErr := time.ParseDuration(v)
		if parseErr != nil {
			return &FieldError{Field: path, Line: n.Line, Problem: "must be a duration such as 1h, 5m, 30s or 100ms" + got(n)}
		}
		if d == 0 {
			return &FieldError{Field: path, Line: n.Line, Problem: "must be at least 1ms, got 0s"}
		}
		*into = d
		return nil
	}
}

func text(n *yaml.Node, path string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return "", &FieldError{Field: path, Line: n.Line, Problem: "must be a string" + got(n)}
	}
	return n.Value, nil
}

func got(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return fmt.Sprintf(", got %q", printable(n.Value))
}

// printable keeps a value of any length from filling an error message.
func printable(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// target follows an alias to its anchor.
func target(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func hasKey(n *yaml.Node, name string) bool {
	n = target(n)
	if n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
