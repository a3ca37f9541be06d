package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/canarycontroller/canary-controller/deploy/examples/bookinfo/internal/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is one command running in this process.
type service struct {
	address, admin string
	stop           context.CancelFunc
	done           chan error
}

// logs finds the line that says where a service listens.
type logs struct {
	mu      sync.Mutex
	text    bytes.Buffer
	serving chan [2]string
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	var line struct{ Msg, Address, Admin string }
	if json.Unmarshal(p, &line) == nil && line.Msg == "serving" {
		l.serving <- [2]string{line.Address, line.Admin}
	}
	return len(p), nil
}

func environment(vars map[string]string) func(string) string {
	return func(name string) string {
		if v, ok := vars[name]; ok {
			return v
		}
		return map[string]string{"ADDR": "127.0.0.1:0", "ADMIN_ADDR": "127.0.0.1:0"}[name]
	}
}

func start(t *testing.T, name string, vars map[string]string) *service {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &logs{serving: make(chan [2]string, 1)}
	s := &service{stop: cancel, done: make(chan error, 1)}
	go func() { s.done <- run(ctx, []string{name}, environment(vars), io.Discard, l) }()
	select {
	case at := <-l.serving:
		s.address, s.admin = at[0], at[1]
	case err := <-s.done:
		cancel()
		t.Fatalf("%s: %v\n%s", name, err, l.text.String())
	case <-time.After(10 * time.Second):
		cancel()
		t.Fatalf("%s does not serve\n%s", name, l.text.String())
	}
	t.Cleanup(func() {
		cancel()
		if err := <-s.done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// app starts the four services.
func app(t *testing.T, version string) (productpage, details, reviews, ratings *service) {
	t.Helper()
	ratings = start(t, "ratings", nil)
	details = start(t, "details", nil)
	reviews = start(t, "reviews", map[string]string{"VERSION": version, "RATINGS": ratings.address})
	productpage = start(t, "productpage", map[string]string{"DETAILS": details.address, "REVIEWS": reviews.address})
	return productpage, details, reviews, ratings
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func setFault(t *testing.T, s *service, settings string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, "http://"+s.admin+"/admin/fault", strings.NewReader(settings))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("setting a fault: %s", resp.Status)
	}
}

func TestVersionsOfReviews(t *testing.T) {
	for version, want := range map[string]string{
		"v1": `{"reviewer":"Ada","text":"Kept me up past midnight, and I regret nothing."}`,
		"v2": `"rating":{"stars":5,"color":"black"}`,
		"v3": `"rating":{"stars":5,"color":"red"}`,
	} {
		t.Run(version, func(t *testing.T) {
			page, _, _, _ := app(t, version)
			if code, body := get(t, "http://"+page.address+"/api/v1/products/0/reviews"); code != 200 || !strings.Contains(body, want) {
				t.Errorf("%d %s, want %s", code, body, want)
			}
			if code, body := get(t, "http://"+page.address+"/productpage"); code != 200 || !strings.Contains(body, "The Comedy of Errors") || !strings.Contains(body, "("+version+")") {
				t.Errorf("page: %d %s", code, body)
			}
			for path, code := range map[string]int{"/api/v1/products/7": 404, "/api/v1/products/x": 400, "/api/v1/products": 200, "/nowhere": 404} {
				if got, body := get(t, "http://"+page.address+path); got != code {
					t.Errorf("%s: %d %s, want %d", path, got, body, code)
				}
			}
		})
	}
}

func TestFaultsReachTheirMetricsAndCallers(t *testing.T) {
	page, details, reviews, ratings := app(t, "v2")
	url := "http://" + page.address

	setFault(t, ratings, `{"errorPercent":100,"errorStatus":503}`)
	if code, body := get(t, url+"/api/v1/products/0/reviews"); code != 200 || !strings.Contains(body, "ratings are currently unavailable") {
		t.Errorf("without ratings: %d %s; reviews must still come", code, body)
	}
	setFault(t, reviews, `{"errorPercent":100,"errorStatus":503}`)
	if code, body := get(t, url+"/productpage"); code != 502 || !strings.Contains(body, "reviews is currently unavailable") || !strings.Contains(body, "Comedy") {
		t.Errorf("without reviews: %d %s", code, body)
	}
	setFault(t, details, `{"latency":"5s"}`)
	begin := time.Now()
	if code, _ := get(t, url+"/api/v1/products/0"); code != 504 || time.Since(begin) > 4500*time.Millisecond {
		t.Errorf("slow details: %d after %s, want 504 after 3 s", code, time.Since(begin))
	}
	for _, want := range []struct {
		s    *service
		line string
	}{
		{page, `http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="502",http_route="/productpage"} 1`},
		{page, `http_client_request_duration_seconds_count{http_request_method="GET",http_response_status_code="503",server_address="reviews"} 1`},
		{reviews, `http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code="503",http_route="/reviews/{id}"} 1`},
		{reviews, `rpc_client_call_duration_seconds_count{rpc_method="bookinfo.v1.Ratings/GetRatings",rpc_response_status_code="UNAVAILABLE"} 1`},
		{ratings, `rpc_server_call_duration_seconds_count{rpc_method="bookinfo.v1.Ratings/GetRatings",rpc_response_status_code="UNAVAILABLE"} 1`},
	} {
		if _, body := get(t, "http://"+want.s.admin+"/metrics"); !strings.Contains(body, want.line+"\n") {
			t.Errorf("metrics lack %s", want.line)
		}
	}
	for _, s := range []*service{page, details, reviews, ratings} {
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, _ := get(t, "http://"+s.admin+path); code != 200 {
				t.Errorf("%s: %d", path, code)
			}
		}
	}
}

func TestShutdownFinishesRequestsAndSaysNotReady(t *testing.T) {
	details := start(t, "details", map[string]string{"FAULT_LATENCY": "500ms", "SHUTDOWN_DELAY": "300ms"})
	answer := make(chan int, 1)
	go func() {
		resp, err := http.Get("http://" + details.address + "/details/0")
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		resp.Body.Close()
		answer <- resp.StatusCode
	}()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, body := get(t, "http://"+details.admin+"/metrics"); strings.Contains(body, `http_server_active_requests{http_request_method="GET"} 1`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the request does not arrive")
		}
	}
	details.stop()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if code, _ := get(t, "http://"+details.admin+"/readyz"); code == 503 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("still ready while shutting down")
		}
	}
	if code := <-answer; code != 200 {
		t.Errorf("the request under way got %d", code)
	}
}

