package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A group ends after so many updates or so long, whichever comes first, so that
// nobody waits for an unbounded queue of others.
const (
	maxGroupSize = 256
	maxGroupTime = 20 * time.Millisecond
)

// Store is the storage port on one SQLite database.
type Store struct {
	config   Config
	requests chan *request
	readers  chan *session // nil for a database in memory: its one connection serves all
	stop     chan struct{}
	stopped  chan struct{}
	closing  sync.Once
	unlock   func()
}

// request is an update, or a view of a database in memory, on its way to the
// writer.
type request struct {
	fn       func(store.Tx) error
	taken    atomic.Bool // set by whoever decides first: the writer to run it, the caller to leave
	err      error       // what the caller gets
	failed   error       // of a statement, see sqlstore.Tx.Failed
	panicked any
	done     chan struct{}
}

// Update is documented at the port.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) error {
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return translate("store.update", ctx.Err())
	}
	r := &request{fn: fn, done: make(chan struct{})}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return translate("store.update", ctx.Err())
	case <-s.stopped:
		return errClosed
	}
	select {
	case <-r.done:
	case <-s.stopped:
		if r.taken.CompareAndSwap(false, true) {
			return errClosed
		}
		<-r.done
	case <-ctx.Done():
		if r.taken.CompareAndSwap(false, true) {
			return translate("store.update", ctx.Err())
		}
		<-r.done // it runs already: its outcome is the truth
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

var errClosed = &job.Error{Kind: job.Unavailable, Op: "store.begin", Msg: "the store is closed"}

// View is documented at the port.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) error {
	if s.readers == nil {
		return s.Update(ctx, func(tx store.Tx) error { return fn(tx) })
	}
	ctx, cancel := sqlstore.WithDeadline(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return translate("store.view", ctx.Err())
	}
	var r *session
	select {
	case r = <-s.readers:
	case <-ctx.Done():
		return translate("store.view", ctx.Err())
	case <-s.stopped:
		return errClosed
	}
	defer func() { s.readers <- r }()
	if r == nil {
		opened, err := openReader(ctx, s.config)
		if err != nil {
			return translate("store.view", err)
		}
		r = opened
	}
	r.ctx = ctx
	defer func() {
		r.ctx = context.Background()
		if r.run("ROLLBACK") != nil { // nothing is known of it any more
			r.close()
			r = nil
		}
	}()
	if err := r.begin("DEFERRED"); err != nil {
		return translate("store.view", err)
	}
	tx := sqlstore.NewTx(r)
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Failed()
}

// Announce does nothing: there is one process on a SQLite database.
func (s *Store) Announce([]job.QueueHash) {}

// Listen waits for ctx: nobody else announces anything.
func (s *Store) Listen(ctx context.Context, _ func([]job.QueueHash)) { <-ctx.Done() }

// Writers is one.
func (s *Store) Writers() int { return 1 }

// Ping is documented at the port.
func (s *Store) Ping(ctx context.Context) error {
	return s.Update(ctx, func(tx store.Tx) error { _, err := tx.Exists(job.ID{}); return err })
}

// Close ends the writer after the group it is in and closes all connections.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		<-s.stopped
		for range cap(s.readers) {
			if r := <-s.readers; r != nil {
				r.close()
			}
		}
		if s.unlock != nil {
			s.unlock()
		}
	})
	return nil
}

// write runs groups of updates until the store is closed. A session whose log
// can no longer be trusted is closed and the database opened anew, which writes
// what the log holds into the database file and begins a new log.
func (s *Store) write(w *session) {
	defer func() {
		if w != nil {
			w.close()
		}
		close(s.stopped)
	}()
	for {
		select {
		case <-s.stop:
			return
		case first := <-s.requests:
			if w == nil {
				reopened, err := reopenWriter(s.config)
				if err != nil {
					first.fail(translate("store.reopen", err))
					continue
				}
				w = reopened
			}
			if broken := s.group(w, first); broken {
				w.close()
				w = nil
			}
		}
	}
}

// group runs first and whatever waits behind it in one transaction and answers
// all of them after its fsync. broken reports that w can no longer be used.
func (s *Store) group(w *session, first *request) (broken bool) {
	if !first.taken.CompareAndSwap(false, true) {
		return false
	}
	numbers := w.numbers
	if err := w.begin("IMMEDIATE"); err != nil {
		first.finish(translate("store.begin", err))
		return corruptsLog(err)
	}
	first.run(w)
	if first.err != nil { // nothing else is in the transaction yet
		broken = w.rollback(numbers, first.failed)
		close(first.done)
		return broken
	}
	members := []*request{first}
	var failed error
	for end := time.Now().Add(maxGroupTime); failed == nil && len(members) < maxGroupSize &&
		time.Now().Before(end); {
		r := s.next()
		if r == nil {
			break
		}
		members = append(members, r)
		failed = r.runInside(w)
	}
	if failed == nil {
		failed = w.run("COMMIT")
	}
	if failed != nil {
		broken = w.rollback(numbers, failed)
		lost := translate("store.commit", failed)
		for _, r := range members {
			if r.err == nil {
				r.err = lost
			}
		}
	}
	for _, r := range members {
		close(r.done)
	}
	return broken
}

// rollback undoes the transaction of w, which ended with cause. SQLite may have
// done that by itself already, as it does when the disk is full.
func (s *session) rollback(numbers numbers, cause error) (broken bool) {
	s.numbers = numbers
	err := s.run("ROLLBACK")
	return corruptsLog(cause) || (err != nil && !isNoTransaction(err))
}

// next returns a waiting request, nil when there is none.
func (s *Store) next() *request {
	for {
		select {
		case r := <-s.requests:
			if r.taken.CompareAndSwap(false, true) {
				return r
			}
		default:
			return nil
		}
	}
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// fail answers a request that was not yet taken.
func (r *request) fail(err error) {
	if r.taken.CompareAndSwap(false, true) {
		r.finish(err)
	}
}

// run calls the function; a panic is carried to the caller.
func (r *request) run(w *session) {
	tx := sqlstore.NewTx(w)
	defer func() {
		r.failed = tx.Failed()
		if p := recover(); p != nil {
			r.panicked = p
			r.err = fmt.Errorf("panic in an update: %v", p)
		}
	}()
	w.readClock()
	if r.err = r.fn(tx); r.err == nil {
		r.err = tx.Failed()
	}
}

// runInside runs a request in a transaction that holds others already. Its own
// failure is undone and stays its own; failed is that of the transaction.
func (r *request) runInside(w *session) (failed error) {
	numbers := w.numbers
	if err := w.run("SAVEPOINT member"); err != nil {
		return err
	}
	r.run(w)
	if r.err == nil {
		return w.run("RELEASE member")
	}
	w.numbers = numbers
	if corruptsLog(r.failed) {
		return r.failed
	}
	if err := cmp.Or(w.run("ROLLBACK TO member"), w.run("RELEASE member")); err != nil {
		return cmp.Or(r.failed, err) // a full disk, say, has undone the whole transaction
	}
	return nil
}

// isNoTransaction reports that SQLite had rolled back already by itself, as it
// does when the disk is full.
func isNoTransaction(err error) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code() == 1
}
