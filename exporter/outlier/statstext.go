package outlier

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"time"
)

// The lines of Envoy's statistics that matter. Everything else in the body,
// the application's own metrics among it (Istio's port 15020 concatenates
// them), is passed over unread.
const (
	namePrefix     = "envoy_"
	nameEjections  = "envoy_cluster_outlier_detection_ejections_"
	nameActive     = nameEjections + "active"
	nameEnforced   = nameEjections + "enforced_"
	nameConnection = "envoy_cluster_upstream_cx_total"
	nameUptime     = "envoy_server_uptime"
)

// statsFilter makes Envoy send only the statistics of the names above. It is
// matched against Envoy's own names, before they become Prometheus names.
const statsFilter = `outlier_detection\.ejections_(active|enforced)|upstream_cx_total$|^server\.uptime$`

const (
	maxLine = 64 << 10
	// maxClusters bounds what one body can make us remember.
	maxClusters = 100_000
)

// lineReaders spares thousands of buffers in each sweep.
var lineReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }}

// stats is what a body of statistics said.
type stats struct {
	uptime   time.Duration
	clusters []ClusterReading
}

// parseStats reads Prometheus text exposition (version 0.0.4,
// https://prometheus.io/docs/instrumenting/exposition_formats/) in constant
// memory and keeps what it says about the clusters that want picks. The error
// is a ReadError: ReasonMalformed for a line of interest that cannot be
// parsed or broke off, ReasonNoStats for a body without outlier statistics;
// errors of r are passed on.
func parseStats(r io.Reader, want func(cluster string) bool) (stats, error) {
	var out stats
	seen := map[string]*ClusterReading{}
	outlierLines := 0
	br := lineReaders.Get().(*bufio.Reader)
	br.Reset(r)
	defer func() {
		br.Reset(nil)
		lineReaders.Put(br)
	}()
	for number := 1; ; number++ {
		line, err := br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if bytes.HasPrefix(line, []byte(nameEjections)) {
				return stats{}, readErrorf(ReasonMalformed, "line %d is longer than %d bytes", number, maxLine)
			}
			if err := skipLine(br); err != nil && !errors.Is(err, io.EOF) {
				return stats{}, err
			}
			continue
		case errors.Is(err, io.EOF):
			if cutOff(line) {
				return stats{}, readErrorf(ReasonMalformed, "line %d broke off", number)
			}
			if outlierLines == 0 {
				return stats{}, readErrorf(ReasonNoStats, "no outlier detection statistics published")
			}
			for _, c := range seen {
				if c != nil {
					out.clusters = append(out.clusters, *c)
				}
			}
			return out, nil
		case err != nil:
			return stats{}, err
		}
		if number == 1 && bytes.HasPrefix(bytes.TrimSpace(line), []byte("<")) {
			return stats{}, readErrorf(ReasonMalformed, "answer is a web page, not Prometheus text")
		}
		if !ofInterest(line) {
			continue
		}
		s, err := parseSample(bytes.TrimRight(line, "\r\n"))
		if err != nil {
			return stats{}, readErrorf(ReasonMalformed, "line %d: %w", number, err)
		}
		if string(s.name) == nameUptime {
			out.uptime = time.Duration(math.Min(s.value, 1e9) * float64(time.Second))
			continue
		}
		if len(s.cluster) == 0 {
			continue
		}
		if bytes.HasPrefix(s.name, []byte(nameEjections)) {
			outlierLines++
		}
		c, known := seen[string(s.cluster)]
		if !known {
			if len(seen) >= maxClusters {
				return stats{}, readErrorf(ReasonTooLarge, "more than %d clusters", maxClusters)
			}
			name := string(s.cluster)
			if want(name) {
				c = newClusterReading(name)
			}
			seen[name] = c
		}
		if c != nil {
			c.take(s)
		}
	}
}

