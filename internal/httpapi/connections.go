package httpapi

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// maxConnections is how many connections a listener has open at most.
	maxConnections = 16 << 10
	// minConnections is how many a listener may have even if the process may open few files.
	minConnections = 16
	// reservedFiles is how many files are left to the database, to objects and to calls of other
	// servers. If a quarter of the files that the process may open is more, that is left to them.
	reservedFiles = 128
	// unlimitedFiles is taken for the limit of files where the system has none.
	unlimitedFiles = 1 << 20
)

// LimitConnections returns the listener of a server with a limit of open connections. The listeners
// of this process, whose number is given, share the files that it may open. Further connections
// wait in the system's backlog until one closes. At the limit the connection that has been idle for
// the longest is closed, so clients that only keep connections open do not lock out others.
func LimitConnections(s *http.Server, l net.Listener, listeners int) net.Listener {
	c := newConnections(l, connectionLimit(maxOpenFiles(), listeners))
	s.ConnState = c.noteState
	return c
}

// connectionLimit returns how many connections each listener may have open, in a process with a
// number of listeners that may open a number of files.
func connectionLimit(files, listeners int) int {
	free := (files - max(reservedFiles, files/4)) / max(1, listeners)
	return max(minConnections, min(maxConnections, free))
}

// connections is a listener with a limit.
type connections struct {
	net.Listener
	free   chan struct{} // has an element for each connection that may be opened
	closed chan struct{}
	close  func() error

	idled   atomic.Int64 // counts how often a connection became idle
	waiting atomic.Bool  // whether take waits for a connection to become idle or to close

	mu   sync.Mutex
	open map[*connection]bool
}

func newConnections(l net.Listener, limit int) *connections {
	c := &connections{Listener: l, free: make(chan struct{}, limit), closed: make(chan struct{}),
		open: map[*connection]bool{}}
	for range limit {
		c.free <- struct{}{}
	}
	c.close = sync.OnceValue(func() error {
		close(c.closed)
		return l.Close()
	})
	return c
}

// Accept implements net.Listener. One connection beyond the limit is accepted and waits here, so
// that an idle connection is closed only when another one needs its place.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !c.take() {
		accepted.Close()
		return nil, net.ErrClosed
	}
	one := &connection{Conn: accepted}
	one.release = sync.OnceFunc(func() { c.forget(one) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[one] = true
	return one, nil
}

// take waits until one more connection may be open. At the limit it closes an idle one, or has the
// next one that becomes idle closed. It returns false when the listener is closed.
func (c *connections) take() bool {
	select {
	case <-c.free:
		return true
	default:
	}
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	c.closeIdle()
	select {
	case <-c.free:
		return true
	case <-c.closed:
		return false
	}
}

// closeIdle closes the connection that has been idle for the longest, if there is one. A client
// that sends a request at that moment gets no answer to it, as when the connection times out.
func (c *connections) closeIdle() {
	c.mu.Lock()
	var longest *connection
	since := int64(0)
	for one := range c.open {
		if at := one.idleSince.Load(); at != 0 && (longest == nil || at < since) {
			longest, since = one, at
		}
	}
	c.mu.Unlock()
	if longest != nil {
		longest.Close()
	}
}

// noteState is called by the server when the state of a connection has changed.
func (c *connections) noteState(changed net.Conn, state http.ConnState) {
	if secure, ok := changed.(*tls.Conn); ok {
		changed = secure.NetConn()
	}
	one, ok := changed.(*connection)
	if !ok {
		return
	}
	if state != http.StateIdle {
		one.idleSince.Store(0)
		return
	}
	one.idleSince.Store(c.idled.Add(1))
	if c.waiting.CompareAndSwap(true, false) {
		c.closeIdle()
	}
}

// forget lets another connection take the place of one that is closed.
func (c *connections) forget(one *connection) {
	c.mu.Lock()
	delete(c.open, one)
	c.mu.Unlock()
	c.free <- struct{}{}
}

// Close implements net.Listener. Connections that are open stay so.
func (c *connections) Close() error { return c.close() }

// connection is an open connection.
type connection struct {
	net.Conn
	idleSince atomic.Int64 // by the order of idled; 0 is not idle
	release   func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.release()
	return c.Conn.Close()
}
