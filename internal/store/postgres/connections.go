package postgres

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// connections are the network connections of a store.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

// connection is one of them, from when it is being made until Close.
type connection struct {
	net.Conn
	all *connections

	mu     sync.Mutex
	sentAt time.Time // when something was sent that is not answered yet; zero if all is
	server string    // to which it leads, see selectServer; empty where that is not known
}

// dialer returns a function that registers the connections that dial makes, from when it begins.
func (c *connections) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (_ net.Conn, err error) {
		one := &connection{all: c, sentAt: time.Now()}
		c.mu.Lock()
		c.open[one] = true
		c.mu.Unlock()
		if one.Conn, err = dial(ctx, network, address); err != nil {
			one.remove()
			return nil, err
		}
		one.answered()
		return one, nil
	}
}

// list returns those that are open.
func (c *connections) list() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// connectionOf returns the network connection of one of the driver.
func connectionOf(pg *pgconn.PgConn) *connection {
	conn := pg.Conn()
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	return conn.(*connection)
}

// Read is documented at net.Conn, as are Write and Close.
func (c *connection) Read(b []byte) (n int, err error) {
	if n, err = c.Conn.Read(b); n > 0 {
		c.answered()
	}
	return n, err
}

func (c *connection) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	c.sentAt = time.Now()
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *connection) Close() error {
	c.remove()
	return c.Conn.Close()
}

func (c *connection) remove() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	delete(c.all.open, c)
}

// answered records that the server has answered, maybe a part.
func (c *connection) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sentAt = time.Time{}
}

// identify records to which server the connection leads.
func (c *connection) identify(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
}

// isSilent reports whether the server has not answered for silentAfter.
func (c *connection) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.sentAt.IsZero() && time.Since(c.sentAt) >= silentAfter
}

// isToOther reports whether the connection leads to a server that is known and not among those
// given.
func (c *connection) isToOther(servers []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != "" && !slices.Contains(servers, c.server)
}
