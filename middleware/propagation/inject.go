package propagation

import (
	"math/bits"
	"net/http"
)

// maxInjected is the room for the text of every format at once.
const maxInjected = 3*32 + maxB3Single + traceparentLen + 80

// Inject writes s into the headers of a request about to be sent. h is changed
// in place, so it must not be shared with the caller's request. A nil cfg means
// [Default].
//
// With ids to send, trace headers that h holds are replaced, and those of
// formats that are read but not written are removed: a reverse proxy copies
// them along, and the next hop would take the old span for its parent.
// Forwarded headers, the request id and baggage give way to what h holds
// already. With nothing to send h is left alone. Values that cannot be sent are
// dropped, never passed on.
func Inject(s State, h http.Header, cfg *Config) {
	if h == nil {
		return
	}
	cfg = cfg.orDefault()
	w := writer{m: h, names: &canonicalNames, config: cfg}
	w.write(&s)
}

// writer puts a state into a map of headers, all values in one backing array.
type writer struct {
	m      map[string][]string
	names  *keyNames
	config *Config
	values []string
}

// span is where a value stands in the text of all values.
type span struct {
	key      key
	from, to int16
}

func (w *writer) write(s *State) {
	formats := w.config.formatsFor(s)
	var (
		buf   [maxInjected]byte
		spans [10]span
		n     int
	)
	b := buf[:0]
	put := func(k key, end []byte) {
		spans[n] = span{k, int16(len(b)), int16(len(end))}
		b = end
		n++
	}
	ids := s.HasIDs()
	if formats&B3Single != 0 && (ids || s.Sampling != Defer) {
		put(keyB3, appendB3Single(b, s))
	}
	if formats&B3Multi != 0 {
		if ids {
			put(keyB3TraceID, s.appendTraceID(b))
			put(keyB3SpanID, appendHex(b, s.SpanID[:]))
			if s.ParentID.IsValid() {
				put(keyB3ParentSpanID, appendHex(b, s.ParentID[:]))
			}
		}
		switch s.Sampling {
		case Debug:
			// Debug implies accept; the specification says not to send both.
			put(keyB3Flags, append(b, '1'))
		case Accept:
			put(keyB3Sampled, append(b, '1'))
		case Deny:
			put(keyB3Sampled, append(b, '0'))
		}
	}
	if formats&TraceContext != 0 && ids {
		put(keyTraceparent, appendTraceparent(b, s))
	}
	if formats&Jaeger != 0 && ids {
		put(keyUberTraceID, appendUberTraceID(b, s))
	}
	w.values = make([]string, 0, n+3+len(s.Forwarded))
	if n > 0 && len(w.m) > 0 {
		// Deleting what is about to be set would only cost.
		var written uint16
		for _, sp := range spans[:n] {
			written |= 1 << sp.key
		}
		w.removeStale(ids, written)
	}
	text := string(b)
	for _, sp := range spans[:n] {
		w.set(w.names[sp.key], text[sp.from:sp.to])
	}
	w.rest(s, ids && formats&TraceContext != 0)
}

func (w *writer) set(name, value string) {
	w.values = append(w.values, value)
	i := len(w.values) - 1
	// The capacity is cut off so that an Add by the caller copies instead of
	// writing into the next header's value.
	w.m[name] = w.values[i : i+1 : i+1]
}

// formatsFor is the set of formats to write s in.
func (c *Config) formatsFor(s *State) Format {
	formats := c.inject
	switch {
	case c.passthrough:
		formats |= s.Seen & family(s.Format)
		for _, fk := range formatKeys {
			for _, k := range fk.keys {
				if s.Header(canonicalNames[k]) != "" {
					// It goes out as the text it came in.
					formats &^= fk.format
				}
			}
		}
	case c.mirror:
		formats |= s.Seen
	}
	return formats
}

// removeStale deletes what would contradict the context being written, whose
// headers are the bits of written. A decision without ids contradicts other
// decisions only.
func (w *writer) removeStale(ids bool, written uint16) {
	stale := w.config.stale
	if !ids {
		stale = 1<<keyB3Sampled | 1<<keyB3Flags
	}
	for stale &^= written; stale != 0; stale &= stale - 1 {
		delete(w.m, w.names[bits.TrailingZeros16(stale)])
	}
}

// rest writes what is not part of the ids and the decision.
func (w *writer) rest(s *State, traceState bool) {
	if traceState && s.TraceState != "" {
		w.checked(keyTracestate, s.TraceState, MaxTraceState)
	}
	if w.config.requestID && s.RequestID != "" && !w.has(w.names[keyRequestID]) {
		if ValidRequestID(s.RequestID) {
			w.set(w.names[keyRequestID], s.RequestID)
		} else {
			w.config.drop(HeaderRequestID, DropInvalid)
		}
	}
	if s.Baggage != "" && !w.has(w.names[keyBaggage]) {
		w.checked(keyBaggage, s.Baggage, maxBaggageBytes)
	}
	w.forwarded(s.Forwarded)
}

func (w *writer) has(name string) bool {
	_, ok := w.m[name]
	return ok
}

// checked sets one of our own headers whose value a user may have replaced.
func (w *writer) checked(k key, value string, limit int) {
	if reason, ok := checkHeaderValue(value, limit); !ok {
		w.config.drop(canonicalNames[k], reason)
		return
	}
	if w.metadata() && !printableASCII(value) {
		w.config.drop(canonicalNames[k], DropNotASCII)
		return
	}
	w.set(w.names[k], value)
}

func (w *writer) metadata() bool { return w.names == &lowerNames }

// forwarded writes the forwarded headers. Their values are checked again,
// because users may have put them into the State themselves.
func (w *writer) forwarded(fields []Field) {
	var (
		hint, total, start int
		last               string
	)
	for i := range fields {
		f := &fields[i]
		name, ok := w.config.forwardable(f.Name, &hint)
		if !ok {
			w.config.drop(otherName, DropInvalid)
			continue
		}
		label := f.Name
		if !name.listed {
			label = otherName
		}
		key := name.canonical
		if w.metadata() {
			key = name.lower
		}
		again := i > 0 && last == key
		if !again && w.has(key) {
			continue
		}
		if reason, ok := w.checkForwarded(f.Value, name, &total); !ok {
			w.config.drop(label, reason)
			continue
		}
		if !again {
			last, start = key, len(w.values)
		}
		if w.metadata() && name.binary {
			raw, ok := decodeBinary(f.Value)
			if !ok {
				w.config.drop(label, DropBadBase64)
				continue
			}
			w.values = append(w.values, raw...)
		} else {
			w.values = append(w.values, f.Value)
		}
		w.m[key] = w.values[start:len(w.values):len(w.values)]
	}
}

func (w *writer) checkForwarded(value string, name forwardName, total *int) (DropReason, bool) {
	if reason, ok := checkHeaderValue(value, w.config.maxHeader); !ok {
		return reason, false
	}
	if *total+len(value) > w.config.maxTotal {
		return DropTotalTooLarge, false
	}
	*total += len(value)
	if w.metadata() {
		if !metadataName(name.lower) {
			return DropInvalid, false
		}
		if !printableASCII(value) {
			return DropNotASCII, false
		}
	}
	return 0, true
}

// metadataName reports whether gRPC accepts a name: it fails the whole call
// over any other.
func metadataName(lower string) bool {
	for i := range len(lower) {
		if c := lower[i]; !isLowerAlphaNum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return lower != ""
}
