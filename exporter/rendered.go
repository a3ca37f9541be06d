package exporter

import (
	"bufio"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
)

// Encoding is the form in which families are written.
type Encoding int

// The encodings.
const (
	// EncodingText is the Prometheus text format 0.0.4.
	EncodingText Encoding = iota
	// EncodingOpenMetrics is OpenMetrics text, versions 0.0.1 and 1.0.0.
	EncodingOpenMetrics
	// EncodingProtobuf is io.prometheus.client.MetricFamily, length-delimited.
	EncodingProtobuf
)

// Rendered is a source of metric families that writes them itself.
// Implementations are safe for concurrent use.
type Rendered interface {
	// FamilyNames lists the families it may write.
	FamilyNames() []string
	// WriteFamilies writes those families for which keep returns true, or all
	// with a nil keep, each whole and without an end-of-file marker. The only
	// errors are those of w.
	WriteFamilies(w *bufio.Writer, encoding Encoding, keep func(name string) bool) error
}

// Family describes one metric family of an object.
type Family struct {
	// Name of the family; that of a counter ends in _total.
	Name string
	// Help says what a value means.
	Help string
	// Type is prometheus.GaugeValue or prometheus.CounterValue.
	Type prometheus.ValueType
	// Labels are the names of all labels, in the order of their values.
	Labels []string
}

// familyHeader is what precedes the samples of a family in each encoding.
type familyHeader struct {
	text, openMetrics []byte
	// proto holds the fields before the first metric, without the length.
	proto []byte
}

var (
	helpEscaperText        = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	helpEscaperOpenMetrics = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	labelEscaper           = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func (f Family) header() familyHeader {
	kind, protoKind, openName := "gauge", dto.MetricType_GAUGE, f.Name
	if f.Type == prometheus.CounterValue {
		kind, protoKind = "counter", dto.MetricType_COUNTER
		// OpenMetrics names the family without the suffix of its samples.
		openName = strings.TrimSuffix(f.Name, "_total")
	}
	var h familyHeader
	h.text = []byte("# HELP " + f.Name + " " + helpEscaperText.Replace(f.Help) + "\n# TYPE " + f.Name + " " + kind + "\n")
	h.openMetrics = []byte("# HELP " + openName + " " + helpEscaperOpenMetrics.Replace(f.Help) + "\n# TYPE " + openName + " " + kind + "\n")
	// Field numbers are those of io/prometheus/client/metrics.proto.
	h.proto = protowire.AppendTag(h.proto, 1, protowire.BytesType)
	h.proto = protowire.AppendString(h.proto, f.Name)
	h.proto = protowire.AppendTag(h.proto, 2, protowire.BytesType)
	h.proto = protowire.AppendString(h.proto, f.Help)
	h.proto = protowire.AppendTag(h.proto, 3, protowire.VarintType)
	h.proto = protowire.AppendVarint(h.proto, uint64(protoKind))
	return h
}

// appendText appends one sample line. Text and OpenMetrics lines are the same
// for gauges and counters without exemplars.
func (f Family) appendText(b []byte, value float64, labels []string) []byte {
	b = append(b, f.Name...)
	for i, name := range f.Labels {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(b, name...)
		b = append(b, `="`...)
		b = append(b, labelEscaper.Replace(labels[i])...)
		b = append(b, '"')
	}
	if len(f.Labels) > 0 {
		b = append(b, '}')
	}
	b = append(b, ' ')
	if value == math.Trunc(value) && math.Abs(value) < 1e15 {
		b = strconv.AppendInt(b, int64(value), 10)
	} else {
		b = strconv.AppendFloat(b, value, 'g', -1, 64)
	}
	return append(b, '\n')
}

// appendProto appends one Metric as a field of its MetricFamily.
func (f Family) appendProto(b []byte, value float64, labels []string) []byte {
	const valueSize = 1 + 8
	size := 1 + protowire.SizeBytes(valueSize)
	for i, name := range f.Labels {
		size += 1 + protowire.SizeBytes(labelPairSize(name, labels[i]))
	}
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for i, name := range f.Labels {
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(labelPairSize(name, labels[i])))
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, name)
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendString(b, labels[i])
	}
	field := protowire.Number(2) // gauge
	if f.Type == prometheus.CounterValue {
		field = 3
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, valueSize)
	b = protowire.AppendTag(b, 1, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(value))
}

func labelPairSize(name, value string) int {
	return 1 + protowire.SizeBytes(len(name)) + 1 + protowire.SizeBytes(len(value))
}

// write writes a family from the chunks of its samples.
func (h familyHeader) write(w *bufio.Writer, encoding Encoding, chunks []*chunk) error {
	var size int
	for _, c := range chunks {
		size += len(c.text)
		if encoding == EncodingProtobuf {
			size += len(c.proto) - len(c.text)
		}
	}
	if size == 0 {
		// A family without samples is left out, as client_golang does.
		return nil
	}
	switch encoding {
	case EncodingProtobuf:
		var length [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(length[:], uint64(len(h.proto)+size))
		if _, err := w.Write(length[:n]); err != nil {
			return err
		}
		if _, err := w.Write(h.proto); err != nil {
			return err
		}
		for _, c := range chunks {
			if _, err := w.Write(c.proto); err != nil {
				return err
			}
		}
		return nil
	case EncodingOpenMetrics:
		if _, err := w.Write(h.openMetrics); err != nil {
			return err
		}
	default:
		if _, err := w.Write(h.text); err != nil {
			return err
		}
	}
	for _, c := range chunks {
		if _, err := w.Write(c.text); err != nil {
			return err
		}
	}
	return nil
}
