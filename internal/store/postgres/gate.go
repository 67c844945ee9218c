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

// retryInterval is the pause between two tries of a node while the database refuses it.
const retryInterval = time.Second

// breaker keeps a node from asking a database again and again that refuses it,
// whatever the number of its requests and loops: one try a second finds out whether
// it still does, and everybody else gets the answer of the last one.
type breaker struct {
	mu      sync.Mutex
	lastErr error // of the last try; nil while the database serves
	paused  bool

	refused error // the last refusal of the last seconds, also when it is over
	times   int   // of refusals
}

// allow returns why the database is not to be asked now.
func (g *breaker) allow() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lastErr == nil {
		return nil
	}
	if g.paused {
		return g.lastErr
	}
	g.pause()
	return nil
}

// trip notes that the database has refused a try.
func (g *breaker) trip(refusal error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastErr, g.refused = refusal, refusal
	g.times++
	this := g.times
	time.AfterFunc(3*retryInterval, func() { g.forget(this) })
	if !g.paused {
		g.pause()
	}
}

// reset notes that the database serves.
func (g *breaker) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastErr = nil
}

// recent returns a refusal of the last seconds. Another try may have been served since:
// it may have asked for something that the database still does.
func (g *breaker) recent() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// forget drops a refusal, unless there was another since.
func (g *breaker) forget(which int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.times == which {
		g.refused = nil
	}
}

func (g *breaker) pause() {
	g.paused = true
	time.AfterFunc(retryInterval, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.paused = false
	})
}

// persistentStates are the states in which a database refuses all that writes, or all there
// is, until somebody acts: a full disk, one that fails, a server that became a
// standby, rights that were taken away, tables that are missing.
var persistentStates = []string{"53100", "58000", "58030", "25006", "42501", "42P01", "3F000"}

// record tells the gate of updates how one went.
func (g *breaker) record(err error) {
	var pg *pgconn.PgError
	lasts := errors.As(err, &pg) && slices.Contains(persistentStates, pg.Code)
	if lasts {
		g.trip(err)
		return
	}
	if err != nil && job.IsKind(err, job.Unavailable) {
		return // it may be of this one update
	}
	g.reset()
}

// connectFailed closes the gate where a try failed that its caller did not end, and no
// connection is left that others might still use.
func (s *Store) connectFailed(ctx context.Context, err error) {
	if ctx.Err() == nil && s.db.Stats().OpenConnections == 0 {
		s.connectBreaker.trip(err)
	}
}

// resetPool has the pool forget the connections that nobody uses. A connection keeps the
// default_transaction_read_only of the moment it was made, whatever is set later.
func (s *Store) resetPool() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.db.SetMaxIdleConns(-1)
	s.db.SetMaxIdleConns(s.maxConns)
}

// isTooManyConnections reports a server that has no room for another connection.
func isTooManyConnections(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "53300"
}

// shrinkPool makes do with the connections there are where the server has no room for
// more, so that callers wait for one of these; each second it asks for one more.
func (s *Store) shrinkPool() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.maxConns = max(1, min(s.maxConns, s.db.Stats().OpenConnections))
	s.db.SetMaxOpenConns(s.maxConns)
	if !s.growing {
		s.growing = true
		time.AfterFunc(retryInterval, s.growPool)
	}
}

func (s *Store) growPool() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.maxConns++
	s.db.SetMaxOpenConns(s.maxConns)
	s.db.SetMaxIdleConns(s.maxConns)
	if s.growing = s.maxConns < s.config.Conns; s.growing {
		time.AfterFunc(retryInterval, s.growPool)
	}
}