// skipLine reads up to the end of the line.
func skipLine(br *bufio.Reader) error {
	for {
		if _, err := br.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// cutOff reports whether an unterminated last line is, or could have become,
// a line of Envoy's. Applications behind Istio's merged endpoint are known to
// forget the last line feed; that harms nobody.
func cutOff(line []byte) bool {
	for _, prefix := range []string{namePrefix, "# TYPE " + namePrefix, "# HELP " + namePrefix} {
		n := min(len(line), len(prefix))
		if n > 0 && string(line[:n]) == prefix[:n] {
			return true
		}
	}
	return false
}

func ofInterest(line []byte) bool {
	return line[0] == 'e' && (bytes.HasPrefix(line, []byte(nameEjections)) ||
		bytes.HasPrefix(line, []byte(nameConnection)) || bytes.HasPrefix(line, []byte(nameUptime)))
}

// take records a sample. Where a body holds a series twice, or both spellings
// of one kind, the larger value stands.
func (c *ClusterReading) take(s sample) {
	switch {
	case string(s.name) == nameActive:
		if !c.HasActive || s.value > c.Active {
			c.HasActive, c.Active = true, s.value
		}
	case string(s.name) == nameConnection:
		c.Connections = max(c.Connections, s.value)
	case bytes.HasPrefix(s.name, []byte(nameEnforced)):
		if i, ok := counterOf[string(s.name[len(nameEnforced):])]; ok {
			c.Enforced[i] = max(c.Enforced[i], s.value)
		}
	}
}

// sample is one parsed line. name and cluster are valid until the next line
// is read.
type sample struct {
	name, cluster []byte
	value         float64
}

// parseSample parses `name{label="value",...} value [timestamp]`. The cluster
// is in cluster_name (Istio) or envoy_cluster_name (Envoy's own tags).
func parseSample(line []byte) (sample, error) {
	var s sample
	end := bytes.IndexAny(line, "{ \t")
	if end < 0 {
		return s, errors.New("no value")
	}
	s.name, line = line[:end], bytes.TrimLeft(line[end:], " \t")
	if len(line) > 0 && line[0] == '{' {
		line = line[1:]
		for {
			line = bytes.TrimLeft(line, " \t,")
			if len(line) == 0 {
				return s, errors.New("labels do not end")
			}
			if line[0] == '}' {
				line = line[1:]
				break
			}
			eq := bytes.IndexByte(line, '=')
			if eq <= 0 {
				return s, errors.New("label without value")
			}
			label := bytes.TrimSpace(line[:eq])
			value, rest, err := quoted(bytes.TrimLeft(line[eq+1:], " \t"))
			if err != nil {
				return s, err
			}
			line = rest
			switch string(label) {
			case "cluster_name":
				s.cluster = value
			case "envoy_cluster_name":
				if s.cluster == nil {
					s.cluster = value
				}
			}
		}
	}
	number, rest := field(line)
	if len(number) == 0 {
		return s, errors.New("no value")
	}
	value, err := strconv.ParseFloat(string(number), 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return s, errors.New("value is not a number of at least 0")
	}
	s.value = value
	if timestamp, _ := field(rest); len(timestamp) > 0 && timestamp[0] != '#' {
		if _, err := strconv.ParseFloat(string(timestamp), 64); err != nil {
			return s, errors.New("timestamp is not a number")
		}
	}
	return s, nil
}

// field takes the first word of b.
func field(b []byte) (word, rest []byte) {
	b = bytes.TrimLeft(b, " \t")
	if end := bytes.IndexAny(b, " \t"); end >= 0 {
		return b[:end], b[end:]
	}
	return b, nil
}

// quoted takes a quoted label value from the front of b, with its escapes
// resolved, and returns what follows it.
func quoted(b []byte) (value, rest []byte, err error) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, errors.New("label value is not quoted")
	}
	b = b[1:]
	end := bytes.IndexAny(b, `"\`)
	if end < 0 {
		return nil, nil, errors.New("label value does not end")
	}
	if b[end] == '"' {
		return b[:end:end], b[end+1:], nil
	}
	value = append(make([]byte, 0, len(b)), b[:end]...)
	for i := end; i < len(b); i++ {
		switch b[i] {
		case '"':
			return value, b[i+1:], nil
		case '\\':
			if i++; i == len(b) {
				return nil, nil, errors.New("label value does not end")
			}
			switch b[i] {
			case 'n':
				value = append(value, '\n')
			case '\\', '"':
				value = append(value, b[i])
			default:
				return nil, nil, errors.New("unknown escape in label value")
			}
		default:
			value = append(value, b[i])
		}
	}
	return nil, nil, errors.New("label value does not end")
}
