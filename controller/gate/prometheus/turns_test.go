package prometheus

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Addresses come from Canaries: what is kept of them must not grow for ever, and leaving and
// coming back must not renew anybody's turns.
func TestTurnsAreDropped(t *testing.T) {
	gate := newTurnstile(2, 50)
	busy := gate.enter("busy:80", start0)
	for i := range 100 {
		gate.leave(gate.enter(fmt.Sprint(i, ":80"), start0), start0)
	}
	if again := gate.enter("0:80", start0.Add(turnsKept)); again != gate.turns["0:80"] || len(gate.turns) != 101 {
		t.Fatalf("%d kept, want all until %s have passed", len(gate.turns), turnsKept)
	}
	late := start0.Add(turnsKept + time.Second)
	gate.leave(gate.turns["0:80"], late)
	gate.enter("new:80", late)
	if len(gate.turns) != 3 || gate.turns["busy:80"] != busy || gate.turns["0:80"] == nil {
		t.Errorf("%d kept, want the busy one, the recent one and the new one", len(gate.turns))
	}
}

func TestTurnsEndWithTheContext(t *testing.T) {
	of := newTurnstile(1, 1000).enter("a:80", start0)
	release, ok := of.take(t.Context())
	if !ok {
		t.Fatal("no turn although nobody else has one")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, ok := of.take(ctx); ok {
		t.Error("two turns at once")
	}
	release()
	release, ok = of.take(t.Context())
	if !ok {
		t.Fatal("no turn after the other ended")
	}
	release()
}
