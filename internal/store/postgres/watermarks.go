package postgres

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// A row that was removed stays in its indexes for as long as a snapshot of any session is older. A
// claim looks for the first jobs of a queue exactly where claims remove most, and would pass over
// all of them. So a node remembers watermarks: places before which there is nothing left to find,
// where its statements then begin.
//
//	statements are slow to their first row ──> record ──> Store.keepWatermarks, see renewal
//	a statement <── readyWatermarks, leasesWatermark <── watermarks
//
// No job is hidden by a watermark, and no node needs to know what another one does:
//
//   - A row of ready has the time of its arrival, which the server writes after the transaction has
//     locked the table. A job whose order time was long before that is late: it is in an index of
//     late jobs, where statements look for jobs before a watermark. So a job that arrives without
//     being late has an order time of at least its arrival minus lateAfter.
//   - The horizon is a time such that every transaction that had locked the table by then has
//     ended. A job that no snapshot of now shows arrives after the horizon.
//   - A watermark is before the horizon by lateAfter and clockStep at least, and nothing before it
//     is visible in a snapshot that is younger than the horizon, late jobs aside. A row that is not
//     visible there is removed for good: a claim that has not committed hides nothing from other
//     snapshots.
//
// A lease ends after it began, so leases are never late. A clock of the server that is set back
// makes an arrival before the horizon possible, and ends all watermarks. Every fullRenewalInterval
// renewals the watermarks are compared with all that is before them. This brings back what a
// standby that was promoted has not removed yet, and nothing else could be hidden for longer.
type watermarks struct {
	mu           sync.Mutex
	horizon      time.Time
	queues       map[int64]*queueWatermarks // of queues that are slow to read, by queue hash
	tracksLeases bool                       // whether the leases are slow to read
	leasesSince  int64                      // no lease ends before it
	wake         chan struct{}              // receives from wakeUp
	wakeUp       func()                     // called when queues or leases become slow to read

	slowQueues map[int64]int // how often in a row the claims of a queue were slow
	slowLeases int           // the same of sweeps

	// slow is how long a statement takes to its first row where it passes over much, a duration.
	slow atomic.Int64
}

const (
	lateAfter = 2 * time.Second // in the statements and the index too
	// clockStep is as much as the clock may be set back without being noticed.
	clockStep = time.Second
)

// slowToFirstRow is so long that it needs many rows that were removed, and not so long that claims
// suffer. One statement alone may be slow for another reason.
const slowToFirstRow = 3 * time.Millisecond

// noWatermark is before every time.
const noWatermark = math.MinInt64

func newWatermarks(slow time.Duration) *watermarks {
	w := &watermarks{queues: map[int64]*queueWatermarks{}, slowQueues: map[int64]int{},
		leasesSince: noWatermark, wake: make(chan struct{}, 1)}
	w.wakeUp = func() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	w.slow.Store(int64(slow))
	return w
}

// isSlow reports whether a statement passed over much before its first row.
func (w *watermarks) isSlow(took time.Duration) bool { return int64(took) >= w.slow.Load() }

// readyWatermarks returns the watermarks of a queue for a transaction that began at a time by the
// clock of the server, nil for none.
func (w *watermarks) readyWatermarks(queueHash int64, beganAt time.Time) *queueWatermarks {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkClock(beganAt)
	if q := w.queues[queueHash]; q != nil && q.hasWatermark() {
		return q
	}
	return nil
}

// leasesWatermark returns a time before which no lease ends.
func (w *watermarks) leasesWatermark(beganAt time.Time) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkClock(beganAt)
	return w.leasesSince
}

// checkClock forgets all watermarks if the clock of the server was set back.
func (w *watermarks) checkClock(beganAt time.Time) {
	if !beganAt.Before(w.horizon) {
		return
	}
	clear(w.queues)
	w.slowLeases = 0
	w.tracksLeases, w.leasesSince, w.horizon = false, noWatermark, time.Time{}
}

