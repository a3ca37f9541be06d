//go:build e2e

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/canarycontroller/canary-controller/deploy/servers"
)

// startJaeger starts a real Jaeger with its traces in memory. The first time
// it is built, which takes minutes.
func startJaeger(t *testing.T) *servers.JaegerServer {
	t.Helper()
	j, err := servers.StartJaeger(t.Context(), servers.JaegerOptions{Dir: t.TempDir(), Options: servers.Options{Progress: os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Stop(); err != nil {
			t.Errorf("stopping jaeger: %v", err)
		}
	})
	return j
}

// jaegerSpan as the query API writes it.
type jaegerSpanJSON struct {
	SpanID        string `json:"spanID"`
	OperationName string `json:"operationName"`
	ProcessID     string `json:"processID"`
	References    []struct {
		RefType string `json:"refType"`
		SpanID  string `json:"spanID"`
	} `json:"references"`
	Tags []struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	} `json:"tags"`
}

func (s jaegerSpanJSON) tag(key string) string {
	for _, t := range s.Tags {
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

type traceJSON struct {
	Spans     []jaegerSpanJSON `json:"spans"`
	Processes map[string]struct {
		ServiceName string `json:"serviceName"`
	} `json:"processes"`
}

// ask reads the data of a query API answer; a 404 is no data.
func ask[T any](t *testing.T, url string) (data T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return data
	}
	var answer struct{ Data T }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return answer.Data
}

// readBack polls until the trace has n spans.
func readBack(t *testing.T, queryURL, trace string, n int) traceJSON {
	t.Helper()
	var last traceJSON
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if found := ask[[]traceJSON](t, queryURL+"/api/traces/"+trace); len(found) == 1 {
			if last = found[0]; len(last.Spans) >= n {
				return last
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("jaeger has %d of %d spans of trace %s: %+v", len(last.Spans), n, trace, last.Spans)
		}
	}
}

// want is the tree every request makes: a span by its service and kind, and
// the service and kind of its parent; "" is the caller outside.
var wantTree = map[string]string{
	"productpage server":         "",
	"productpage client details": "productpage server",
	"productpage client reviews": "productpage server",
	"details server":             "productpage client details",
	"reviews server":             "productpage client reviews",
	"reviews client ratings":     "reviews server",
	"ratings server":             "reviews client ratings",
}

// label names a span as wantTree does.
func label(tr traceJSON, s jaegerSpanJSON) string {
	name := tr.Processes[s.ProcessID].ServiceName + " " + s.tag("span.kind")
	if s.tag("span.kind") != "client" {
		return name
	}
	if strings.HasPrefix(s.OperationName, "bookinfo.v1.Ratings/") {
		return name + " ratings"
	}
	return name + " " + s.tag("server.address")
}

func TestRealJaeger(t *testing.T) {
	j := startJaeger(t)
	host, port, err := net.SplitHostPort(j.UDPCompact)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []struct {
		name string
		env  []string
	}{
		{"OTLP gRPC", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + j.OTLPGRPC}},
		{"OTLP HTTP", []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + j.OTLPHTTP}},
		{"UDP compact", []string{"OTEL_TRACES_EXPORTER=jaeger", "OTEL_EXPORTER_JAEGER_AGENT_HOST=" + host, "OTEL_EXPORTER_JAEGER_AGENT_PORT=" + port}},
	} {
		t.Run(path.name, func(t *testing.T) {
			productpage, seen := startApp(t, path.env...)
			for i, f := range forms {
				if f.sampled != "1" && f.flags != "1" {
					continue
				}
				// A trace id of its own for each form and path, in the low half.
				id := fmt.Sprintf("%016x", time.Now().UnixNano()+int64(i))
				if len(f.trace) == 32 {
					id = f.trace[:16] + id
				}
				headers := map[string]string{"x-request-id": "req-" + id}
				for k, v := range f.headers {
					headers[k] = strings.ReplaceAll(v, f.trace, id)
				}
				browse(t, productpage, headers)
				for hop := range seen {
					seen[hop].last(t, hop)
				}
				tr := readBack(t, j.QueryURL, id, len(wantTree))
				checkTree(t, f, tr, "req-"+id)
			}
		})
	}
	checkDependencies(t, j.QueryURL)
}

func checkTree(t *testing.T, f form, tr traceJSON, requestID string) {
	t.Helper()
	byID := map[string]string{}
	for _, s := range tr.Spans {
		byID[s.SpanID] = label(tr, s)
	}
	got := map[string]bool{}
	for _, s := range tr.Spans {
		name := label(tr, s)
		got[name] = true
		wantParent, known := wantTree[name]
		if !known {
			t.Errorf("%s: unexpected span %q (%s)", f.name, name, s.OperationName)
			continue
		}
		if len(s.References) != 1 || s.References[0].RefType != "CHILD_OF" {
			t.Errorf("%s: %q has references %+v, want one parent", f.name, name, s.References)
			continue
		}
		parent := s.References[0].SpanID
		switch {
		case wantParent == "" && parent != spanID:
			t.Errorf("%s: %q is below %s, want the caller's span %s", f.name, name, parent, spanID)
		case wantParent != "" && byID[parent] != wantParent:
			t.Errorf("%s: %q is below %q, want %q", f.name, name, byID[parent], wantParent)
		}
		if s.tag("span.kind") == "server" && s.tag("guid:x-request-id") != requestID {
			t.Errorf("%s: %q has request id %q, want %q", f.name, name, s.tag("guid:x-request-id"), requestID)
		}
		if f.flags == "1" && s.tag("b3.debug") == "true" != (s.tag("span.kind") == "server") {
			t.Errorf("%s: %q is marked as debug: %q", f.name, name, s.tag("b3.debug"))
		}
	}
	if len(got) != len(wantTree) || len(tr.Spans) != len(wantTree) {
		t.Errorf("%s: spans %v, want each of %d once", f.name, got, len(wantTree))
	}
}

// checkDependencies reads the graph Jaeger's memory storage works out of the
// spans: productpage > {details, reviews > ratings}, and nothing else.
func checkDependencies(t *testing.T, queryURL string) {
	t.Helper()
	want := []string{"productpage>details", "productpage>reviews", "reviews>ratings"}
	query := url.Values{"endTs": {strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10)}, "lookback": {strconv.FormatInt(time.Hour.Milliseconds(), 10)}}
	type edge struct {
		Parent, Child string
		CallCount     int
	}
	var got []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		got = nil
		for _, e := range ask[[]edge](t, queryURL+"/api/dependencies?"+query.Encode()) {
			// The memory storage draws an edge from a service to itself for a
			// client span below a server span.
			if e.Parent == e.Child {
				continue
			}
			if e.CallCount < 1 {
				t.Errorf("%s>%s was called %d times", e.Parent, e.Child, e.CallCount)
			}
			got = append(got, e.Parent+">"+e.Child)
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
	}
	t.Errorf("the dependency graph is %v, want %v", got, want)
}
