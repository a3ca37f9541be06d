package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

const (
	blockCount = 64
	blockBits  = 20
	// ReservedAddresses at the start of a block are for the control plane.
	ReservedAddresses = 16
)

// block is a range of loopback addresses that belongs to this lab alone as
// long as it holds it.
type block struct {
	prefix netip.Prefix
	claim  net.Listener
}

// blockPrefix is the range of number i: 127.10.0.0/20, 127.10.16.0/20 and so on.
func blockPrefix(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(10 + i/16), byte(16 * (i % 16)), 0}), blockBits)
}

// claimBlock takes the first free block. The claim is an abstract Unix socket:
// its name space is that of the network namespace, as the addresses' is, and
// the kernel frees it when the process dies.
func claimBlock() (*block, error) {
	for i := range blockCount {
		prefix := blockPrefix(i)
		l, err := net.Listen("unix", "@canary-controller-lab/"+prefix.String())
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("claiming address range %s: %w", prefix, err)
		}
		return &block{prefix: prefix, claim: l}, nil
	}
	return nil, fmt.Errorf("all %d loopback address ranges are taken by running labs", blockCount)
}

func (b *block) release() { _ = b.claim.Close() }

// address is the control plane's address.
func (b *block) address() string { return b.prefix.Addr().Next().String() }

// freePorts returns n TCP ports that nothing listens on at address. Only this
// lab binds there, so they stay free until used.
func freePorts(address string, n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			return nil, fmt.Errorf("looking for a free port on %s: %w", address, err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
