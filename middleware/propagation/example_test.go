package propagation_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// A service that records no spans passes on what it was sent.
func ExampleWithPassthrough() {
	cfg, err := propagation.NewConfig(propagation.WithPassthrough(), propagation.WithInject(), propagation.WithForward("x-tenant"))
	if err != nil {
		fmt.Println(err)
		return
	}
	in := http.Header{}
	in.Set("b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90")
	in.Set("x-request-id", "7f0c")
	in.Set("x-tenant", "blue")
	in.Set("cookie", "secret")

	out := http.Header{}
	propagation.Inject(propagation.Extract(in, cfg), out, cfg)
	for _, name := range []string{"B3", "X-Request-Id", "X-Tenant", "Cookie"} {
		fmt.Printf("%s: %s\n", name, out.Get(name))
	}
	// Output:
	// B3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90
	// X-Request-Id: 7f0c
	// X-Tenant: blue
	// Cookie:
}

// The state in a context can be read and replaced, for example to force one
// request to be traced everywhere downstream.
func ExampleContextWithState() {
	in := http.Header{"X-B3-Traceid": {"64fe8b2a57d3eff7"}, "X-B3-Spanid": {"e457b5a2e4d86bd1"}, "X-B3-Sampled": {"0"}}
	ctx := propagation.ContextWithState(context.Background(), propagation.Extract(in, nil))

	if s, ok := propagation.FromContext(ctx); ok {
		fmt.Println(s.TraceIDString(), s.Sampling)
		s.Sampling = propagation.Debug
		ctx = propagation.ContextWithState(ctx, s)
	}

	out := http.Header{}
	propagation.Inject(propagation.Current(ctx), out, nil)
	fmt.Println(out.Get("X-B3-TraceId"), "flags", out.Get("X-B3-Flags"))
	// Output:
	// 64fe8b2a57d3eff7 deny
	// 64fe8b2a57d3eff7 flags 1
}

// At the edge of a mesh, callers are trusted by what they are, not by what
// they send.
func ExampleWithTrust() {
	cfg, err := propagation.NewConfig(propagation.WithTrust(propagation.TrustFunc(func(p propagation.Peer) propagation.Trust {
		if p.TLS != nil && len(p.TLS.VerifiedChains) > 0 {
			return propagation.TrustEverything
		}
		return propagation.TrustNothing
	})))
	if err != nil {
		fmt.Println(err)
		return
	}
	in := http.Header{"B3": {"d"}, "X-Request-Id": {"chosen-by-a-stranger"}}
	s := propagation.Extract(in, cfg)
	fmt.Println(s.Sampling, s.RequestIDGenerated)
	// Output: defer true
}
