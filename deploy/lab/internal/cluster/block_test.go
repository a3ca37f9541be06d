package cluster

import (
	"net/netip"
	"testing"
)

func TestBlocksDoNotOverlap(t *testing.T) {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	for i := range blockCount {
		p := blockPrefix(i)
		if p != p.Masked() || !loopback.Contains(p.Addr()) {
			t.Errorf("block %d is %s", i, p)
		}
		for j := range i {
			if p.Overlaps(blockPrefix(j)) {
				t.Errorf("blocks %d and %d overlap", i, j)
			}
		}
	}
	if got := blockPrefix(0).String(); got != "127.10.0.0/20" {
		t.Errorf("the first block is %s", got)
	}
}

func TestClaimsAreExclusive(t *testing.T) {
	first, err := claimBlock()
	if err != nil {
		t.Fatal(err)
	}
	defer first.release()
	second, err := claimBlock()
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if first.prefix == second.prefix {
		t.Errorf("two claims of %s", first.prefix)
	}
	if ports, err := freePorts(first.address(), 7); err != nil || len(ports) != 7 {
		t.Errorf("free ports %v, %v", ports, err)
	}
}
