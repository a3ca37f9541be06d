package exporter

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Whatever an object's fields hold, its line is one sample with that value and
// those labels, and what follows it is not disturbed.
func FuzzSampleLine(f *testing.F) {
	f.Add("node", 1.0)
	f.Add("a\"b\\c\nd", math.Inf(1))
	f.Add("\xff\x00}", math.Copysign(0, -1))
	f.Fuzz(func(t *testing.T, label string, value float64) {
		family := Family{Name: "x", Help: "h", Type: prometheus.GaugeValue, Labels: []string{"l"}}
		e := newEmitter([]Family{family}, 1)
		e.Emit(0, value, label)
		chunks, err := e.chunks()
		if err != nil {
			t.Fatal(err)
		}
		text := string(family.header().text) + string(chunks[0].text) + "y 7\n"
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		m := families["x"].GetMetric()
		got := m[0].GetGauge().GetValue()
		if len(m) != 1 || len(families) != 2 || m[0].Label[0].GetValue() != strings.ToValidUTF8(label, "\uFFFD") ||
			got != value && !(math.IsNaN(got) && math.IsNaN(value)) {
			t.Errorf("%q %v became\n%s", label, value, text)
		}
	})
}

// An Accept-Encoding that refuses gzip everywhere it is named never gets it.
func FuzzAcceptsGzip(f *testing.F) {
	for _, s := range []string{"", "gzip", "gzip;q=0", "br, gzip;q=0.5", "*;q=0", ",,;q=;"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		if got := acceptsGzip(accept); got && !strings.Contains(strings.ToLower(accept), "gzip") && !strings.Contains(accept, "*") {
			t.Errorf("%q accepts gzip", accept)
		}
		if acceptsGzip("gzip;q=0," + accept) {
			t.Errorf("gzip;q=0,%q accepts gzip", accept)
		}
	})
}