func TestLoadReportsWhatCameBack(t *testing.T) {
	page, _, _, _ := app(t, "v1")
	var out bytes.Buffer
	err := run(t.Context(), []string{"load", "-url", "http://" + page.address + "/productpage", "-rate", "500", "-requests", "20", "-report", "0"}, environment(nil), &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var got load.Result
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Status["2xx"] != 20 {
		t.Errorf("%s (%v)", out.String(), err)
	}
}

func TestErrorsOfTheCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(bad, []byte("outlierDetection: {intervall: 1s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		vars map[string]string
		want string
	}{
		{nil, nil, "usage: bookinfo"},
		{[]string{"shipping"}, nil, `unknown command "shipping"`},
		{[]string{"reviews"}, map[string]string{"VERSION": "v9"}, `VERSION "v9"`},
		{[]string{"reviews"}, map[string]string{"VERSION": "v2", "RATINGS": "ratings"}, "RATINGS"},
		{[]string{"productpage"}, map[string]string{"DETAILS": "file:"}, "DETAILS"},
		{[]string{"productpage"}, map[string]string{"OUTLIER_POLICY": bad}, "intervall"},
		{[]string{"details"}, map[string]string{"FAULT_LATENCY": "soon"}, "FAULT_"},
		{[]string{"productpage"}, map[string]string{"OUTLIER_POLICY": bad + ".missing"}, "OUTLIER_POLICY"},
		{[]string{"load", "-rate", "0"}, nil, "rate 0"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := run(ctx, tc.args, environment(tc.vars), io.Discard, io.Discard)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v %v: error %v, want %q", tc.args, tc.vars, err, tc.want)
		}
	}
}