// record is called after each query, and has watermarks kept for queues that are slow to read again
// and again.
func (w *watermarks) record(st *sqlstore.Statement, args []any, took time.Duration) {
	switch st {
	case sqlstore.LockReady:
		w.recordQueue(args[0].(int64), w.isSlow(took))
	case nextLeaseFrom:
		w.recordLeases(w.isSlow(took))
	}
}

func (w *watermarks) recordQueue(queueHash int64, isSlow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isSlow {
		delete(w.slowQueues, queueHash)
		return
	}
	if len(w.slowQueues) > maxAbandoned {
		clear(w.slowQueues)
	}
	w.slowQueues[queueHash]++
	if w.slowQueues[queueHash] < slowInRow || w.queues[queueHash] != nil {
		return
	}
	delete(w.slowQueues, queueHash)
	w.queues[queueHash] = newQueueWatermarks()
	w.wakeUp()
}

func (w *watermarks) recordLeases(isSlow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isSlow {
		w.slowLeases = 0
		return
	}
	if w.slowLeases++; w.slowLeases == slowInRow {
		w.tracksLeases = true
		w.wakeUp()
	}
}

// inUse reports whether there is a watermark to renew.
func (w *watermarks) inUse() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tracksLeases || len(w.queues) > 0
}

// readyJobs begins a select of ready jobs.
var readyJobs = sqlstore.JobsIn(job.Ready, store.AllBodies)

// The statements of watermarks.
var (
	// lockReadyFrom is sqlstore.LockReady with the watermarks $5 to $7. Range by range, in claim
	// order, it reads the late jobs before the watermark, from an index of these alone, and then
	// the jobs from the watermark on. A range is read only when those before it had too few.
	lockReadyFrom = &sqlstore.Statement{Name: "lock_ready_from", SQL: `SELECT r.*
		FROM unnest($5::int8[],$6::int8[],$7::int8[]) AS f(high,low,since) CROSS JOIN LATERAL (
		SELECT * FROM (` + readyJobs + `
			WHERE s.order_time<s.arrived-2000000 AND s.queue_hash=$1
			AND -s.priority::bigint=-f.high AND f.high=f.low AND s.order_time<f.since AND j.contract=$2 AND j.queue=$3
			ORDER BY s.order_time, s.seq {limit $4} {skip locked jobs}) AS late
		UNION ALL
		SELECT * FROM (` + readyJobs + `
			WHERE s.queue_hash=$1 AND s.priority<=f.high AND s.priority>=f.low
			AND s.order_time>=f.since AND j.contract=$2 AND j.queue=$3
			ORDER BY s.priority DESC, s.order_time, s.seq {limit $4} {skip locked jobs}) AS others
		) AS r {limit $4}`}
	// readyHeads returns the first job of each range of the watermarks $2 to $4 that has one, read
	// from the order times $5 on. It passes over late jobs before the watermark, and locks nothing:
	// a job that a transaction has claimed without a commit is found.
	readyHeads = &sqlstore.Statement{Name: "ready_heads", SQL: `SELECT r.priority,r.order_time
		FROM unnest($2::int8[],$3::int8[],$4::int8[],$5::int8[]) AS f(high,low,since,start)
		CROSS JOIN LATERAL (SELECT priority,order_time FROM ready
			WHERE queue_hash=$1 AND priority<=f.high AND priority>=f.low AND order_time>=f.start
			AND (order_time>=f.since OR order_time>=arrived-2000000)
			ORDER BY priority DESC, order_time, seq LIMIT 1) AS r`}

	// These are sqlstore.LockExpired and NextLease with a watermark: no lease ends before it.
	lockExpiredFrom = sqlstore.ExpiredJobs("s.lease_until>=$4 AND")
	nextLeaseFrom   = &sqlstore.Statement{Name: sqlstore.NextLease.Name,
		SQL: `SELECT lease_until FROM leases
		WHERE lease_until<=$1 AND lease_until>=$2 ORDER BY lease_until LIMIT 1`}
)
