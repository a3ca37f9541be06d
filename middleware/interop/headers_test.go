package interop

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

const (
	traceID  = "80f198ee56343ba864fe8b2a57d3eff7"
	shortID  = "48485a3953bb6124"
	spanID   = "e457b5a2e4d86bd1"
	parentID = "05e3ac9a4f6e3b90"
)

// form is one way a request names its trace.
type form struct {
	name    string
	headers map[string]string
	trace   string // what leaves in B3, every hop
	sampled string // x-b3-sampled of every hop; "" when flags is set
	flags   string // x-b3-flags of every hop
	state   string // tracestate of every hop
}

var forms = []form{
	{"b3 single", map[string]string{"b3": traceID + "-" + spanID + "-1-" + parentID}, traceID, "1", "", ""},
	{"b3 single deny", map[string]string{"b3": traceID + "-" + spanID + "-0"}, traceID, "0", "", ""},
	{"b3 single debug", map[string]string{"b3": traceID + "-" + spanID + "-d"}, traceID, "", "1", ""},
	{"b3 single defer", map[string]string{"b3": traceID + "-" + spanID}, traceID, "1", "", ""},
	{"b3 multi", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-parentspanid": parentID, "x-b3-sampled": "1"}, traceID, "1", "", ""},
	{"b3 multi 64 bits", map[string]string{"x-b3-traceid": shortID, "x-b3-spanid": spanID, "x-b3-sampled": "1"}, shortID, "1", "", ""},
	{"b3 multi debug", map[string]string{"x-b3-traceid": traceID, "x-b3-spanid": spanID, "x-b3-flags": "1"}, traceID, "", "1", ""},
	{"traceparent", map[string]string{"traceparent": "00-" + traceID + "-" + spanID + "-01", "tracestate": "vendor=1,other=2"}, traceID, "1", "", "vendor=1,other=2"},
	{"traceparent unsampled", map[string]string{"traceparent": "00-" + traceID + "-" + spanID + "-00"}, traceID, "0", "", ""},
	{"uber-trace-id", map[string]string{"uber-trace-id": traceID + ":" + spanID + ":" + parentID + ":1"}, traceID, "1", "", ""},
	{"uber-trace-id debug", map[string]string{"uber-trace-id": traceID + ":" + spanID + ":0:3"}, traceID, "", "1", ""},
	{"deny alone", map[string]string{"b3": "0"}, "", "0", "", ""},
}

// opaque headers leave every hop as they came.
var opaque = map[string]string{
	"X-Request-Id":          "ca761cf5-c4c8-4b2c-a2ee-fbb2e5bbb5ba",
	"X-Ot-Span-Context":     "lightstep;opaque=1",
	"X-Cloud-Trace-Context": "105445aa7843bc8bf206b12000100000/1;o=1",
}

func TestEachHeaderFormLeavesEveryHopRight(t *testing.T) {
	productpage, seen := startApp(t)
	bin := base64.StdEncoding.EncodeToString([]byte("\x00\x00\x80\xf1binary"))
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			headers := map[string]string{"Grpc-Trace-Bin": bin, "User-Agent": "Mozilla/5.0 (interop)", "Authorization": "Bearer secret", "Cookie": "session=1"}
			for _, m := range []map[string]string{f.headers, opaque} {
				for k, v := range m {
					headers[k] = v
				}
			}
			if got := browse(t, productpage, headers).Get("X-Request-Id"); got != opaque["X-Request-Id"] {
				t.Errorf("the response has request id %q", got)
			}
			spans := map[string]string{}
			trace := f.trace
			for _, hop := range []string{"details", "reviews", "ratings"} {
				h := seen[hop].last(t, hop)
				if f.trace == "" {
					trace = h.Get("X-B3-Traceid") // the decision alone, or a trace of our own
				}
				check := func(name, want string) {
					t.Helper()
					if got := h.Get(name); got != want {
						t.Errorf("%s got %s %q, want %q", hop, name, got, want)
					}
				}
				check("X-B3-Traceid", trace)
				check("X-B3-Sampled", f.sampled)
				check("X-B3-Flags", f.flags)
				check("Tracestate", f.state)
				for k, v := range opaque {
					check(k, v)
				}
				check("Authorization", "")
				check("Cookie", "")
				if hop == "ratings" {
					// Bytes in the metadata; gRPC owns its user agent.
					raw, _ := base64.StdEncoding.DecodeString(bin)
					check("Grpc-Trace-Bin", string(raw))
				} else {
					check("Grpc-Trace-Bin", bin)
					check("User-Agent", headers["User-Agent"])
				}
				if f.trace == "" && h.Get("X-B3-Traceid") == "" {
					continue // nothing is traced, so there is nothing to name
				}
				spans[hop] = h.Get("X-B3-Spanid")
				checkTraceparent(t, hop, h, trace, f.sampled == "1" || f.flags == "1")
				// Below a bare decision the trace begins here, with no parent.
				if f.trace != "" && h.Get("X-B3-Parentspanid") == "" {
					t.Errorf("%s got no parent id", hop)
				}
			}
			// Spans below spans: no hop repeats the caller's or another's.
			for hop, id := range spans {
				for other, same := range spans {
					if hop != other && id == same {
						t.Errorf("%s and %s got the same span id %s", hop, other, id)
					}
				}
				if id == spanID || len(id) != 16 {
					t.Errorf("%s got span id %q", hop, id)
				}
			}
		})
	}
}

// checkTraceparent compares the W3C form with the B3 form of the same hop.
func checkTraceparent(t *testing.T, hop string, h http.Header, trace string, sampled bool) {
	t.Helper()
	flags := "00"
	if sampled {
		flags = "01"
	}
	parts := strings.Split(h.Get("Traceparent"), "-")
	if len(parts) != 4 || parts[1] != strings.Repeat("0", 32-len(trace))+trace || parts[2] != h.Get("X-B3-Spanid") {
		t.Errorf("%s got traceparent %q beside trace %s span %s", hop, h.Get("Traceparent"), trace, h.Get("X-B3-Spanid"))
		return
	}
	// Bit 1 is the level 2 random flag, which new traces have.
	if low := parts[3][len(parts[3])-1] & 1; low != flags[1]&1 {
		t.Errorf("%s got traceparent flags %s, want sampled %v", hop, parts[3], sampled)
	}
}

func TestRequestWithoutHeadersGetsATraceAndARequestID(t *testing.T) {
	productpage, seen := startApp(t)
	id := browse(t, productpage, nil).Get("X-Request-Id")
	if len(id) != 36 {
		t.Errorf("request id %q, want a UUID", id)
	}
	var trace string
	for _, hop := range []string{"details", "reviews", "ratings"} {
		h := seen[hop].last(t, hop)
		if h.Get("X-Request-Id") != id {
			t.Errorf("%s got request id %q, want %q", hop, h.Get("X-Request-Id"), id)
		}
		if trace == "" {
			trace = h.Get("X-B3-Traceid")
		}
		if got := h.Get("X-B3-Traceid"); got != trace || len(got) != 32 {
			t.Errorf("%s got trace %q, want %q", hop, got, trace)
		}
	}
}
