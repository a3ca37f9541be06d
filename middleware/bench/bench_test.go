package bench

import (
	"io"
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
			rt := c.wrap(b, newStub())
			r := b3Request(b)
			// The state of a server is in the context, as it is when a request
			// is made on behalf of another.
			ctx := r.Context()
			middleware.Handler(http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) { ctx = in.Context() }),
				server(ours(b, true, false))...).ServeHTTP(discard{http.Header{}}, r)
			out, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://ratings:9080/ratings/17", nil)
			if err != nil {
				b.Fatal(err)
			}
			out.Header.Set("Accept", "application/json")
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				resp, err := rt.RoundTrip(out)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				if err := resp.Body.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
