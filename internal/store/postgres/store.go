package postgres

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// maxTries is how often an update is run when the database asks for it.
const maxTries = 10

// Store is the storage port on one PostgreSQL database.
type Store struct {
	config        Config
	route         *route
	db            *sql.DB
	node          string // tells our own announcements from others'
	slots         chan int64
	announcements chan []job.QueueHash
	stop          chan struct{}
	stopped       chan struct{}
	closing       sync.Once

	connectBreaker breaker // the database lets us in
	writeBreaker   breaker // it lets us write

	pool     sync.Mutex
	maxConns int // connections that the pool may have now
	growing  bool
}

// An update reads what others have committed meanwhile, whatever the database's
// default is: who has waited for a name sees what its last holder did.
const (
	beginUpdate = "BEGIN ISOLATION LEVEL READ COMMITTED"
	beginView   = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
)

// Update is documented at the port. Serialization failures and deadlocks are
// run again here and nowhere else.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) error {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	for try := 1; ; try++ {
		if err := s.writeBreaker.allow(); err != nil {
			return err
		}
		again, err := s.runTx(ctx, beginUpdate, func(tx *sqlstore.Tx) error { return fn(tx) })
		if !again || try == maxTries {
			s.writeBreaker.record(err)
			return err
		}
		select {
		case <-time.After(rand.N(time.Millisecond << min(try, 7))):
		case <-ctx.Done():
			return err
		}
	}
}

// View is documented at the port.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) error {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	_, err := s.runTx(ctx, beginView, func(tx *sqlstore.Tx) error { return fn(tx) })
	return err
}

// runTx runs fn in a transaction. again reports that the database asks for the
// whole transaction to be run once more.
func (s *Store) runTx(ctx context.Context, begin string, fn func(*sqlstore.Tx) error) (again bool,
	err error) {
	var slot int64
	select {
	case slot = <-s.slots: // also keeps callers from queueing inside the pool
	case <-ctx.Done():
		return false, translate("store.begin", ctx.Err())
	}
	defer func() { s.slots <- slot }()
	if err := s.connectBreaker.allow(); err != nil {
		return false, err
	}
	se, err := s.begin(ctx, begin, slot)
	if err != nil {
		return false, err
	}
	defer se.conn.Close() // returns it to the pool
	ended := false
	defer func() {
		if !ended {
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
		return mayRunAgain(tx.Failed()), err
	}
	ended = true
	err = se.commit()
	return mayRunAgain(err), err
}

// outcome runs fn and returns why its transaction must not be committed, if it must not.
func outcome(ctx context.Context, tx *sqlstore.Tx, fn func(*sqlstore.Tx) error) error {
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Failed(); err != nil {
		return err
	}
	return translate("store.commit", ctx.Err())
}

// begin opens a transaction. A connection that was lost while it was idle shows
// it here, where nothing is lost by taking another; all of them may be such.
func (s *Store) begin(ctx context.Context, begin string, slot int64) (se *session, err error) {
	for range s.config.Conns + 1 {
		var conn *sql.Conn
		if conn, err = s.conn(ctx); err != nil {
			err = translate("store.begin", err)
			s.connectFailed(ctx, err)
			return nil, err
		}
		se = &session{ctx: ctx, conn: conn, observe: s.config.Observe, slot: slot,
			local: s.route.local}
		if err = se.begin(begin, s.config.Now); err == nil {
			s.connectBreaker.reset()
			return se, nil
		}
		conn.Close()
		if ctx.Err() != nil {
			break
		}
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			continue
		}
		// A pooler lets everybody in and may have no server.
		if se.fresh && strings.HasPrefix(pg.Code, "08") {
			s.connectBreaker.trip(err)
			break
		}
		if pg.Severity != "FATAL" {
			break
		}
	}
	return nil, err
}

// conn returns a connection of the pool. Where the server has no room for another
// one it waits for one of those there are.
func (s *Store) conn(ctx context.Context) (*sql.Conn, error) {
	for {
		conn, err := s.db.Conn(ctx)
		waits := isTooManyConnections(err) && s.db.Stats().OpenConnections > 0
		if !waits {
			return conn, err
		}
		s.shrinkPool()
	}
}

// Writers is one for each connection.
func (s *Store) Writers() int { return s.config.Conns }

// Ping is documented at the port. A database that takes no writes, or lacks what some of
// them need, is named with the reason. What no catalogue shows, such as a disk that
// fails, is known from the updates that met it.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.connectBreaker.allow(); err != nil {
		return err
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	is, err := s.state(ctx)
	if err != nil {
		s.connectFailed(caller, err)
		return err
	}
	s.connectBreaker.reset()
	switch {
	case is.standby:
		return errReadOnly("store.ping", "the store is read-only: this PostgreSQL is a standby")
	case is.refusesWrites:
		s.resetPool()
		return errReadOnly("store.ping",
			"the store is read-only: default_transaction_read_only is on")
	case is.relation != "":
		return is.lacking()
	}
	return s.writeBreaker.recent()
}

// Close waits for announcements under way and closes all connections.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.stop) })
	<-s.stopped
	return translate("store.close", s.db.Close())
}
