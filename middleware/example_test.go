package middleware_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canarycontroller/canary-controller/middleware"
	"github.com/canarycontroller/canary-controller/middleware/propagation"
)

// A service answers requests and, to do so, sends some. What identifies a
// request travels along.
func Example() {
	ratings := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Request-Id"), " of trace ", r.Header.Get("X-B3-TraceId"))
	}))
	defer ratings.Close()

	reg := prometheus.NewRegistry()
	client := &http.Client{Transport: middleware.Transport(nil, middleware.WithRegisterer(reg))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reviews/{product}", func(w http.ResponseWriter, r *http.Request) {
		// The context carries the state from one to the other.
		out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, ratings.URL, nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		resp, err := client.Do(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		if _, err := io.Copy(w, resp.Body); err != nil {
			slog.ErrorContext(r.Context(), "copying the ratings", "err", err)
		}
	})
	reviews := httptest.NewServer(middleware.Handler(mux, middleware.WithRegisterer(reg)))
	defer reviews.Close()
	defer client.CloseIdleConnections()

	req, err := http.NewRequest(http.MethodGet, reviews.URL+"/reviews/17", nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("X-Request-Id", "order-4711")
	req.Header.Set("B3", "463ac35c9f6413ad48485a3953bb6124-a2fb4a1d1a96d312-1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(answer))
	fmt.Println("echoed:", resp.Header.Get("X-Request-Id"))
	// Output:
	// order-4711 of trace 463ac35c9f6413ad48485a3953bb6124
	// echoed: order-4711
}

func ExampleHandler_forwardOnly() {
	// No span, no SDK: headers in, headers out.
	h := middleware.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		out := http.Header{}
		propagation.Inject(propagation.Current(r.Context()), out, nil)
		fmt.Println(out.Get("X-B3-SpanId"), "below", out.Get("X-B3-ParentSpanId"))
	}), middleware.WithForwardOnly())
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("B3", "463ac35c9f6413ad48485a3953bb6124-a2fb4a1d1a96d312-1-05e3ac9a4f6e3b90")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output: a2fb4a1d1a96d312 below 05e3ac9a4f6e3b90
}

func ExampleWithPublicEndpoint() {
	// At the edge nothing a client sends is believed.
	h := middleware.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(propagation.RequestIDFromContext(r.Context()) == "forged")
	}), middleware.WithPublicEndpoint())
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Id", "forged")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output: false
}

func ExampleWithMux() {
	// TimeoutHandler works on a copy of the request, so the route the mux
	// finds would not be seen.
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reviews/{product}", func(http.ResponseWriter, *http.Request) {})
	reg := prometheus.NewRegistry()
	h := middleware.Handler(http.TimeoutHandler(mux, 1e9, "too slow"), middleware.WithMux(mux), middleware.WithRegisterer(reg))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/reviews/17", nil))
	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() != "http_server_request_duration_seconds" {
			continue
		}
		for _, l := range f.GetMetric()[0].GetLabel() {
			fmt.Printf("%s=%q\n", l.GetName(), l.GetValue())
		}
	}
	// Output:
	// http_request_method="GET"
	// http_response_status_code="200"
	// http_route="/reviews/{product}"
}

func ExampleTransport_forwardTo() {
	// Request ids and forwarded headers stay in the house; trace headers go
	// everywhere.
	stub := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		fmt.Printf("%s: request id %q\n", r.URL.Host, r.Header.Get("X-Request-Id"))
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})
	client := &http.Client{Transport: middleware.Transport(stub, middleware.WithForwardTo("*.svc.cluster.local"))}
	h := middleware.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, url := range []string{"http://ratings.svc.cluster.local/", "http://example.com/"} {
			out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
			if err != nil {
				panic(err)
			}
			resp, err := client.Do(out)
			if err != nil {
				panic(err)
			}
			resp.Body.Close()
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Id", "order-4711")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// ratings.svc.cluster.local: request id "order-4711"
	// example.com: request id ""
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func ExampleNewLogHandler() {
	plain := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := slog.New(middleware.NewLogHandler(plain))
	h := middleware.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		log.InfoContext(r.Context(), "sold out", "product", 17)
	}), middleware.WithForwardOnly())
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Id", "order-4711")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output: level=INFO msg="sold out" product=17 request_id=order-4711
}
