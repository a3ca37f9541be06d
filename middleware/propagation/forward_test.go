package propagation

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// drops counts what OnDrop is told.
type drops map[string]int

func (d drops) option() Option {
	return WithOnDrop(func(name string, reason DropReason) { d[name+" "+reason.String()]++ })
}

func TestForwardedValuesThatCannotBeSent(t *testing.T) {
	const name = "X-Cloud-Trace-Context"
	for _, tc := range []struct {
		name, value string
		reason      string
	}{
		{"fine", "abc/1;o=1", ""},
		{"empty", "", ""},
		{"tab", "a\tb", ""},
		{"UTF-8", "é", ""},
		{"CR LF", "a\r\nevil: 1", "invalid"},
		{"LF", "a\n", "invalid"},
		{"NUL", "a\x00", "invalid"},
		{"DEL", "a\x7f", "invalid"},
		{"not UTF-8", "a\xff", "not_utf8"},
		{"surrogate", "\xed\xa0\x80", "not_utf8"},
		{"8 KiB", strings.Repeat("a", 8<<10), ""},
		{"8 KiB and one", strings.Repeat("a", 8<<10+1), "too_large"},
		{"16 KiB", strings.Repeat("a", 16<<10), "too_large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := drops{}
			cfg := config(t, d.option(), WithoutRequestID())
			// On the way in, and when a user put it into the state.
			captured := Extract(http.Header{name: {tc.value}, "User-Agent": {"curl"}}, cfg)
			want := drops{}
			if tc.reason != "" {
				want[name+" "+tc.reason] = 1
			}
			if !reflect.DeepEqual(d, want) {
				t.Errorf("captured: dropped %v, want %v", d, want)
			}
			if captured.Header("User-Agent") != "curl" {
				t.Error("a neighbour was dropped too")
			}
			clear(d)
			h := http.Header{}
			Inject(State{Forwarded: []Field{{name, tc.value}, {"User-Agent", "curl"}}}, h, cfg)
			if !reflect.DeepEqual(d, want) {
				t.Errorf("injected: dropped %v, want %v", d, want)
			}
			if _, sent := h[name]; sent != (tc.reason == "") || h.Get("User-Agent") != "curl" {
				t.Errorf("injected %v", h)
			}
		})
	}
}

func TestForwardedTotal(t *testing.T) {
	d := drops{}
	cfg := config(t, d.option(), WithForwardList("x-a", "x-b"), WithMaxForwarded(10, 15))
	in := header("x-a", "0123456789", "x-b", "012345", "x-b", "01234")
	s := Extract(in, cfg)
	want := []Field{{"X-A", "0123456789"}, {"X-B", "01234"}}
	if !slices.Equal(s.Forwarded, want) || d["X-B total_too_large"] != 1 || len(d) != 1 {
		t.Errorf("forwarded %v, dropped %v", s.Forwarded, d)
	}
	clear(d)
	h := http.Header{}
	Inject(State{Forwarded: []Field{{"X-A", "0123456789"}, {"X-B", "012345"}, {"X-C", "012345"}, {"X-B", "01234"}}}, h, cfg)
	if !reflect.DeepEqual(h, header("x-a", "0123456789", "x-b", "01234")) || d["X-B total_too_large"] != 1 || d["other total_too_large"] != 1 {
		t.Errorf("injected %v, dropped %v", h, d)
	}
}

func TestFieldsUsersMustNotSet(t *testing.T) {
	d := drops{}
	cfg := config(t, d.option())
	var fields []Field
	for _, name := range []string{"Content-Length", "transfer-encoding", "Host", "connection", "bad name", "x:y", "", "a\r\nb", "traceparent"} {
		fields = append(fields, Field{name, "1"})
	}
	h := http.Header{}
	Inject(State{Forwarded: fields}, h, cfg)
	if len(h) != 0 || d["other invalid"] != len(fields) {
		t.Errorf("injected %v, dropped %v of %d", h, d, len(fields))
	}
}

func TestOwnValuesAreChecked(t *testing.T) {
	s := State{
		TraceID: traceID(t, trace128), SpanID: spanID(t, spanHex),
		TraceState: "a=1\r\nevil: 1", RequestID: "r\r\nevil: 1", Baggage: "a=\n",
	}
	for _, inject := range []func(*Config) map[string][]string{
		func(c *Config) map[string][]string { h := http.Header{}; Inject(s, h, c); return h },
		func(c *Config) map[string][]string { md := map[string][]string{}; InjectMetadata(s, md, c); return md },
	} {
		d := drops{}
		m := inject(config(t, d.option(), WithInject(TraceContext)))
		if len(m) != 1 || !reflect.DeepEqual(d, drops{"Tracestate invalid": 1, "X-Request-Id invalid": 1, "Baggage invalid": 1}) {
			t.Errorf("injected %v, dropped %v", m, d)
		}
	}
}

