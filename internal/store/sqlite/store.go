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

// Group commit, from the caller's side and the writer's:
//
//	Update: request ──> requests ──> write ──> group
//	   waits for done                            BEGIN IMMEDIATE
//	                                             run(first)  fails: ROLLBACK, answered alone
//	                                             SAVEPOINT, run(next), RELEASE
//	                                                         fails: ROLLBACK TO, others go on
//	                                             COMMIT      fails: its error for all
//	   <───────────────── close(done) ───────────
//
// No caller is answered with success before the fsync of COMMIT (G-X-12). After a crash of the
// process or a loss of power the group is in the database as a whole or not at all.
//
// An error that leaves doubts about the connection or the log makes the session broken: it is
// closed, and the next request opens the database again. Until that succeeds every request is
// Unavailable.

// A group ends after maxGroupSize updates or maxGroupTime, whichever comes first, so that the first
// caller does not wait for an unlimited number of others.
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
	commits  atomic.Int64 // see Version
}

// request is an update, or a view of a database in memory, on its way to the writer.
type request struct {
	fn func(store.Tx) error
	// taken is set once: by the writer that will run the request, or by the caller that leaves
	// before. The one that sets it answers the caller.
	taken    atomic.Bool
	err      error // what Update returns
	failed   error // the first failed statement, see sqlstore.Tx.Failed
	panicked any   // what fn panicked with
	done     chan struct{}
}

// Update is documented at the port. A caller whose ctx ends leaves only if the writer has not
// started its function; otherwise it waits for the outcome. So an update that returns the error
// of its ctx has changed nothing. A panic of fn is raised again on the goroutine of the caller.
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
		<-r.done // the writer runs it, so its outcome counts
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

var errClosed = &job.Error{Kind: job.Unavailable, Op: "store.begin", Msg: "the store is closed"}

// View is documented at the port. It waits for one of the reading connections and opens it when it
// is first used. A connection whose ROLLBACK fails is closed, and opened again later. The
// transaction of a view is always rolled back: it has nothing to keep, and its snapshot must end so
// that the log can be written into the database file.
func (s *Store) View(ctx context.Context, fn func(store.Reader) error) error {
	if s.readers == nil {
		return s.Update(ctx, func(tx store.Tx) error { return fn(tx.(*sqlstore.Tx).View()) })
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
		if r.run("ROLLBACK") != nil { // its state is unknown
			r.close()
			r = nil
		}
	}()
	if err := r.begin("DEFERRED"); err != nil {
		return translate("store.view", err)
	}
	tx := sqlstore.NewTx(r).View()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Failed()
}

// Notify does nothing: a SQLite database has only one node.
func (s *Store) Notify([]job.QueueHash) {}

// Listen waits for ctx: there is no other node to announce anything.
func (s *Store) Listen(ctx context.Context, _ func([]job.QueueHash)) { <-ctx.Done() }

// Writers returns 1.
func (s *Store) Writers() int { return 1 }

// Ping is documented at the port. It goes through the writer, so it also finds a log that could
// not be repaired.
func (s *Store) Ping(ctx context.Context) error {
	return s.Update(ctx, func(tx store.Tx) error {
		_, err := tx.Exists(job.ID{})
		return err
	})
}

// Close stops the writer after its current group and closes all connections. It waits for the
// views that run. Requests that no group has taken are Unavailable. The lock on the file is
// given up last, when no connection is left.
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

// write runs groups of updates until the store is closed. It closes a session whose log may be
// damaged and opens the database again with the next request, see reopenWriter. It is the only
// goroutine that uses w.
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

