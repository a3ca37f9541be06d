package exporter

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Emitter collects the samples of one object.
type Emitter struct {
	families  []Family
	maxSeries int

	series int
	text   [][]byte
	proto  [][]byte
	err    error
}

func newEmitter(families []Family, maxSeries int) *Emitter {
	return &Emitter{
		families: families, maxSeries: maxSeries,
		text: make([][]byte, len(families)), proto: make([][]byte, len(families)),
	}
}

func (e *Emitter) reset() {
	e.series, e.err = 0, nil
	for i := range e.families {
		e.text[i], e.proto[i] = e.text[i][:0], e.proto[i][:0]
	}
}

// Emit adds a sample to the family with that index in ObjectsConfig.Families.
// There must be as many label values as the family has labels; what is not
// UTF-8 in them is replaced. Emit must not be called twice with the same family
// and label values.
func (e *Emitter) Emit(family int, value float64, labelValues ...string) {
	if e.err != nil {
		return
	}
	if family < 0 || family >= len(e.families) {
		e.err = fmt.Errorf("there is no family %d", family)
		return
	}
	f := e.families[family]
	if len(labelValues) != len(f.Labels) {
		e.err = fmt.Errorf("family %s: %d label values for %d labels", f.Name, len(labelValues), len(f.Labels))
		return
	}
	if e.series++; e.series > e.maxSeries {
		e.err = fmt.Errorf("family %s: more than %d series", f.Name, e.maxSeries)
		return
	}
	for i, v := range labelValues {
		if !utf8.ValidString(v) {
			labelValues = slices.Clone(labelValues)
			labelValues[i] = strings.ToValidUTF8(v, "\uFFFD")
		}
	}
	e.text[family] = f.appendText(e.text[family], value, labelValues)
	e.proto[family] = f.appendProto(e.proto[family], value, labelValues)
}

// chunks copies the samples into one piece of memory.
func (e *Emitter) chunks() ([]chunk, error) {
	if e.err != nil {
		return nil, e.err
	}
	size := 0
	for i := range e.families {
		size += len(e.text[i]) + len(e.proto[i])
	}
	all := make([]byte, 0, size)
	take := func(b []byte) []byte {
		start := len(all)
		all = append(all, b...)
		return all[start:len(all):len(all)]
	}
	out := make([]chunk, len(e.families))
	for i := range out {
		out[i].text = take(e.text[i])
	}
	for i := range out {
		out[i].proto = take(e.proto[i])
	}
	return out, nil
}
