package outlier_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canarycontroller/canary-controller/middleware/outlier"
)

// A client of the service reviews, with the DestinationRule the mesh would have
// used. The failing endpoint is ejected after two errors.
func Example() {
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	defer good.Close()
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer bad.Close()

	policy, err := outlier.ParsePolicy([]byte(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews}
spec:
  host: reviews
  trafficPolicy:
    connectionPool:
      tcp: {maxConnections: 100, connectTimeout: 1s}
    outlierDetection:
      consecutive5xxErrors: 2
      baseEjectionTime: 30s
      maxEjectionPercent: 50
`))
	if err != nil {
		log.Fatal(err)
	}
	transport, err := outlier.New("reviews",
		outlier.Static(bad.Listener.Addr().String(), good.Listener.Addr().String()),
		outlier.WithPolicy(policy.TrafficPolicy),
		outlier.WithRegisterer(prometheus.NewRegistry()),
		outlier.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()

	client := &http.Client{Transport: transport}
	for range 6 {
		resp, err := client.Get("http://reviews/")
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %q\n", resp.StatusCode, body)
	}
	fmt.Println("ejected:", transport.Endpoints()[0].Ejected)
	// Output:
	// 502 ""
	// 200 "fine"
	// 502 ""
	// 200 "fine"
	// 200 "fine"
	// 200 "fine"
	// ejected: true
}

// What a caller can tell from an error.
func ExampleOverflowError() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	defer srv.Close()
	transport, err := outlier.New("ratings", outlier.Static(srv.Listener.Addr().String()),
		outlier.WithPolicy(outlier.TrafficPolicy{
			ConnectionPool: outlier.ConnectionPool{HTTP: outlier.HTTPSettings{HTTP2MaxRequests: 1}},
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()
	client := &http.Client{Transport: transport}

	first, err := client.Get("http://ratings/")
	if err != nil {
		log.Fatal(err)
	}
	defer first.Body.Close() // until then it counts
	_, err = client.Get("http://ratings/")
	var overflow *outlier.OverflowError
	if errors.As(err, &overflow) {
		fmt.Println(overflow.Cluster, overflow.Reason, overflow.Limit)
	}
	// Output: ratings requests 1
}

// Errors of a policy name the field and the line.
func ExampleParsePolicy() {
	_, err := outlier.ParsePolicy([]byte("outlierDetection:\n  interval: 10\n"))
	fmt.Println(err)
	_, err = outlier.ParsePolicy([]byte("loadBalancer:\n  simple: ROUND_ROBIN\ntls:\n  mode: SIMPLE\n"))
	fmt.Println(err)
	// Output:
	// outlier: policy: outlierDetection.interval (line 2): must be a string, got "10"
	// outlier: policy: tls (line 3): is not supported by this transport
}

// The addresses of a name, as of a headless Service, looked up again every 30 seconds. New does
// not wait for them.
func ExampleDNS() {
	transport, err := outlier.New("reviews", outlier.DNS("localhost:9080", nil))
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	fmt.Println(client.Transport != nil)
	// Output: true
}
