package jaegerudp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Options.
const (
	// DefaultAddress is where Jaeger agents listen for compact Thrift.
	DefaultAddress = "localhost:6831"
	// DefaultMaxPacketSize is the largest datagram jaeger-agent accepts, in
	// bytes. Off the loopback interface a packet over the path's MTU is
	// fragmented and lost whole when one fragment is: set about 1400 there.
	DefaultMaxPacketSize = 65000
	// DefaultResolveInterval is how often the agent's name is looked up again.
	DefaultResolveInterval = 30 * time.Second

	// minPacketSize leaves room for the envelope and one span without tags.
	minPacketSize = 512
	// maxPacketSize is the largest UDP payload over IPv4.
	maxPacketSize = 65507
)

// Resolver looks up the agent's host name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options configure an Exporter. The zero value is usable.
type Options struct {
	// Address is the agent's host:port; empty means DefaultAddress.
	Address string
	// MaxPacketSize is the most bytes a datagram may have, 512 to 65507; zero
	// means DefaultMaxPacketSize.
	MaxPacketSize int
	// ResolveInterval is how often a host name is looked up again; zero means
	// DefaultResolveInterval. An address that is an IP is never looked up.
	ResolveInterval time.Duration
	// Resolver looks names up; nil means net.DefaultResolver.
	Resolver Resolver
	// Registerer takes the exporter's metrics; nil registers none.
	Registerer prometheus.Registerer
	// Logger gets changes of the agent's address and the first failure of each
	// streak; nil means slog.Default().
	Logger *slog.Logger
}

// withDefaults returns the options with every field set, or an error naming
// the field and its rule.
func (o Options) withDefaults() (Options, string, uint16, error) {
	if o.Address == "" {
		o.Address = DefaultAddress
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return o, "", 0, fmt.Errorf("jaeger agent address %q: must be host:port: %w", o.Address, err)
	}
	if host == "" {
		return o, "", 0, fmt.Errorf("jaeger agent address %q: the host is missing", o.Address)
	}
	portNumber, err := strconv.ParseUint(port, 10, 16)
	if err != nil || portNumber == 0 {
		return o, "", 0, fmt.Errorf("jaeger agent address %q: the port must be a number from 1 to 65535", o.Address)
	}
	if o.MaxPacketSize == 0 {
		o.MaxPacketSize = DefaultMaxPacketSize
	}
	if o.MaxPacketSize < minPacketSize || o.MaxPacketSize > maxPacketSize {
		return o, "", 0, fmt.Errorf("jaeger agent max packet size %d: must be %d to %d bytes", o.MaxPacketSize, minPacketSize, maxPacketSize)
	}
	if o.ResolveInterval < 0 {
		return o, "", 0, fmt.Errorf("jaeger agent resolve interval %s: must not be negative", o.ResolveInterval)
	}
	if o.ResolveInterval == 0 {
		o.ResolveInterval = DefaultResolveInterval
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, host, uint16(portNumber), nil
}
