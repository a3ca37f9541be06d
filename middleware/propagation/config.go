package propagation

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Sizes in bytes of what is forwarded at most, unless WithMaxForwarded says
// otherwise.
const (
	DefaultMaxForwardedHeader = 8 << 10
	DefaultMaxForwardedTotal  = 32 << 10
)

// Config says how state is read and written. It is made by [NewConfig], does
// not change afterwards and is safe for concurrent use. A nil *Config means
// [Default] wherever one is accepted.
type Config struct {
	extract     []Format
	inject      Format
	stale       uint16 // bit set of the keys that Inject removes when it does not write them
	forward     []forwardName
	opaqueW3C   bool // traceparent and tracestate are on the allowlist
	trust       TrustPolicy
	baggage     map[string]bool
	baggageAll  bool
	passthrough bool
	mirror      bool
	nibble      *[256]byte
	requestID   bool
	maxHeader   int
	maxTotal    int
	onDrop      func(string, DropReason)
	rand        func() uint64
}

// forwardName is one allowlisted header in both spellings.
type forwardName struct {
	canonical, lower string
	binary           bool // a gRPC "-bin" name
	listed           bool // on the allowlist, so that it may be a metric label
}

// otherName stands for headers that users put into a State and that are not on
// the allowlist.
const otherName = "other"

var defaultConfig = sync.OnceValue(func() *Config {
	c, err := NewConfig()
	if err != nil {
		panic("propagation: the default configuration is invalid: " + err.Error())
	}
	return c
})

// Default is the configuration without options: it reads B3 single, B3 multi,
// W3C and Jaeger in this order, writes B3 multi and W3C, forwards
// [DefaultForward], trusts everybody and carries no baggage.
func Default() *Config { return defaultConfig() }

func (c *Config) orDefault() *Config {
	if c == nil {
		return defaultConfig()
	}
	return c
}

// NewConfig makes a configuration. The error names the option and the value
// that is wrong.
func NewConfig(opts ...Option) (*Config, error) {
	set := settings{
		extract:   []Format{B3Single, B3Multi, TraceContext, Jaeger},
		inject:    []Format{B3Multi, TraceContext},
		forward:   DefaultForward(),
		requestID: true,
		maxHeader: DefaultMaxForwardedHeader,
		maxTotal:  DefaultMaxForwardedTotal,
		rand:      rand.Uint64,
	}
	for _, o := range opts {
		o(&set)
	}
	return set.compile()
}

// Passthrough reports whether this is forward-only mode.
func (c *Config) Passthrough() bool { return c.orDefault().passthrough }

// Trust is what the configured policy trusts peer with.
func (c *Config) Trust(peer Peer) Trust { return c.orDefault().trust.Decide(peer) }

// UsesRequestID reports whether request ids are handled; see
// [WithoutRequestID].
func (c *Config) UsesRequestID() bool { return c.orDefault().requestID }

// ForwardNames are the names that [WithOnDrop] can be called with, in order:
// canonical header names, and "other" for headers that are not on the
// allowlist but that a user put into a State.
func (c *Config) ForwardNames() []string {
	c = c.orDefault()
	names := make([]string, 0, len(c.forward)+5)
	// What users put into a State is checked when it is injected.
	names = append(names, otherName, HeaderRequestID, HeaderTracestate, HeaderBaggage)
	for _, f := range c.forward {
		names = append(names, f.canonical)
	}
	if c.opaqueW3C {
		names = append(names, HeaderTraceparent)
	}
	slices.Sort(names)
	return names
}

func newForwardName(name string) forwardName {
	lower := strings.ToLower(name)
	return forwardName{
		canonical: http.CanonicalHeaderKey(name),
		lower:     lower,
		binary:    strings.HasSuffix(lower, "-bin"),
	}
}
