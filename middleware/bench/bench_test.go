package bench

import (
	"net/http"
	"testing"

	"github.com/canarycontroller/canary-controller/middleware"
)

var ok = []byte("ok")

func reviews(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(ok); err != nil {
		panic(err)
	}
}

func BenchmarkServer(b *testing.B) {
	for _, c := range servers {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.wrap(b, http.HandlerFunc(reviews))) })
	}
}

// BenchmarkServerMux has a ServeMux inside, so that routes are found.
func BenchmarkServerMux(b *testing.B) {
	for _, c := range servers {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /reviews/{product}", reviews)
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.wrap(b, mux)) })
	}
}

func benchmark(b *testing.B, h http.Handler) {
	r := b3Request(b)
	w := discard{http.Header{}}
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func BenchmarkClient(b *testing.B) {
	for _, c := range clients {
		b.Run(c.name, func(b *testing.B) {
			send := sending(b, c.name)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				send()
			}
		})
	}
}

// outbound is a request made on behalf of another, whose state is in the
// context.
func outbound(b *testing.B) *http.Request {
	in := b3Request(b)
	ctx := in.Context()
	middleware.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }),
		server(ours(b, true, false))...).ServeHTTP(discard{http.Header{}}, in)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://ratings:9080/ratings/17", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	return r
}
