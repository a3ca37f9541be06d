package interop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// recorder is a proxy between two services that keeps the headers of what it
// passes on. It is not instrumented.
type recorder struct {
	address string
	mu      sync.Mutex
	headers []http.Header
}

func (r *recorder) add(h http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = append(r.headers, h)
}

// last returns the headers of the only request since the last call.
func (r *recorder) last(t *testing.T, service string) http.Header {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.headers) != 1 {
		t.Fatalf("%s was asked %d times, want once", service, len(r.headers))
	}
	h := r.headers[0]
	r.headers = nil
	return h
}

func recordHTTP(t *testing.T, target string) *recorder {
	t.Helper()
	r := &recorder{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.add(req.Header.Clone())
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	r.address = server.Listener.Addr().String()
	return r
}

// frame is a message that is not decoded.
type frame []byte

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("marshalling a %T", v)
	}
	return *f, nil
}
func (rawCodec) Unmarshal(data []byte, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("unmarshalling into a %T", v)
	}
	*f = append((*f)[:0], data...)
	return nil
}

// recordGRPC passes unary calls of any service on.
func recordGRPC(t *testing.T, target string) *recorder {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(ss)
		md, _ := metadata.FromIncomingContext(ss.Context())
		h := http.Header{}
		for k, v := range md {
			h[http.CanonicalHeaderKey(k)] = v
		}
		r.add(h)
		var in, out frame
		if err := ss.RecvMsg(&in); err != nil {
			return err
		}
		ctx := metadata.NewOutgoingContext(context.WithoutCancel(ss.Context()), md.Copy())
		if err := conn.Invoke(ctx, method, &in, &out, grpc.ForceCodec(rawCodec{})); err != nil {
			return err
		}
		return ss.SendMsg(&out)
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("recorder: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Errorf("recorder: %v", err)
		}
	})
	r.address = lis.Addr().String()
	return r
}
