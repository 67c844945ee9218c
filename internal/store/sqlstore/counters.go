package sqlstore

import (
	"database/sql"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The counters of a queue whose jobs are all done are removed, so that a claim under a limit, which
// reads all counters, reads few. How many are done is kept in done_counts then, which nothing but
// CompactCounts writes.
//
// Where old versions of rows stay for as long as a snapshot is open, a transaction finds the
// counter that it adds to by passing over all of them. A session that notices this uses a new slot
// from time to time, so that there are few (decision 0046). The counters of slots that were left
// are folded into one, and so are those that a queue has of a time with more transactions at once.

const (
	slotBits = 16
	// foldAfter is how long after its beginning a slot is left for sure. A counter that is folded
	// while it is in use only makes its transaction wait.
	foldAfter = time.Minute
	// maxCounters is how many counters a queue may have before they are folded, and maxFolds of how
	// many queues at once: transactions that count in one of them wait meanwhile.
	maxCounters = 8
	maxFolds    = 40
)

// NewSlot returns a slot instead of one that has been used for long. It holds the time, in seconds,
// and so is none of the first ones.
func NewSlot(slot int64, now time.Time) int64 {
	return now.Unix()<<slotBits | slot&(1<<slotBits-1)
}

var (
	// A name of a queue that is too long for an index stays in its counters.
	emptyQueues = &Statement{"empty_queues", `SELECT queue_hash FROM counts GROUP BY queue_hash
		HAVING sum(waiting)=0 AND sum(delayed)=0 AND sum(ready)=0 AND sum(leased)=0
		AND sum(dead)=0 AND (sum(done)=0 OR max(length(queue))<=$2) {limit $1}`}
	// Those with the most counters are first.
	queuesToFold = &Statement{"queues_to_fold", `SELECT queue_hash FROM counts GROUP BY queue_hash
		HAVING count(*)>$2 ORDER BY count(*) DESC {limit $1}`}
	// It locks all counters of the queues $1, and those of any queue that left their slot before
	// $2.
	lockCounts = &Statement{"lock_counts",
		`SELECT queue_hash,slot,contract,queue,waiting,delayed,ready,leased,done,dead FROM counts
		WHERE queue_hash {in $1} OR (slot>=65536 AND slot<$2) ORDER BY queue_hash,slot {for update}`}
	deleteCounts = &Statement{"delete_counts",
		"DELETE FROM counts WHERE queue_hash {in $1} AND slot {in $2}"}

	// The queue is first, as it is the key of the set; those of two job types may have one name.
	addDone = insertInto("add_done_counts", "done_counts",
		[]Column{{"queue", Text}, {"contract", Text}, {"done", Integer}},
		"ON CONFLICT (contract,queue) DO UPDATE SET done=done_counts.done+excluded.done")
	deleteDone = &Statement{"delete_done_counts",
		"DELETE FROM done_counts WHERE contract=$1 AND queue=$2 AND done=0"}
)

// counter is one row of counts.
type counter struct {
	hash, slot int64
	job.QueueCount
}

// CompactCounts removes the counters of a queue that has no jobs but those that are done, and folds
// those that were left and those of queues with too many. It deletes only those it has locked, so a
// counter that another transaction adds meanwhile stays and the sums stay right. All are locked by
// one statement, in the order in which Apply does it.
func (t *Tx) CompactCounts(n int) (removed []job.QueueCount, err error) {
	empty, err := collect(t, emptyQueues, scanInt, n, store.MaxNameBytes)
	if err != nil {
		return nil, err
	}
	toFold, err := collect(t, queuesToFold, scanInt, min(n, maxFolds), maxCounters)
	if err != nil {
		return nil, err
	}
	locked, err := collect(t, lockCounts, func(rows *sql.Rows) (c counter, err error) {
		err = rows.Scan(&c.hash, &c.slot, &c.JobType, &c.Queue, &c.Waiting, &c.Delayed, &c.Ready,
			&c.Leased, &c.Done, &c.Dead)
		return c, err
	}, t.s.Ints(append(toFold, empty...)), NewSlot(0, t.Now().Add(-foldAfter)))
	if err != nil {
		return nil, err
	}
	var doneCounts []job.QueueCount
	for len(locked) > 0 {
		n := 1
		for n < len(locked) && locked[n].hash == locked[0].hash {
			n++
		}
		compact, sum := t.foldCounters, sumOf(locked[:n])
		isEmpty := sum == job.QueueCount{Done: sum.Done}
		if isEmpty && slices.Contains(empty, locked[0].hash) {
			compact = t.deleteCounters // it has no jobs meanwhile
			q := job.QueueCount{JobType: locked[0].JobType, Queue: locked[0].Queue}
			removed = append(removed, q)
			if q.Done = sum.Done; q.Done != 0 {
				doneCounts = append(doneCounts, q)
			}
		}
		if err := compact(locked[:n]); err != nil {
			return nil, err
		}
		locked = locked[n:]
	}
	return removed, t.addDoneCounts(doneCounts)
}

// addDoneCounts adds how many jobs of queues are done to the sums beside their counters.
func (t *Tx) addDoneCounts(queues []job.QueueCount) error {
	rows := make([][]any, len(queues))
	for i, q := range queues {
		rows[i] = []any{q.Queue, q.JobType, q.Done}
	}
	if err := t.bulk(addDone, rows); err != nil {
		return err
	}
	for _, q := range queues {
		if q.Done > 0 {
			continue // so there are some
		}
		if _, err := t.exec(deleteDone, q.JobType, q.Queue); err != nil {
			return err
		}
	}
	return t.failed
}

// foldCounters adds counters of a queue to the first of them and removes the others.
func (t *Tx) foldCounters(left []counter) error {
	first, others := left[0], left[1:]
	if len(others) == 0 {
		return nil
	}
	sum := sumOf(others)
	if err := t.bulk(AddCounts, [][]any{{first.hash, first.slot, first.JobType, first.Queue,
		sum.Waiting, sum.Delayed, sum.Ready, sum.Leased, sum.Done, sum.Dead}}); err != nil {
		return err
	}
	return t.deleteCounters(others)
}

// sumOf returns the sum of counters, without the name of their queue.
func sumOf(counters []counter) (sum job.QueueCount) {
	for _, c := range counters {
		sum = c.Plus(sum)
	}
	sum.JobType, sum.Queue = "", ""
	return sum
}

// deleteCounters deletes counters of one queue.
func (t *Tx) deleteCounters(counters []counter) error {
	var slots []int64
	for _, c := range counters {
		slots = append(slots, c.slot)
	}
	_, err := t.exec(deleteCounts, t.s.Ints([]int64{counters[0].hash}), t.s.Ints(slots))
	return err
}
