package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// renewal moves the watermarks of a store ahead. One goroutine uses it:
//
//	Store.keepWatermarks, every renewInterval while a watermark is in use:
//	    a snapshot begins
//	    each watermark moves to the first row that the snapshot has, at most to the horizon
//	    the horizon moves to the time of an earlier renewal, once what wrote then has ended
//
// The order matters: the horizon that a watermark uses was found before the snapshot began.
type renewal struct {
	watermarks *watermarks
	round      int

	// The next horizon, and the transactions that must end before it is one.
	next    time.Time
	writers []string
}

const (
	renewInterval       = 500 * time.Millisecond
	renewTimeout        = 10 * time.Second
	fullRenewalInterval = 30
)

// tableWriters returns the transactions that have locked the tables of watermarks for a write.
var tableWriters = &sqlstore.Statement{Name: "table_writers", SQL: `SELECT virtualtransaction
	FROM pg_locks WHERE relation IN ('ready'::regclass,'leases'::regclass)
	AND mode='RowExclusiveLock' AND database=(
		SELECT oid FROM pg_database WHERE datname=current_database())`}

// keepWatermarks renews the watermarks for as long as some are in use, until ctx ends.
func (s *Store) keepWatermarks(ctx context.Context) {
	for {
		select {
		case <-s.watermarks.wake:
		case <-ctx.Done():
			return
		}
		r := &renewal{watermarks: s.watermarks} // a time of before may be that of another clock
		for s.watermarks.inUse() {
			_ = s.renewWatermarks(ctx, r) // the watermarks are as right as before
			if !clock.Sleep(ctx, renewInterval) {
				return
			}
		}
	}
}

// renewWatermarks makes one renewal on a connection of the pool.
func (s *Store) renewWatermarks(ctx context.Context, r *renewal) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	slot, err := s.slots.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.slots.release(slot)
	if err := s.connectBreaker.allow(); err != nil {
		return err
	}
	se, err := s.begin(ctx, beginView, 0)
	if err != nil {
		return err
	}
	defer s.releaseConn(se.conn)
	defer se.rollback()
	return r.run(se)
}

// run renews all watermarks in the snapshot of a session.
func (r *renewal) run(se *session) error {
	w := r.watermarks
	w.mu.Lock()
	w.checkClock(se.beganAt)
	horizon, since, tracksLeases := w.horizon, w.leasesSince, w.tracksLeases
	queues := maps.Clone(w.queues)
	w.mu.Unlock()
	if !horizon.IsZero() {
		r.round++
		before := sqlstore.Micros(horizon.Add(-lateAfter - clockStep))
		for queueHash, old := range queues {
			if err := r.renewQueue(se, queueHash, old, before); err != nil {
				return err
			}
		}
		if tracksLeases {
			if err := r.renewLeases(se, since, before); err != nil {
				return err
			}
		}
	}
	return r.moveHorizon(se)
}

// isFull reports whether this renewal reads jobs before the watermarks too.
func (r *renewal) isFull() bool { return r.round%fullRenewalInterval == 0 }

// renewQueue moves the watermarks of a queue. They are given up where they are not needed any
// longer.
func (r *renewal) renewQueue(se *session, queueHash int64, old *queueWatermarks,
	before int64) error {
	start := old.since
	if r.isFull() {
		start = old.noWatermarks()
	}
	heads, took, err := readRows(se, readyHeads, func(rows *sql.Rows) (h head, err error) {
		err = rows.Scan(&h.priority, &h.orderTime)
		return h, err
	}, queueHash, old.high, old.low, old.since, start)
	if err != nil {
		return err
	}
	w := r.watermarks
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.queues[queueHash] != old: // forgotten meanwhile
	case r.isFull() && !w.isSlow(took):
		delete(w.queues, queueHash)
	default:
		w.queues[queueHash] = old.advance(heads, before)
	}
	return nil
}

// renewLeases moves the watermark of leases, or gives it up.
func (r *renewal) renewLeases(se *session, old, before int64) error {
	start := old
	if r.isFull() {
		start = noWatermark
	}
	first, took, err := readRows(se, nextLeaseFrom, scanInt, before, start)
	if err != nil {
		return err
	}
	w := r.watermarks
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.tracksLeases || w.leasesSince != old: // forgotten meanwhile
	case r.isFull() && !w.isSlow(took):
		w.tracksLeases, w.slowLeases, w.leasesSince = false, 0, noWatermark
	default:
		w.leasesSince = slices.Min(append(first, before))
	}
	return nil
}

// moveHorizon makes the time of an earlier renewal the horizon if the transactions that wrote then
// have ended, and notes those of now for the next one.
func (r *renewal) moveHorizon(se *session) error {
	writers, _, err := readRows(se, tableWriters, func(rows *sql.Rows) (tx string, err error) {
		err = rows.Scan(&tx)
		return tx, err
	})
	if err != nil {
		return err
	}
	isWriting := func(tx string) bool { return slices.Contains(writers, tx) }
	if slices.ContainsFunc(r.writers, isWriting) {
		return nil
	}
	w := r.watermarks
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.next.After(se.beganAt) { // else the clock was set back since
		w.horizon = r.next
	}
	r.next, r.writers = se.beganAt, writers
	return nil
}

func scanInt(rows *sql.Rows) (n int64, err error) {
	err = rows.Scan(&n)
	return n, err
}

// readRows reads all rows of a statement. It also returns how long the first row took.
func readRows[T any](se *session, st *sqlstore.Statement, scan func(*sql.Rows) (T, error),
	args ...any) (all []T, took time.Duration, err error) {
	started := time.Now()
	rows, err := se.Query(st, args...)
	took = time.Since(started)
	if err != nil {
		return nil, took, err
	}
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, took, se.Translate(st.Name, err)
		}
		all = append(all, one)
	}
	return all, took, se.Translate(st.Name, rows.Err())
}
