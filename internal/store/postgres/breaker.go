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

// breaker is a circuit breaker: it keeps a node from asking a database again and again that refuses
// it, however many requests and loops the node has. While the database refuses, one try a second is
// allowed, and every other caller gets the error of the last try.
//
//	closed ──trip──> open, paused ──retryInterval──> open: allow lets one try through, which
//	   ^                  ^                               |          pauses again
//	   +──────reset───────+───────────────trip────────────+
//
// A node has two, see Store: connectBreaker is asked before every transaction, Ping and Listen;
// writeBreaker before updates alone, so that reads go on while writes fail (decision 0030).
type breaker struct {
	mu      sync.Mutex
	lastErr error // of the last try; nil while the breaker is closed
	paused  bool  // no try is allowed

	refused  error // the last refusal, until forget drops it, also after a reset
	refusals int   // how many refusals there were
}

// allow returns nil if the database may be asked now, and otherwise the last refusal. While the
// breaker is open, the caller that it allows a try reports the outcome by trip or reset; if it
// does not, the next try is allowed a second later nevertheless.
func (b *breaker) allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.lastErr != nil && b.paused:
		return b.lastErr
	case b.lastErr != nil:
		b.pause()
	}
	return nil
}

// trip records that the database has refused a try.
func (b *breaker) trip(refusal error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastErr, b.refused = refusal, refusal
	b.refusals++
	number := b.refusals
	time.AfterFunc(3*retryInterval, func() { b.forget(number) })
	if !b.paused {
		b.pause()
	}
}

// reset records that the database serves.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastErr = nil
}

// recent returns a refusal of the last seconds, if there was one. Another try may have succeeded
// since, because the database still does what that one asked for. Ping returns it, so that a node
// is not healthy while some of its updates fail for such a reason.
func (b *breaker) recent() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// forget drops a refusal, unless there was a later one.
func (b *breaker) forget(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusals == number {
		b.refused = nil
	}
}

// pause allows no try for retryInterval.
func (b *breaker) pause() {
	b.paused = true
	time.AfterFunc(retryInterval, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.paused = false
	})
}

// persistentStates are the SQLSTATEs of a database that refuses all writes, or all statements,
// until an operator acts: a full disk, a failing disk, a server that became a standby, missing
// rights, missing tables.
var persistentStates = []string{"53100", "58000", "58030", "25006", "42501", "42P01", "3F000"}

// record records the outcome of an update.
func (b *breaker) record(err error) {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && slices.Contains(persistentStates, pg.Code):
		b.trip(err)
	case job.IsKind(err, job.Unavailable):
		// It may concern this one update alone.
	default:
		b.reset()
	}
}

// connectFailed trips the breaker after a failed try that its caller did not end, unless there
// are connections that others may still use.
func (s *Store) connectFailed(ctx context.Context, err error) {
	if ctx.Err() == nil && s.db.Stats().OpenConnections == 0 {
		s.connectBreaker.trip(err)
	}
}

// resetPool makes the pool close its idle connections. A connection keeps the value that
// default_transaction_read_only had when it was made, whatever is set later. The pool is of the
// same size afterwards. Connections in use go on.
func (s *Store) resetPool() {
	s.pool.Lock()
	defer s.pool.Unlock()
	s.db.SetMaxIdleConns(-1)
	s.db.SetMaxIdleConns(s.maxConns)
}

// isTooManyConnections reports that the server accepts no further connection.
func isTooManyConnections(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "53300"
}

// shrinkPool limits the pool to its present connections when the server accepts no more, so that
// callers wait for one of these. The limit then grows by one each second.
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

// growPool raises the limit by one, and runs again until the pool may have its full size.
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
