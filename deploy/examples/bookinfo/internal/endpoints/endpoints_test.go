package endpoints

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/canarycontroller/canary-controller/middleware/outlier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		spec string
		want []string
		err  string
	}{
		{"127.0.0.1:80", []string{"127.0.0.1:80"}, ""},
		{"127.0.0.1:80, [::1]:81 ,reviews:82", []string{"127.0.0.1:80", "[::1]:81", "reviews:82"}, ""},
		{"localhost:80", nil, ""}, // DNS: the answer depends on the machine
		{"", nil, "must be host:port"},
		{"reviews", nil, `"reviews": must be host:port`},
		{":80", nil, "must be host:port"},
		{"file:", nil, "the path is missing"},
	} {
		r, err := Parse(tc.spec)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want %q", tc.spec, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.spec, err)
			continue
		}
		if got, err := r.Resolve(t.Context()); tc.want != nil && (err != nil || !reflect.DeepEqual(got, tc.want)) {
			t.Errorf("%q: %v %v, want %v", tc.spec, got, err, tc.want)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reviews")
	r, err := Parse("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	for _, tc := range []struct {
		text string
		want []string
		err  bool
	}{
		{"# pods of reviews\n127.10.0.1:9080 # v1\n\n127.10.0.2:9080\n", []string{"127.10.0.1:9080", "127.10.0.2:9080"}, false},
		{"", nil, false},
		{"127.10.0.1\n", nil, true},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Resolve(t.Context()); (err != nil) != tc.err || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%q: %v %v", tc.text, got, err)
		}
	}
}

// conn records what a gRPC connection is told.
type conn struct {
	resolver.ClientConn
	states chan resolver.State
	errs   chan error
}

func (c conn) UpdateState(s resolver.State) error                   { c.states <- s; return nil }
func (c conn) ReportError(err error)                                { c.errs <- err }
func (c conn) ParseServiceConfig(string) *serviceconfig.ParseResult { return nil }

func TestGRPCFollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratings")
	source, err := Parse("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	c := conn{states: make(chan resolver.State, 100), errs: make(chan error, 100)}
	w, err := Builder(source).Build(resolver.Target{}, c, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := <-c.errs; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reported %v", err)
	}
	if err := os.WriteFile(path, []byte("127.0.0.1:1\n127.0.0.1:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ResolveNow(resolver.ResolveNowOptions{})
	select {
	case s := <-c.states:
		if len(s.Endpoints) != 2 || s.Endpoints[1].Addresses[0].Addr != "127.0.0.1:2" {
			t.Errorf("state %+v", s)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the new address did not arrive")
	}
}

func TestGRPCReportsNoEndpoints(t *testing.T) {
	c := conn{states: make(chan resolver.State, 100), errs: make(chan error, 100)}
	w, err := Builder(outlier.Static()).Build(resolver.Target{}, c, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := <-c.errs; err == nil || !strings.Contains(err.Error(), "none known") {
		t.Errorf("reported %v", err)
	}
}

func FuzzAddresses(f *testing.F) {
	f.Add("127.0.0.1:80\n# x\n[::1]:1")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := addresses(text)
		if err != nil {
			return
		}
		again, err := addresses(strings.Join(list, "\n"))
		if err != nil || len(again) != len(list) {
			t.Errorf("%q: %q, read again %q (%v)", text, list, again, err)
		}
	})
}
