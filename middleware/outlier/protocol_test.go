package outlier

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TLS verifies the service's name, not the endpoint's address, and HTTP/2 sends
// all requests on one connection.
func TestTLSAndHTTP2(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			b := &backend{}
			b.Server = httptest.NewUnstartedServer(b)
			b.EnableHTTP2 = http2
			b.Config.ConnState = b.connState
			b.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake that fails below
			b.StartTLS()
			t.Cleanup(b.Close)
			b.address = b.Listener.Addr().String()
			roots := x509.NewCertPool()
			roots.AddCert(b.Certificate())
			tr := newTestTransport(t, Static(b.address), WithBaseTransport(&http.Transport{
				ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{RootCAs: roots}}),
				withPool(ConnectionPool{TCP: TCPSettings{MaxConnections: 4}}))
			client := &http.Client{Transport: tr}
			fetch := func(url string) error {
				resp, err := client.Get(url)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if want := b.address + " example.com"; err != nil || string(body) != want || (resp.ProtoMajor == 2) != http2 {
					return fmt.Errorf("%s %q, want %q: %v", resp.Proto, body, want, err)
				}
				return nil
			}
			if err := fetch("https://example.com"); err != nil {
				t.Fatal(err)
			}
			release := b.hold(t)
			var wg sync.WaitGroup
			errs := make(chan error, 50)
			for range 50 {
				wg.Go(func() { errs <- fetch("https://example.com/") })
			}
			if http2 {
				poolIs(t, tr, 1, 50, 0)
			} else {
				poolIs(t, tr, 4, 4, 46)
			}
			release()
			wg.Wait()
			for range 50 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			if err := fetch("https://other.example.org/"); err == nil || !strings.Contains(err.Error(), "other.example.org") {
				t.Fatalf("another name: %v", err)
			}
		})
	}
}

// An upgraded connection belongs to the caller, and counts until it is closed.
func TestUpgrade(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, err := rw.ReadString('\n')
		if err == nil {
			_, _ = rw.WriteString("echo " + line)
			_ = rw.Flush()
		}
	}))
	defer srv.Close()
	tr := newTestTransport(t, Static(srv.Listener.Addr().String()))
	req := newRequest(t, t.Context(), http.MethodGet, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%d, body %T", resp.StatusCode, resp.Body)
	}
	poolIs(t, tr, 1, 1, 0)
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Fatalf("%q %v", line, err)
	}
	conn.Close()
	poolIs(t, tr, 0, 0, 0)
}

// Bodies of every size arrive whole, and the request is not changed.
func TestRequestBody(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}))
	defer srv.Close()
	tr := newTestTransport(t, Static(srv.Listener.Addr().String()))
	for _, size := range []int{0, 1, 1 << 10, 1 << 20} {
		want := bytes.Repeat([]byte("x"), size)
		req := newRequest(t, t.Context(), http.MethodPost, bytes.NewReader(want))
		body, header := req.Body, req.Header.Clone()
		_, got, err := do(tr, req)
		if err != nil || got != string(want) {
			t.Fatalf("%d bytes came back of %d: %v", len(got), size, err)
		}
		if req.Body != body || len(req.Header) != len(header) {
			t.Fatal("the request was changed")
		}
	}
}
