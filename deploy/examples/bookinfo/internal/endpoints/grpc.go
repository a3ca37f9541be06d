package endpoints

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/canarycontroller/canary-controller/middleware/outlier"
)

// Scheme is that of the targets Builder resolves: dial Scheme + ":///ratings".
const Scheme = "endpoints"

// Interval is how often a gRPC client looks again.
const Interval = time.Second

// Builder makes a resolver usable as a gRPC name resolver. Give it to a
// connection with grpc.WithResolvers.
func Builder(r outlier.Resolver) resolver.Builder { return builder{r} }

type builder struct{ source outlier.Resolver }

func (builder) Scheme() string { return Scheme }

func (b builder) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{source: b.source, cc: cc, now: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

// watch feeds one connection.
type watch struct {
	source outlier.Resolver
	cc     resolver.ClientConn
	now    chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

func (w *watch) run(ctx context.Context) {
	defer close(w.done)
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		w.update(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.now:
		}
	}
}

func (w *watch) update(ctx context.Context) {
	list, err := w.source.Resolve(ctx)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("endpoints: none known")
	}
	if err != nil {
		if ctx.Err() == nil {
			w.cc.ReportError(err)
		}
		return
	}
	state := resolver.State{Endpoints: make([]resolver.Endpoint, 0, len(list))}
	for _, a := range list {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	// The error asks to resolve again, which the ticker does.
	_ = w.cc.UpdateState(state)
}

func (w *watch) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case w.now <- struct{}{}:
	default:
	}
}

// Close waits for the watching goroutine.
func (w *watch) Close() {
	w.cancel()
	<-w.done
}
