package postgres

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// maxAttempts is how often an update is run at most, see mayRunAgain. The pause between two
// attempts is random: at most minAttemptPause before the second one, then twice as much each time,
// and never more than maxAttemptPause.
const (
	maxAttempts     = 10
	minAttemptPause = 2 * time.Millisecond
	maxAttemptPause = 128 * time.Millisecond
)

// Store is the storage port on one PostgreSQL database, as one of several nodes.
type Store struct {
	config        Config
	route         *route
	db            *sql.DB
	node          string // names this node in its announcements
	slots         *slots
	announcements chan []job.QueueHash
	stop          chan struct{}
	cancel        context.CancelFunc // of what runs by itself
	stopped       chan struct{}
	closing       sync.Once

	connectBreaker breaker // open while the database refuses connections
	writeBreaker   breaker // open while the database refuses writes

	conflicts  conflictWindow
	watermarks *watermarks
	abandoned  abandonedSlots
	endChecks  endChecks
	retries    chan struct{} // a place for each update that tries again, see lock_retries.go

	busy     atomic.Int64  // connections that transactions use
	released chan struct{} // receives when a transaction gives back its connection

	pool     sync.Mutex
	maxConns int  // connections that the pool may have now
	growing  bool // growPool runs again
}

// The isolation levels, whatever the database's default is. An update sees what others commit while
// it runs: after LockName has waited, it sees what the holder before has committed.
const (
	beginUpdate = "BEGIN ISOLATION LEVEL READ COMMITTED"
	beginView   = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
)

// Update is documented at the port. It runs fn again after a serialization failure, a deadlock, or
// an insert that met a taken identity, see conflictPeriod. For locks that others hold see
// lock_retries.go. While the database refuses writes, see breaker, it returns the last refusal
// without a connection.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) error {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	backoff := clock.Backoff{Min: minAttemptPause, Max: maxAttemptPause}
	for try := 1; ; try++ {
		if err := s.writeBreaker.allow(); err != nil {
			return err
		}
		again, err := s.updateRetryingLocks(ctx, fn)
		if !again || try == maxAttempts {
			s.writeBreaker.record(err)
			return err
		}
		if !clock.Sleep(ctx, rand.N(backoff.Next())) {
			return err
		}
	}
}

// View is documented at the port. It runs fn once.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) error {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	_, err := s.runTx(ctx, beginView, func(tx *sqlstore.Tx) error { return fn(tx.View()) })
	return err
}

// runTx runs fn in a transaction. again reports that the whole transaction may be run again. The
// steps, each of which gives back what the ones before have taken:
//
//	slot ──> connectBreaker ──> connection, BEGIN and time ──> fn ──> COMMIT
//	                                                            └─ error, panic ──> ROLLBACK
//
// A commit whose answer is lost is Unavailable, and its changes may have been kept: it is not
// run again.
func (s *Store) runTx(ctx context.Context, begin string, fn func(*sqlstore.Tx) error) (again bool,
	err error) {
	slot, err := s.slots.acquire(ctx) // as many as connections, so no caller waits in the pool
	if err != nil {
		return false, translate("store.begin", err)
	}
	defer s.slots.release(slot)
	if err := s.connectBreaker.allow(); err != nil {
		return false, err
	}
	se, err := s.begin(ctx, begin, slot)
	if err != nil {
		return false, err
	}
	defer s.releaseConn(se.conn)
	ended := false
	defer func() {
		if !ended { // also after a panic in fn
			se.rollback()
		}
	}()
	if se.readOnly && begin == beginUpdate {
		se.discard()
		s.resetPool()
		return false, errReadOnly("store.begin", "the store is read-only")
	}
	tx := sqlstore.NewTx(se)
	if err := outcome(ctx, tx, fn); err != nil {
		failed := tx.Failed()
		if isLockTimeout(failed) { // also where fn hides it
			return false, failed
		}
		return mayRunAgain(failed), err
	}
	ended = true
	err = se.commit()
	return mayRunAgain(err), err
}

// outcome runs fn and returns an error if its transaction must not be committed. A caller whose
// ctx has ended gets no commit, even if every statement succeeded.
func outcome(ctx context.Context, tx *sqlstore.Tx, fn func(*sqlstore.Tx) error) error {
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Failed(); err != nil {
		return err
	}
	return translate("store.commit", ctx.Err())
}

