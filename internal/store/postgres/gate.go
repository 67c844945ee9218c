package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
)

// retryEvery is the pause between two tries of a node while the database refuses it.
const retryEvery = time.Second

// gate keeps a node from asking a database again and again that refuses it,
// whatever the number of its requests and loops: one try a second finds out whether
// it still does, and everybody else gets the answer of the last one.
type gate struct {
	mu      sync.Mutex
	refusal error // of the last try; nil while the database serves
	resting bool

	refused error // the last refusal of the last seconds, also when it is over
	times   int   // of refusals
}

// enter returns why the database is not to be asked now.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusal == nil {
		return nil
	}
	if g.resting {
		return g.refusal
	}
	g.rest()
	return nil
}

// close notes that the database has refused a try.
func (g *gate) close(refusal error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal, g.refused = refusal, refusal
	g.times++
	this := g.times
	time.AfterFunc(3*retryEvery, func() { g.forget(this) })
	if !g.resting {
		g.rest()
	}
}

// open notes that the database serves.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal = nil
}

// recent returns a refusal of the last seconds. Another try may have been served since:
// it may have asked for something that the database still does.
func (g *gate) recent() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// forget drops a refusal, unless there was another since.
func (g *gate) forget(which int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.times == which {
		g.refused = nil
	}
}

func (g *gate) rest() {
	g.resting = true
	time.AfterFunc(retryEvery, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.resting = false
	})
}

// lasting are the states in which a database refuses all that writes, or all there
// is, until somebody acts: a full disk, one that fails, a server that became a
// standby, rights that were taken away, tables that are missing.
var lasting = []string{"53100", "58000", "58030", "25006", "42501", "42P01", "3F000"}

// judge tells the gate of updates how one went.
func (g *gate) judge(err error) {
	var pg *pgconn.PgError
	lasts := errors.As(err, &pg) && slices.Contains(lasting, pg.Code)
	if lasts {
		g.close(err)
		return
	}
	if err != nil && job.IsKind(err, job.Unavailable) {
		return // it may be of this one update
	}
	g.open()
}

// unreached closes the gate where a try failed that its caller did not end, and no
// connection is left that others might still use.
func (s *Store) unreached(ctx context.Context, err error) {
	if ctx.Err() == nil && s.db.Stats().OpenConnections == 0 {
		s.reached.close(err)
	}
}

// renew has the pool forget the connections that nobody uses. A connection keeps the
// default_transaction_read_only of the moment it was made, whatever is set later.
func (s *Store) renew() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.db.SetMaxIdleConns(-1)
	s.db.SetMaxIdleConns(s.room)
}

// crowded reports a server that has no room for another connection.
func crowded(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "53300"
}

// squeeze makes do with the connections there are where the server has no room for
// more, so that callers wait for one of these; each second it asks for one more.
func (s *Store) squeeze() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.room = max(1, min(s.room, s.db.Stats().OpenConnections))
	s.db.SetMaxOpenConns(s.room)
	if !s.growing {
		s.growing = true
		time.AfterFunc(retryEvery, s.grow)
	}
}

func (s *Store) grow() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.room++
	s.db.SetMaxOpenConns(s.room)
	s.db.SetMaxIdleConns(s.room)
	if s.growing = s.room < s.config.Conns; s.growing {
		time.AfterFunc(retryEvery, s.grow)
	}
}