// group runs first and the requests that wait behind it in one transaction, and answers all of
// them after its fsync. broken reports that w can no longer be used. A request whose caller has
// left is passed over. The first runs without a savepoint: while it is alone, a rollback of the
// transaction undoes just it, and a caller without company pays for no savepoint.
func (s *Store) group(w *session, first *request) (broken bool) {
	if !first.taken.CompareAndSwap(false, true) {
		return false
	}
	if err := w.beginWrite(); err != nil {
		broken = w.rollback(w.savepoint(), err) // it may have begun
		first.finish(translate("store.begin", err))
		return broken
	}
	beginning := w.savepoint()
	first.run(w)
	if first.err != nil { // nothing else is in the transaction yet
		broken = w.rollback(beginning, first.failed)
		close(first.done)
		return broken
	}
	members, err := s.runOthers(w, first)
	s.commits.Add(1) // after the commit, as who reads the count and then the database misses none
	if err != nil {
		broken = w.rollback(beginning, err)
		failMembers(members, translate("store.commit", err))
	}
	for _, r := range members {
		close(r.done)
	}
	return broken
}

// runOthers runs the requests that wait behind first in its transaction and commits it. The error
// concerns the transaction. It takes what waits when the member before has ended, and does not wait
// for more to come.
func (s *Store) runOthers(w *session, first *request) (members []*request, err error) {
	members = []*request{first}
	end := time.Now().Add(maxGroupTime)
	for len(members) < maxGroupSize && time.Now().Before(end) {
		r := s.next()
		if r == nil {
			break
		}
		members = append(members, r)
		if err := r.runInSavepoint(w); err != nil {
			return members, err
		}
	}
	return members, w.run("COMMIT")
}

// failMembers gives an error to each member of a group that has none of its own.
func failMembers(members []*request, err error) {
	for _, r := range members {
		r.err = cmp.Or(r.err, err)
	}
}

// rollback undoes a transaction that failed with cause. SQLite may have done so already, as it
// does when the disk is full. Job numbers that the transaction took from the table are free again
// with it, so the session must forget them, as it forgets the jobs that it has written.
func (s *session) rollback(beginning savepoint, cause error) (broken bool) {
	s.restore(beginning)
	err := s.run("ROLLBACK")
	return corruptsLog(cause) || (err != nil && !isNoTransaction(err))
}

// next takes a waiting request; it returns nil if there is none. Requests whose callers have
// left are dropped.
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

// finish answers a request that was taken.
func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// fail answers a request that was not taken.
func (r *request) fail(err error) {
	if r.taken.CompareAndSwap(false, true) {
		r.finish(err)
	}
}

// run calls the function. It keeps a panic for the caller. r.err is the error of fn, of the first
// failed statement even if fn ignored it, or of a panic; nil means that the changes of the
// request belong into the commit.
func (r *request) run(w *session) {
	tx := sqlstore.NewTx(w).WithCache(w.cache)
	defer func() {
		r.failed = tx.Failed()
		if p := recover(); p != nil {
			r.panicked = p
			r.err = fmt.Errorf("panic in an update: %v", p)
		}
	}()
	w.readClock()
	r.err = cmp.Or(r.fn(tx), tx.Failed())
}

// runInSavepoint runs a request in a transaction that has others already. A failure of the request
// is undone and concerns no other member; failed is a failure of the whole transaction. Each
// member has the time of its own beginning, not of the group's.
func (r *request) runInSavepoint(w *session) (failed error) {
	before := w.savepoint()
	if err := w.run("SAVEPOINT member"); err != nil {
		return err
	}
	r.run(w)
	if r.err != nil {
		return r.rollbackToSavepoint(w, before)
	}
	return w.run("RELEASE member")
}

// rollbackToSavepoint undoes a request that failed in runInSavepoint.
func (r *request) rollbackToSavepoint(w *session, before savepoint) (failed error) {
	w.restore(before)
	if corruptsLog(r.failed) {
		return r.failed
	}
	if err := cmp.Or(w.run("ROLLBACK TO member"), w.run("RELEASE member")); err != nil {
		return cmp.Or(r.failed, err) // the whole transaction is undone, as by a full disk
	}
	return nil
}

// isNoTransaction reports that there was no transaction to roll back: SQLite had done so. Its
// code is SQLITE_ERROR, as there is none of its own.
func isNoTransaction(err error) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code() == 1
}
