package postgres

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// tries is how often an update is run when the database asks for it.
const tries = 10

// Store is the storage port on one PostgreSQL database.
type Store struct {
	config  Config
	connect *pgx.ConnConfig
	db      *sql.DB
	node    string // tells our own announcements from others'
	slots   chan int64
	lanes   chan []job.Lane
	stop    chan struct{}
	stopped chan struct{}
	closing sync.Once
}

// An update reads what others have committed meanwhile, whatever the database's
// default is: who has waited for a name sees what its last holder did.
const beginUpdate = "BEGIN ISOLATION LEVEL READ COMMITTED"

// Update is documented at the port. Serialization failures and deadlocks are
// run again here and nowhere else.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) error {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	for try := 1; ; try++ {
		again, err := s.once(ctx, beginUpdate, func(tx *sqlstore.Tx) error { return fn(tx) })
		if !again || try == tries {
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
	_, err := s.once(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", func(tx *sqlstore.Tx) error { return fn(tx) })
	return err
}

// once runs fn in a transaction. again reports that the database asks for the
// whole transaction to be run once more.
func (s *Store) once(ctx context.Context, begin string, fn func(*sqlstore.Tx) error) (again bool, err error) {
	var slot int64
	select {
	case slot = <-s.slots: // also keeps callers from queueing inside the pool
	case <-ctx.Done():
		return false, translate("store.begin", ctx.Err())
	}
	defer func() { s.slots <- slot }()
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
	tx := sqlstore.NewTx(se)
	if err = fn(tx); err == nil {
		err = tx.Failed()
	}
	if err == nil && ctx.Err() != nil {
		err = translate("store.commit", ctx.Err())
	}
	if err != nil {
		return mayRunAgain(tx.Failed()), err
	}
	ended = true
	err = se.commit()
	return mayRunAgain(err), err
}

// begin opens a transaction. A connection that was lost while it was idle shows
// it here, where nothing is lost by taking another; all of them may be such.
func (s *Store) begin(ctx context.Context, begin string, slot int64) (se *session, err error) {
	for range s.config.Conns + 1 {
		var conn *sql.Conn
		if conn, err = s.db.Conn(ctx); err != nil {
			return nil, translate("store.begin", err)
		}
		se = &session{ctx: ctx, conn: conn, observe: s.config.Observe, slot: slot}
		if err = se.begin(begin, s.config.Now); err == nil {
			return se, nil
		}
		conn.Close()
		var pg *pgconn.PgError
		if ctx.Err() != nil || errors.As(err, &pg) && pg.Severity != "FATAL" {
			break
		}
	}
	return nil, err
}

// Writers is one for each connection.
func (s *Store) Writers() int { return s.config.Conns }

// Ping is documented at the port.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return translate("store.ping", s.db.PingContext(ctx))
}

// Close waits for announcements under way and closes all connections.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.stop) })
	<-s.stopped
	return translate("store.close", s.db.Close())
}
