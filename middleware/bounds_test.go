package middleware

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// TestHostileRequestsMakeNoSeries sends what an attacker would to blow up the
// metrics: methods, hosts and paths made up for each request.
func TestHostileRequestsMakeNoSeries(t *testing.T) {
	const requests, routes, limit = 100_000, 1000, 3000
	l := newLab(t)
	mux := http.NewServeMux()
	for i := range routes {
		mux.HandleFunc(fmt.Sprintf("/r%d/{id}", i), func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200 + len(r.PathValue("id"))%400)
		})
		mux.HandleFunc(fmt.Sprintf("/dir%d/{id}/", i), ok)
	}
	h := l.handler(mux, WithForwardOnly(), WithSeriesLimit(limit))
	rt := l.transport(&stub{}, WithForwardOnly(), WithServerAddressLimit(20))
	rnd := rand.New(rand.NewPCG(1, 2))
	known := append([]string{""}, defaultMethods...)
	for i := range requests {
		method := known[rnd.IntN(len(known))]
		switch rnd.IntN(3) {
		case 0:
			method = fmt.Sprintf("M%d", i)
		case 1:
			method = http.MethodConnect
		}
		path := fmt.Sprintf("/r%d/%s", rnd.IntN(routes), strings.Repeat("x", rnd.IntN(400)))
		switch rnd.IntN(4) {
		case 0:
			path = fmt.Sprintf("/nowhere/%d", i)
		case 1:
			path = fmt.Sprintf("/dir%d/%d", rnd.IntN(routes), i) // redirected to itself with a slash
		}
		host := fmt.Sprintf("h%d.example", i)
		r := &http.Request{Method: method, Host: host, URL: &url.URL{Path: path}, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}
		if method == http.MethodConnect {
			r.URL.Host = host
		}
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(t.Context()))
		if i%10 == 0 {
			roundTrip(t, rt, outbound(t, t.Context(), "http://"+host+"/"))
		}
	}

	server := l.counts("http_server_request_duration_seconds")
	var total uint64
	for key, n := range server {
		total += n
		if strings.Contains(key, "nowhere") || strings.Contains(key, "example") || strings.Contains(key, " M") {
			t.Errorf("series %q", key)
		}
	}
	// Past the limit: one per method and class of status.
	if ceiling := limit + (len(defaultMethods)+1)*6; len(server) > ceiling || len(server) < limit/2 {
		t.Errorf("%d series of durations, want at most %d and many", len(server), ceiling)
	}
	if total != requests {
		t.Errorf("%d requests counted, want %d", total, requests)
	}
	if n := len(l.metrics("http_server_active_requests")); n != len(defaultMethods)+1 {
		t.Errorf("%d series of active requests", n)
	}
	if n := len(l.counts("http_client_request_duration_seconds")); n != 21 {
		t.Errorf("%d series of client durations, want 20 hosts and _OTHER", n)
	}
}

func TestNothingOfKubernetes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	sdk := false
	for dep := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(dep, "k8s.io") || strings.Contains(dep, "go.opentelemetry.io/otel/sdk") || strings.Contains(dep, "google.golang.org/grpc") {
			t.Errorf("package middleware depends on %s", dep)
		}
		sdk = sdk || dep == "go.opentelemetry.io/otel/trace"
	}
	if !sdk {
		t.Errorf("the list does not even have the trace API: %.200s", out)
	}
}
