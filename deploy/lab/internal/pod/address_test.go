package pod

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is taken and put back, no address is out twice, all are inside the
// range and outside the reserved part.
func TestAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := netip.MustParsePrefix("127.10.16.0/27")
		a := newAddresses(prefix, 16)
		out := map[string]bool{}
		var order []string
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(order) > 0 && rapid.Bool().Draw(t, "put") {
				i := rapid.IntRange(0, len(order)-1).Draw(t, "which")
				a.put(order[i])
				delete(out, order[i])
				order = append(order[:i], order[i+1:]...)
				continue
			}
			ip, err := a.take()
			if err != nil {
				if len(out) != 15 {
					t.Fatalf("exhausted with %d of 15 addresses out", len(out))
				}
				continue
			}
			addr := netip.MustParseAddr(ip)
			if out[ip] || !prefix.Contains(addr) || addr.As4()[3] < 16 || addr.As4()[3] > 30 {
				t.Fatalf("took %s with %v out", ip, out)
			}
			out[ip] = true
			order = append(order, ip)
		}
	})
}