// begin opens a transaction. BEGIN is the first to notice that a connection of the pool was lost
// while it was idle. As all of them may be lost, begin tries one after another.
func (s *Store) begin(ctx context.Context, begin string, slot int64) (se *session, err error) {
	for range s.config.Conns + 1 {
		var conn *sql.Conn
		if conn, err = s.conn(ctx); err != nil {
			err = translate("store.begin", err)
			s.connectFailed(ctx, err)
			return nil, err
		}
		se = &session{ctx: ctx, conn: conn, observe: s.config.Observe, slot: slot,
			local: s.route.local, conflicts: &s.conflicts,
			watermarks: s.watermarks, abandoned: &s.abandoned, endChecks: &s.endChecks}
		err = se.begin(begin, s.config.Now)
		if err != nil {
			s.releaseConn(conn)
			if ctx.Err() != nil || !s.mayUseOther(se, err) {
				return nil, err
			}
			continue
		}
		s.connectBreaker.reset()
		return se, nil
	}
	return nil, err
}

// mayUseOther reports whether BEGIN may succeed on another connection after it failed on this
// one: this one is lost, or the server has closed it.
func (s *Store) mayUseOther(se *session, err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true
	}
	// A pooler accepts every connection, even if it has no server.
	if se.isNewConn && strings.HasPrefix(pg.Code, "08") {
		s.connectBreaker.trip(err)
		return false
	}
	return pg.Severity == "FATAL"
}

// noPing is the key of a context for connections that are not pinged before they are used again.
type noPing struct{}

// shouldPing has a connection pinged that was idle, unless its caller finds a lost one by itself:
// an idle node would make twice the round trips.
func shouldPing(ctx context.Context, p stdlib.ShouldPingParams) bool {
	return p.IdleDuration > time.Second && ctx.Value(noPing{}) == nil
}

// conn returns a connection of the pool, which the caller gives back. It may be lost already. If
// the server accepts no further connection, conn waits for one of those that exist.
func (s *Store) conn(ctx context.Context) (*sql.Conn, error) {
	ctx = context.WithValue(ctx, noPing{}, true)
	conn, err := s.db.Conn(ctx)
	for tries := 0; err != nil; tries++ {
		if !isTooManyConnections(err) || !s.hasConnections(tries) {
			return nil, err
		}
		s.shrinkPool()
		if !s.awaitRelease(ctx, tries) {
			return nil, ctx.Err()
		}
		conn, err = s.db.Conn(ctx)
	}
	s.busy.Add(1)
	return conn, nil
}

// releaseConn returns a connection to the pool and wakes a caller in awaitRelease, if there is one.
func (s *Store) releaseConn(conn *sql.Conn) {
	conn.Close()
	s.busy.Add(-1)
	select {
	case s.released <- struct{}{}:
	default:
	}
}

// awaitRelease pauses before another try to get a connection, until one is given back. As that may
// have happened just before, or the server may have some again, the pause is bounded: it is random,
// and at most 16 ms at first and then twice as much each time, up to retryInterval. awaitRelease
// reports whether ctx has not ended.
func (s *Store) awaitRelease(ctx context.Context, tries int) bool {
	maxPause := min(16*time.Millisecond<<min(tries, 6), retryInterval)
	return clock.SleepOr(ctx, rand.N(maxPause), s.released)
}

// hasConnections reports whether one of the pool's connections may become free. Those being opened
// count for the first tries only: the server may refuse them too, and callers that all waited for
// each other's would wait until their deadlines.
func (s *Store) hasConnections(tries int) bool {
	const maxOpening = 3
	stats := s.db.Stats()
	mayOpen := tries < maxOpening && stats.OpenConnections > 0
	return s.busy.Load() > 0 || stats.Idle > 0 || mayOpen
}

// Writers returns the number of connections.
func (s *Store) Writers() int { return s.config.Conns }

// Pool returns how many of its connections are in use and open, and may be open at most.
func (s *Store) Pool() (inUse, open, max int) {
	stats := s.db.Stats()
	return stats.InUse, stats.OpenConnections, stats.MaxOpenConnections
}

// Ping is documented at the port. The error says why the database refuses writes, or what its
// schema or the role lacks. A failure that the catalogue does not show, such as that of a disk,
// is known from the updates that had it.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.connectBreaker.allow(); err != nil {
		return err
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now, err := s.state(ctx)
	if err != nil {
		s.connectFailed(caller, err)
		return err
	}
	s.connectBreaker.reset()
	switch {
	case now.isStandby:
		return errReadOnly("store.ping", "the store is read-only: this PostgreSQL is a standby")
	case now.refusesWrites:
		s.resetPool()
		return errReadOnly("store.ping",
			"the store is read-only: default_transaction_read_only is on")
	case now.missingRelation != "":
		return now.errMissingRight()
	}
	return s.writeBreaker.recent()
}

// Close waits for the notification that is being sent and for what runs by itself, and closes all
// connections.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		s.cancel()
	})
	<-s.stopped
	return translate("store.close", s.db.Close())
}