func TestBaggage(t *testing.T) {
	many := make([]string, 70)
	for i := range many {
		many[i] = fmt.Sprintf("k%d=v", i)
	}
	for _, tc := range []struct {
		name string
		keys []string
		in   []string
		want string
		drop drops
	}{
		{"off", nil, []string{"a=1"}, "", drops{}},
		{"one of two", []string{"a"}, []string{"a=1,b=2"}, "a=1", drops{}},
		{"properties stay", []string{"a"}, []string{"a = 1 ; p=q;r , b=2"}, "a = 1 ; p=q;r", drops{}},
		{"all", []string{"*"}, []string{"a=1", "b=2"}, "a=1,b=2", drops{}},
		{"malformed members", []string{"*"}, []string{"a=1,b,=2,c d=3,e=\x01,f=é,g=%C3%A9"}, "a=1,g=%C3%A9", drops{"Baggage invalid": 1}},
		{"64 members", []string{"*"}, []string{strings.Join(many, ",")}, strings.Join(many[:64], ","), drops{"Baggage total_too_large": 1}},
		{"8192 bytes", []string{"*"}, []string{"a=" + strings.Repeat("x", 8190-1), "b=1"}, "a=" + strings.Repeat("x", 8190-1), drops{"Baggage total_too_large": 1}},
		{"64 KiB", []string{"*"}, []string{"a=" + strings.Repeat("x", 64<<10)}, "", drops{"Baggage total_too_large": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := drops{}
			s := Extract(http.Header{"Baggage": tc.in}, config(t, WithBaggage(tc.keys...), d.option()))
			if s.Baggage != tc.want || !reflect.DeepEqual(d, tc.drop) {
				t.Errorf("got %q, dropped %v; want %q, %v", s.Baggage, d, tc.want, tc.drop)
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	raw := "\x00\x01\xff,"
	text := base64.RawStdEncoding.EncodeToString([]byte(raw))
	cfg := config(t, WithForward("x-tenant"))
	md := map[string][]string{
		"x-b3-traceid": {trace64}, "x-b3-spanid": {spanHex}, "x-b3-sampled": {"1"},
		"grpc-trace-bin": {raw, ""}, "x-tenant": {"t"}, "x-request-id": {"r1"}, "authorization": {"secret"},
	}
	s := ExtractMetadata(md, cfg)
	if s.TraceIDString() != trace64 || s.Sampling != Accept || s.RequestID != "r1" || s.RequestIDGenerated {
		t.Errorf("extracted %+v", s)
	}
	if want := []Field{{"Grpc-Trace-Bin", text}, {"Grpc-Trace-Bin", ""}, {"X-Tenant", "t"}}; !slices.Equal(s.Forwarded, want) {
		t.Errorf("forwarded %q, want %q", s.Forwarded, want)
	}
	// To HTTP as text, back to metadata as bytes.
	h := http.Header{}
	Inject(s, h, cfg)
	if !slices.Equal(h["Grpc-Trace-Bin"], []string{text, ""}) || h.Get("X-Tenant") != "t" || h.Get("X-Request-Id") != "r1" {
		t.Errorf("HTTP: %v", h)
	}
	out := map[string][]string{}
	InjectMetadata(Extract(h, cfg), out, cfg)
	want := map[string][]string{
		"x-b3-traceid": {trace64}, "x-b3-spanid": {spanHex}, "x-b3-sampled": {"1"},
		"traceparent":    {"00-" + strings.Repeat("0", 16) + trace64 + "-" + spanHex + "-01"},
		"grpc-trace-bin": {raw, ""}, "x-tenant": {"t"}, "x-request-id": {"r1"},
	}
	if !reflect.DeepEqual(out, want) {
		t.Errorf("metadata: %q\nwant %q", out, want)
	}
	if link := ExtractMetadataLink(md, cfg); link.TraceID() != s.TraceID {
		t.Errorf("link %v", link)
	}
	if s := ExtractMetadataWith(md, cfg, TrustNothing); s.HasIDs() || len(s.Forwarded) > 0 || s.RequestID == "r1" {
		t.Errorf("untrusted: %+v", s)
	}
	InjectMetadata(s, nil, cfg)
}

func TestMetadataLimits(t *testing.T) {
	d := drops{}
	cfg := config(t, d.option(), WithForward("x!", "x-text", "y-bin"), WithoutRequestID())
	for _, tc := range []struct {
		field Field
		want  map[string][]string
		drop  string
	}{
		{Field{"Y-Bin", "AAE"}, map[string][]string{"y-bin": {"\x00\x01"}}, ""},
		{Field{"Y-Bin", "AAE="}, map[string][]string{"y-bin": {"\x00\x01"}}, ""},
		{Field{"Y-Bin", "AAE=, AQ"}, map[string][]string{"y-bin": {"\x00\x01", "\x01"}}, ""},
		{Field{"Y-Bin", "A"}, nil, "Y-Bin bad_base64"},
		{Field{"Y-Bin", "@@@@"}, nil, "Y-Bin bad_base64"},
		{Field{"X-Text", "é"}, nil, "X-Text not_ascii"},
		{Field{"X-Text", "a\tb"}, nil, "X-Text not_ascii"},
		{Field{"X!", "a"}, nil, "X! invalid"},
	} {
		clear(d)
		md := map[string][]string{}
		InjectMetadata(State{Forwarded: []Field{tc.field}}, md, cfg)
		want := drops{}
		if tc.drop != "" {
			want[tc.drop] = 1
		}
		if len(md) != len(tc.want) || (len(md) > 0 && !reflect.DeepEqual(md, tc.want)) || !reflect.DeepEqual(d, want) {
			t.Errorf("%q: %q, dropped %v; want %q, %v", tc.field, md, d, tc.want, want)
		}
	}
	clear(d)
	s := ExtractMetadata(map[string][]string{"y-bin": {strings.Repeat("\x00", 64<<10)}, "x-text": {"a\n"}}, cfg)
	if len(s.Forwarded) != 0 || !reflect.DeepEqual(d, drops{"Y-Bin too_large": 1, "X-Text invalid": 1}) {
		t.Errorf("forwarded %d, dropped %v", len(s.Forwarded), d)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		opt  Option
		want string
	}{
		{WithExtract(B3Single | B3Multi), "WithExtract: b3|b3multi"},
		{WithExtract(0), "WithExtract: none"},
		{WithInject(128), "WithInject: none (0x80)"},
		{WithForward("Authorization"), "WithForward: Authorization holds credentials"},
		{WithForward("COOKIE"), "WithForward: COOKIE holds credentials"},
		{WithForwardList("host"), "WithForward: host belongs to one connection"},
		{WithCredentials("connection"), "WithCredentials: connection belongs"},
		{WithForward("a b"), `WithForward: "a b" is not a header name`},
		{WithForward(""), `WithForward: "" is not a header name`},
		{WithBaggage("a,b"), `WithBaggage: "a,b" is not a baggage key`},
		{WithMaxForwarded(0, 10), "WithMaxForwarded: want 0 < perHeader <= total, got 0 and 10"},
		{WithMaxForwarded(10, 9), "got 10 and 9"},
	} {
		cfg, err := NewConfig(tc.opt)
		if err == nil || cfg != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want an error with %q", err, tc.want)
		}
	}
}

func TestConfigNames(t *testing.T) {
	cfg := config(t, WithForward("X-Tenant", "x-tenant", "x-b3-traceid", "x-request-id"), WithCredentials("authorization"))
	want := []string{"Authorization", "Baggage", "Grpc-Trace-Bin", "Traceparent", "Tracestate", "User-Agent",
		"X-Cloud-Trace-Context", "X-Ot-Span-Context", "X-Request-Id", "X-Tenant", "other"}
	if got := cfg.ForwardNames(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s := Extract(header("authorization", "Bearer x", "cookie", "c"), cfg)
	if !slices.Equal(s.Forwarded, []Field{{"Authorization", "Bearer x"}}) {
		t.Errorf("forwarded %v", s.Forwarded)
	}
	if s := Extract(header("authorization", "Bearer x", "cookie", "c"), nil); len(s.Forwarded) != 0 {
		t.Errorf("credentials forwarded by default: %v", s.Forwarded)
	}
	if cfg.Passthrough() || !cfg.UsesRequestID() || (*Config)(nil).Passthrough() {
		t.Error("modes")
	}
	for _, r := range DropReasons() {
		if r.String() == "unknown" || r.String() == "" {
			t.Errorf("reason %d has no name", r)
		}
	}
	if DropReason(200).String() != "unknown" {
		t.Error("an unknown reason has a name")
	}
}
