package outlier

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// mesh is a set of proxies, each on a loopback address of its own and all on
// one port, as the pods of a cluster are.
type mesh struct {
	server *httptest.Server
	port   int
	mu     sync.Mutex
	answer map[string]http.HandlerFunc // by address
	list   []Proxy
	reads  atomic.Int64
}

func newMesh(t testing.TB) *mesh {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{port: l.Addr().(*net.TCPAddr).Port, answer: map[string]http.HandlerFunc{}}
	m.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.reads.Add(1)
		host, _, _ := net.SplitHostPort(r.Host)
		m.mu.Lock()
		h := m.answer[host]
		m.mu.Unlock()
		h(w, r)
	}))
	m.server.Listener.Close()
	m.server.Listener = l
	m.server.Config.ErrorLog = nil
	m.server.Start()
	t.Cleanup(m.server.Close)
	return m
}

// proxy adds a proxy, or changes the answer of one.
func (m *mesh) proxy(name string, h http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.list {
		if p.ID == name {
			m.answer[p.Address] = h
			return
		}
	}
	n := len(m.list)
	address := fmt.Sprintf("127.20.%d.%d", n/250, n%250+1)
	m.answer[address] = h
	m.list = append(m.list, Proxy{ID: name, Name: "callers/" + name, Address: address})
}

func (m *mesh) Proxies(context.Context) ([]Proxy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Proxy(nil), m.list...), nil
}

func (m *mesh) source(t testing.TB, kind Kind, o Options) Source {
	t.Helper()
	o.Proxies, o.Port = m, m.port
	s, err := NewSource(kind, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func body(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, text)
	}
}

func statsBody(text string) http.HandlerFunc { return body("text/plain; charset=UTF-8", text) }

// cutOffBody promises a longer body than it sends.
func cutOffBody(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		io.WriteString(w, text[:len(text)/2])
	}
}

// hang answers nothing until the client gives up.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// hangInBody answers half and then nothing.
func hangInBody(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, text[:len(text)/2])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// refuse breaks the connection.
func refuse(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
