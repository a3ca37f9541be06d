package outlier

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// socket is the place one connection takes up under tcp.maxConnections, from the
// start of its dial until its net.Conn is closed, which for an upgraded
// connection is long after the response.
type socket struct {
	released func()
	once     sync.Once
	written  atomic.Int64
}

func (s *socket) release() { s.once.Do(s.released) }

type targetKey struct{}

// target tells the dialer which endpoint a connection is for: the address it is
// given is the request's own, which TLS is verified against.
type dialTarget struct {
	address string
	socket  *socket
}

func withTarget(ctx context.Context, address string, s *socket) context.Context {
	return context.WithValue(ctx, targetKey{}, dialTarget{address: address, socket: s})
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialEndpoint wraps a dialer so that it connects to the endpoint in ctx.
func dialEndpoint(next dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		target, ok := ctx.Value(targetKey{}).(dialTarget)
		if !ok {
			return next(ctx, network, address)
		}
		c, err := next(ctx, network, target.address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c, socket: target.socket}, nil
	}
}

// countedConn frees its place when it is closed and counts what was written, by
// which a request that never reached the server is known.
type countedConn struct {
	net.Conn
	socket *socket
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.socket.written.Add(int64(n))
	return n, err
}

// ReadFrom keeps sendfile for request bodies that are files.
func (c *countedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.Conn, r)
	c.socket.written.Add(n)
	return n, err
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.socket.release()
	return err
}
