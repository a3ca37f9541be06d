package middleware

import (
	"maps"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/canarycontroller/canary-controller/middleware/internal/httpmetrics"
)

// maxPatterns bounds the cache of routes. A mux has fewer; this is for a
// Pattern written by something else.
const maxPatterns = 10000

// operation is what is known of a method on a route before any request: the
// name of its spans and its metrics.
type operation struct {
	route  string
	name   string
	series *httpmetrics.Series // nil without metrics
}

// routes caches the operations of a handler. It is safe for concurrent use.
type routes struct {
	methods *methods
	metrics *httpmetrics.Server // nil without metrics

	// The map is replaced, never changed, so that readers need no lock.
	byPattern atomic.Pointer[map[string]*patternOps]
	mu        sync.Mutex
}

type patternOps struct {
	route    string
	byMethod []atomic.Pointer[operation]
}

func newRoutes(m *methods, metrics *httpmetrics.Server) *routes {
	rs := &routes{methods: m, metrics: metrics}
	rs.byPattern.Store(&map[string]*patternOps{})
	return rs
}

// find gives the operation of a method on the pattern of a ServeMux, "" for
// none.
func (rs *routes) find(pattern string, method int) *operation {
	p := (*rs.byPattern.Load())[pattern]
	if p == nil {
		p = rs.add(pattern)
	}
	if op := p.byMethod[method].Load(); op != nil {
		return op
	}
	op := &operation{route: p.route, name: spanName(rs.methods.prefixes[method], p.route)}
	if rs.metrics != nil {
		op.series = rs.metrics.Series(rs.methods.labels[method], p.route)
	}
	p.byMethod[method].Store(op)
	return op
}

func (rs *routes) add(pattern string) *patternOps {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	old := *rs.byPattern.Load()
	if p := old[pattern]; p != nil {
		return p
	}
	p := &patternOps{
		route:    routeOf(pattern),
		byMethod: make([]atomic.Pointer[operation], len(rs.methods.labels)),
	}
	if len(old) < maxPatterns {
		grown := maps.Clone(old)
		grown[pattern] = p
		rs.byPattern.Store(&grown)
	}
	return p
}

// spanName follows the semantic conventions: the method and, when there is a
// low-cardinality target, the target.
func spanName(method, route string) string {
	if route == "" {
		return method
	}
	return method + " " + route
}

// routeOf is the path template of a pattern "[METHOD ][HOST]/[PATH]".
func routeOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return ""
}

// patternOf is the pattern of the mux that served the request, without the
// one case in which a ServeMux reports the path the client sent: the redirect
// of a CONNECT request to its path with a slash.
func patternOf(r *http.Request, pattern string) string {
	if r.Method == http.MethodConnect && pattern == path.Clean(r.URL.Path)+"/" {
		return ""
	}
	return pattern
}
