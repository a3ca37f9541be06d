package propagation

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
)

// Trust is the set of things taken over from a caller.
type Trust uint8

// What a caller can be trusted with.
const (
	// TrustIDs continues the caller's trace.
	TrustIDs Trust = 1 << iota
	// TrustFlags takes over the sampling decision, debug included.
	TrustFlags
	// TrustRequestID keeps the caller's x-request-id.
	TrustRequestID
	// TrustBaggage takes over baggage.
	TrustBaggage
	// TrustForwarded forwards the caller's headers by the allowlist.
	TrustForwarded

	// TrustNothing starts a new trace and takes over nothing.
	TrustNothing Trust = 0
	// TrustEverything is every bit above.
	TrustEverything = TrustIDs | TrustFlags | TrustRequestID | TrustBaggage | TrustForwarded
)

// Has reports whether t holds all of bits.
func (t Trust) Has(bits Trust) bool { return t&bits == bits }

// Peer is what is known of a caller before anything it sent is believed.
type Peer struct {
	// Context of the request; gRPC callers find peer.FromContext in it. May be
	// nil.
	Context context.Context
	// RemoteAddr is "ip:port" as in http.Request.RemoteAddr, or empty.
	RemoteAddr string
	// TLS is the connection's state; nil without TLS.
	TLS *tls.ConnectionState
	// Header of an HTTP request; nil for gRPC. Not to be modified.
	Header http.Header
	// Metadata of a gRPC call; nil for HTTP. Not to be modified.
	Metadata map[string][]string
	// Method is the HTTP method or the full gRPC method name, or empty.
	Method string
}

// TrustPolicy decides what a caller is trusted with. The zero value trusts
// everybody with everything, which is right inside a mesh and wrong at its
// edge.
type TrustPolicy struct {
	decide func(Peer) Trust
}

// TrustAll trusts every caller with everything.
func TrustAll() TrustPolicy { return TrustPolicy{} }

// TrustNone trusts no caller with anything: a public endpoint.
func TrustNone() TrustPolicy {
	return TrustPolicy{decide: func(Peer) Trust { return TrustNothing }}
}

// TrustFunc asks f for every request. f must be safe for concurrent use; a nil
// f trusts nobody.
func TrustFunc(f func(Peer) Trust) TrustPolicy {
	if f == nil {
		return TrustNone()
	}
	return TrustPolicy{decide: f}
}

// TrustNetworks trusts callers whose connection comes from one of the prefixes
// with everything and others with nothing. It looks at the address of the
// connection only, never at a header.
func TrustNetworks(prefixes ...netip.Prefix) TrustPolicy {
	return TrustFunc(func(p Peer) Trust {
		host, _, err := net.SplitHostPort(p.RemoteAddr)
		if err != nil {
			host = p.RemoteAddr
		}
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return TrustNothing
		}
		addr = addr.WithZone("").Unmap()
		for _, prefix := range prefixes {
			if prefix.Contains(addr) {
				return TrustEverything
			}
		}
		return TrustNothing
	})
}

// Decide is what the policy trusts peer with.
func (p TrustPolicy) Decide(peer Peer) Trust {
	if p.decide == nil {
		return TrustEverything
	}
	return p.decide(peer)
}
