package fault

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestDecide(t *testing.T) {
	s := Settings{Latency: time.Second, LatencyPercent: 50, ErrorPercent: 10, ErrorStatus: 503}
	for _, tc := range []struct {
		name             string
		s                Settings
		latency, failure float64
		want             Outcome
	}{
		{"healthy", Settings{}, 0, 0, Outcome{}},
		{"both", s, 0.49, 0.09, Outcome{time.Second, 503}},
		{"just outside", s, 0.5, 0.1, Outcome{}},
		{"slow alone", s, 0, 0.99, Outcome{Wait: time.Second}},
		{"always", Settings{ErrorPercent: 100, ErrorStatus: 500}, 0.999, 0.999, Outcome{Status: 500}},
	} {
		if got := tc.s.Decide(tc.latency, tc.failure); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestFromEnv(t *testing.T) {
	for _, tc := range []struct {
		vars map[string]string
		want Settings
		err  string
	}{
		{nil, Settings{ErrorStatus: 500, LatencyPercent: 100}, ""},
		{map[string]string{"FAULT_LATENCY": "250ms"}, Settings{Latency: 250 * time.Millisecond, LatencyPercent: 100, ErrorStatus: 500}, ""},
		{map[string]string{"FAULT_ERROR_PERCENT": "2.5", "FAULT_ERROR_STATUS": "503", "FAULT_LATENCY_PERCENT": "0"}, Settings{ErrorPercent: 2.5, ErrorStatus: 503}, ""},
		{map[string]string{"FAULT_ERROR_PERCENT": "many"}, Settings{}, `FAULT_ERROR_PERCENT "many": must be a number`},
		{map[string]string{"FAULT_ERROR_PERCENT": "101"}, Settings{}, "errorPercent 101: must be 0 to 100"},
		{map[string]string{"FAULT_ERROR_PERCENT": "NaN"}, Settings{}, "errorPercent NaN: must be 0 to 100"},
		{map[string]string{"FAULT_ERROR_PERCENT": "1", "FAULT_ERROR_STATUS": "200"}, Settings{}, "errorStatus 200: must be 400 to 599"},
		{map[string]string{"FAULT_LATENCY": "2h"}, Settings{}, "must be 0s to 1m0s"},
		{map[string]string{"FAULT_LATENCY": "soon"}, Settings{}, "must be a duration"},
	} {
		got, err := FromEnv(func(name string) string { return tc.vars[name] })
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v: error %v, want %q", tc.vars, err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%v: %+v %v, want %+v", tc.vars, got, err, tc.want)
		}
	}
}

func TestAdminEndpoint(t *testing.T) {
	i := NewInjector(Settings{}, func() float64 { return 0.5 })
	do := func(method, body string) (int, string) {
		w := httptest.NewRecorder()
		i.ServeHTTP(w, httptest.NewRequest(method, "/admin/fault", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	want := Settings{Latency: 300 * time.Millisecond, LatencyPercent: 100, ErrorPercent: 20, ErrorStatus: 503}
	if code, body := do(http.MethodPut, `{"errorPercent":20,"errorStatus":503,"latency":"300ms"}`); code != 200 || i.Settings() != want {
		t.Fatalf("PUT: %d %s, in force %+v", code, body, i.Settings())
	}
	for _, bad := range []string{`{"errorPercent":-1}`, `{"latency":"x"}`, `[]`, `{} {}`, `{"errorPercent":"` + strings.Repeat("9", maxBody) + `"}`} {
		if code, _ := do(http.MethodPut, bad); code != http.StatusBadRequest || i.Settings() != want {
			t.Errorf("PUT %.40s: %d, in force %+v", bad, code, i.Settings())
		}
	}
	if _, body := do(http.MethodGet, ""); !strings.Contains(body, `"latency":"300ms"`) {
		t.Errorf("GET: %s", body)
	}
	if code, _ := do(http.MethodPost, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	if code, _ := do(http.MethodDelete, ""); code != 200 || i.Settings() != (Settings{}) {
		t.Errorf("DELETE: %d, in force %+v", code, i.Settings())
	}
}

func TestApply(t *testing.T) {
	served := 0
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	i := NewInjector(Settings{ErrorPercent: 100, ErrorStatus: 503}, func() float64 { return 0 })
	w := httptest.NewRecorder()
	i.HTTP(next).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if w.Code != 503 || served != 0 {
		t.Errorf("status %d, served %d", w.Code, served)
	}
	_, err := i.Unary(t.Context(), nil, nil, func(context.Context, any) (any, error) { served++; return nil, nil })
	if status.Code(err) != codes.Unavailable || served != 0 {
		t.Errorf("gRPC: %v, served %d", err, served)
	}

	// A caller that goes away ends the wait.
	i.Set(Settings{Latency: time.Minute, LatencyPercent: 100})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i.HTTP(next).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx))
	if _, err := i.Unary(ctx, nil, nil, nil); status.Code(err) != codes.Canceled || served != 0 {
		t.Errorf("canceled: %v, served %d", err, served)
	}

	i.Set(Settings{Latency: time.Millisecond, LatencyPercent: 100})
	begin := time.Now()
	i.HTTP(next).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if served != 1 || time.Since(begin) < time.Millisecond {
		t.Errorf("served %d after %s", served, time.Since(begin))
	}
}

func FuzzSettingsJSON(f *testing.F) {
	f.Add(`{"latency":"250ms","latencyPercent":10,"errorPercent":5,"errorStatus":503}`)
	f.Add(`{"errorPercent":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s, back Settings
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		if err := s.Validate(); err != nil || math.IsNaN(s.ErrorPercent) {
			t.Fatalf("%q gave invalid %+v: %v", text, s, err)
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &back); err != nil || back != s {
			t.Fatalf("%q: %+v became %+v (%v)", text, s, back, err)
		}
	})
}
