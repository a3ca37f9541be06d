package outlier

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers A queries for one name from a list that tests change.
type dnsServer struct {
	conn net.PacketConn
	name string
	done chan struct{}

	mu        sync.Mutex
	addresses [][4]byte
}

func newDNSServer(t *testing.T, name string) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{conn: conn, name: name, done: make(chan struct{})}
	go s.serve()
	t.Cleanup(func() {
		conn.Close()
		<-s.done
	})
	return s
}

func (s *dnsServer) set(addresses ...[4]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = addresses
}

func (s *dnsServer) serve() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var query dnsmessage.Message
		if err := query.Unpack(buf[:n]); err != nil || len(query.Questions) == 0 {
			continue
		}
		q := query.Questions[0]
		answer := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true}, Questions: query.Questions}
		s.mu.Lock()
		if q.Name.String() != s.name || len(s.addresses) == 0 {
			answer.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			for _, a := range s.addresses {
				answer.Answers = append(answer.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
					Body:   &dnsmessage.AResource{A: a},
				})
			}
		}
		s.mu.Unlock()
		if packed, err := answer.Pack(); err == nil {
			_, _ = s.conn.WriteTo(packed, from)
		}
	}
}

func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func TestDNS(t *testing.T) {
	s := newDNSServer(t, "reviews.prod.svc.cluster.local.")
	s.set([4]byte{127, 0, 0, 3}, [4]byte{127, 0, 0, 1}, [4]byte{127, 0, 0, 3})
	r := DNS("reviews.prod.svc.cluster.local.:9080", s.resolver())
	got, err := r.Resolve(t.Context())
	if want := []string{"127.0.0.1:9080", "127.0.0.3:9080"}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	s.set()
	var notFound *net.DNSError
	if _, err := r.Resolve(t.Context()); !errors.As(err, &notFound) || !notFound.IsNotFound {
		t.Fatalf("got %v, want not found", err)
	}
}

func TestBadEndpoints(t *testing.T) {
	for name, tc := range map[string]struct {
		r    Resolver
		want string
	}{
		"no port":    {Static("10.0.0.1"), `endpoint "10.0.0.1": must be host:port`},
		"no host":    {Static("10.0.0.1:80", ":80"), `endpoint ":80": the host is empty`},
		"named port": {Static("10.0.0.1:http"), `endpoint "10.0.0.1:http": the port must be a number`},
		"port 0":     {Static("10.0.0.1:0"), "from 1 to 65535"},
		"dns":        {DNS("reviews", nil), `endpoint "reviews": must be host:port`},
		"nil":        {nil, "no resolver"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New("reviews", tc.r)
			if err == nil || !strings.HasPrefix(err.Error(), "outlier: cluster reviews: ") || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want ...%s...", err, tc.want)
			}
		})
	}
}

func TestNextResolve(t *testing.T) {
	for _, tc := range []struct {
		failures int
		want     time.Duration
	}{{0, 30 * time.Second}, {1, time.Second}, {2, 2 * time.Second}, {5, 16 * time.Second}, {6, 30 * time.Second}, {31, 30 * time.Second}, {1000, 30 * time.Second}} {
		if got := nextResolve(30*time.Second, tc.failures); got != tc.want {
			t.Errorf("after %d failures %s, want %s", tc.failures, got, tc.want)
		}
	}
	if got := nextResolve(500*time.Millisecond, 3); got != 500*time.Millisecond {
		t.Errorf("beyond the interval: %s", got)
	}
}
