package middleware

import (
	"os"
	"slices"
	"strings"

	"github.com/canarycontroller/canary-controller/middleware/internal/httpmetrics"
)

// knownMethodsEnv overrides the methods known, as the HTTP semantic
// conventions say: a comma-separated list, case-sensitive, replacing the
// default.
const knownMethodsEnv = "OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS"

// defaultMethods are those of RFC 9110, PATCH (RFC 5789) and QUERY.
var defaultMethods = []string{
	"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE",
}

// otherMethod is the index of whatever is not known.
const otherMethod = 0

// methods numbers the known methods, so that what is kept per method can be a
// slice.
type methods struct {
	index map[string]int
	// labels are the values of http.request.method, prefixes the beginnings
	// of span names; they differ for unknown methods only.
	labels   []string
	prefixes []string
}

// newMethods takes the known methods from the list, the environment or the
// default, in this order.
func newMethods(known []string) *methods {
	if known == nil {
		for m := range strings.SplitSeq(os.Getenv(knownMethodsEnv), ",") {
			if m = strings.TrimSpace(m); m != "" {
				known = append(known, m)
			}
		}
	}
	if known == nil {
		known = defaultMethods
	}
	m := &methods{
		index:    make(map[string]int, len(known)),
		labels:   []string{httpmetrics.Other},
		prefixes: []string{"HTTP"},
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(known))) {
		m.index[name] = len(m.labels)
		m.labels = append(m.labels, name)
		m.prefixes = append(m.prefixes, name)
	}
	return m
}

// of is the number of a method as it stands in a request, where "" is GET.
// Methods are case-sensitive.
func (m *methods) of(method string) int {
	if method == "" {
		method = "GET"
	}
	return m.index[method]
}
