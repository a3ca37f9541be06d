package pod

import (
	"fmt"
	"net/netip"
	"sync"
)

// addresses hands out the addresses of a range, each to one pod at a time. It
// goes round the range, so that an address rests as long as possible before
// another pod gets it.
type addresses struct {
	mu    sync.Mutex
	first netip.Addr
	size  int
	next  int
	used  map[netip.Addr]bool
}

// newAddresses hands out prefix without its first reserved addresses and
// without the last one.
func newAddresses(prefix netip.Prefix, reserved int) *addresses {
	first := prefix.Masked().Addr()
	size := 1<<(first.BitLen()-prefix.Bits()) - reserved - 1
	return &addresses{first: addOffset(first, reserved), size: size, used: map[netip.Addr]bool{}}
}

func addOffset(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

func (a *addresses) take() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range a.size {
		addr := addOffset(a.first, a.next)
		a.next = (a.next + 1) % a.size
		if !a.used[addr] {
			a.used[addr] = true
			return addr.String(), nil
		}
	}
	return "", fmt.Errorf("all %d pod addresses are in use", a.size)
}

func (a *addresses) put(addr string) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, ip)
}
