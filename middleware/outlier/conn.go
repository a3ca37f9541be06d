package outlier

import (
	"net/http"
	"sync"
	"time"
)

// groupKey is what connections can be shared by: the endpoint and, with TLS,
// the name its certificate is verified for.
type groupKey struct {
	address   string
	scheme    string
	authority string
}

// group is the connections and the queue of one key.
type group struct {
	key     groupKey
	conns   map[*conn]struct{}
	ready   []*conn // used last first, so that surplus connections become idle
	waiters []*waiter
	dialing int
	http2   bool
}

// conn is one connection and its share of the accounting.
type conn struct {
	cc     *http.ClientConn
	group  *group
	socket *socket

	// All below are guarded by pool.mu.
	claims    int   // handed out, not yet reserved
	active    int   // requests until the end of their response body
	served    int64 // requests ever reserved
	ready     bool  // is in group.ready
	retired   bool  // takes no further request
	removed   bool
	idleSince time.Time
}

type waiter struct {
	result chan handover // buffered: the sender never waits
}

type handover struct {
	conn *conn
	err  error
}

// lease is a request's hold on a connection, with a slot reserved on it.
type lease struct {
	conn *conn
	// reused: the connection has carried an earlier request, so a failure may
	// only mean that the server had closed it.
	reused bool
	once   sync.Once
}

// close closes the connection. Its error says nothing that the requests on it
// have not said.
func (c *conn) close() {
	_ = c.cc.Close()
}
