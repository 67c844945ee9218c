package sqlstore

import (
	"cmp"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// What belongs to queues and to the node as a whole:
//
//	queues       settings: paused, the limit of running jobs; few rows, rarely written
//	counts       jobs in each phase, by queue and slot; written by almost every transaction
//	done_counts  jobs that are done, of queues whose counters were removed since
//	leaders      the leader of each role and the end of its term
//
// Counts must be exact, as limits are decided by them, and must not make transactions on one queue
// wait for each other (decision 0004). The order of locks, queues by hash and slots within a queue,
// is what keeps Apply and CompactCounts from deadlocks.

var (
	setQueue = &Statement{"set_queue",
		`INSERT INTO queues (queue_hash,contract,queue,paused,run_limit,rate,rate_period,
		live_run_limit,live_rate,live_rate_period) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)
		ON CONFLICT (queue_hash) DO UPDATE SET paused=excluded.paused, run_limit=excluded.run_limit,
		rate=excluded.rate, rate_period=excluded.rate_period,
		live_run_limit=excluded.live_run_limit, live_rate=excluded.live_rate,
		live_rate_period=excluded.live_rate_period`}
	getQueues = &Statement{"get_queues", `SELECT contract,queue,paused,run_limit,rate,rate_period,
		live_run_limit,live_rate,live_rate_period FROM queues ORDER BY contract,queue`}

	// AddCounts adds to counters. A queue has one for each slot, and its count is their sum:
	// concurrent transactions use different slots and so do not wait for each other. The column
	// queue_hash is the QueueHash.
	AddCounts = insertInto("add_counts", "counts",
		[]Column{{"queue_hash", Integer}, {"slot", Integer}, {"contract", Text}, {"queue", Text},
			{"waiting", Integer}, {"delayed", Integer}, {"ready", Integer}, {"leased", Integer},
			{"done", Integer}, {"dead", Integer}},
		`ON CONFLICT (queue_hash,slot) DO UPDATE SET
		waiting=counts.waiting+excluded.waiting, delayed=counts.delayed+excluded.delayed,
		ready=counts.ready+excluded.ready, leased=counts.leased+excluded.leased,
		done=counts.done+excluded.done, dead=counts.dead+excluded.dead`)
	getCounts = &Statement{"get_counts",
		`SELECT contract,queue,sum(waiting),sum(delayed),sum(ready),sum(leased),0,sum(dead)
		FROM counts
		WHERE $1='' OR contract=$1 GROUP BY contract,queue`}
	getAllCounts = &Statement{"get_all_counts",
		`SELECT contract,queue,sum(waiting),sum(delayed),sum(ready),sum(leased),sum(done),sum(dead)
		FROM (SELECT contract,queue,waiting,delayed,ready,leased,done,dead FROM counts
			UNION ALL SELECT contract,queue,0,0,0,0,done,0 FROM done_counts) AS c
		WHERE $1='' OR contract=$1 GROUP BY contract,queue`}
	sumCounts = &Statement{"sum_counts",
		`SELECT contract,'',sum(waiting),sum(delayed),sum(ready),sum(leased),0,sum(dead)
		FROM counts WHERE $1='' OR contract=$1 GROUP BY contract`}
	sumAllCounts = &Statement{"sum_all_counts",
		`SELECT contract,'',sum(waiting),sum(delayed),sum(ready),sum(leased),sum(done),sum(dead)
		FROM (SELECT contract,waiting,delayed,ready,leased,done,dead FROM counts
			UNION ALL SELECT contract,0,0,0,0,done,0 FROM done_counts) AS c
		WHERE $1='' OR contract=$1 GROUP BY contract`}
	getQueueCount = &Statement{"get_queue_count",
		`SELECT min(contract),min(queue),sum(waiting),sum(delayed),sum(ready),sum(leased),0,sum(dead)
		FROM counts WHERE contract=$1 AND queue=$2 AND queue_hash=$3 HAVING count(*)>0`}
	getQueueCountWithDone = &Statement{"get_whole_queue_count",
		`SELECT min(contract),min(queue),sum(waiting),sum(delayed),sum(ready),sum(leased),sum(done),
		sum(dead) FROM (SELECT contract,queue,waiting,delayed,ready,leased,done,dead FROM counts
			WHERE contract=$1 AND queue=$2 AND queue_hash=$3
			UNION ALL SELECT contract,queue,0,0,0,0,done,0 FROM done_counts
			WHERE contract=$1 AND queue=$2) AS c
		HAVING count(*)>0`}
	readyQueues = &Statement{"ready_queues",
		"SELECT queue_hash FROM counts WHERE queue_hash {in $1} GROUP BY queue_hash HAVING sum(ready)>0"}
	// readySince goes from each priority of a queue to the next lower one, and reads the first job
	// of each.
	readySince = &Statement{"ready_since", `WITH RECURSIVE p (queue_hash,priority) AS (
		SELECT queue_hash,(SELECT max(r.priority) FROM ready AS r WHERE r.queue_hash=q.queue_hash)
		FROM (SELECT DISTINCT queue_hash FROM counts WHERE queue_hash {in $1}) AS q
		UNION ALL SELECT queue_hash,(SELECT max(r.priority) FROM ready AS r
			WHERE r.queue_hash=p.queue_hash AND r.priority<p.priority)
		FROM p WHERE priority IS NOT NULL)
		SELECT queue_hash,(SELECT coalesce(r.updated_at,r.order_time) FROM ready AS r
			WHERE r.queue_hash=p.queue_hash AND r.priority=p.priority
			ORDER BY r.order_time,r.seq LIMIT 1)
		FROM p WHERE priority IS NOT NULL`}
	// $4 is the time of the transaction: a term that has ended is free for any node.
	elect = &Statement{"elect", `INSERT INTO leaders (role,node,term_end) VALUES ($1,$2,$3)
		ON CONFLICT (role) DO UPDATE SET node=excluded.node, term_end=excluded.term_end
		WHERE leaders.node=excluded.node OR leaders.term_end<=$4`}
	endTerms = &Statement{"end_terms", "DELETE FROM leaders WHERE node=$1"}
	finished = &Statement{"finished", JobsIn(job.Done, store.NoBodies) + `
		WHERE s.contract=$1 AND s.finished_at<$2
		ORDER BY s.finished_at,s.seq {limit $3} {skip locked jobs}`}
	children = &Statement{"children", selectDefinitions(store.NoBodies) +
		" WHERE j.parent {in $1} AND j.parent>0 {limit $2} {for update}"}
	sumSizes = &Statement{"sum_sizes",
		"SELECT CAST(coalesce(sum(size),0) AS BIGINT) FROM jobs WHERE contract=$1 AND size>0"}
)

// setQueues stores settings in the order of their queues, so that two never deadlock.
func (t *Tx) setQueues(settings []job.QueueSettings) error {
	settings = slices.SortedStableFunc(slices.Values(settings), func(a, b job.QueueSettings) int {
		return cmp.Or(strings.Compare(a.JobType, b.JobType), strings.Compare(a.Queue, b.Queue))
	})
	for _, q := range settings {
		paused := int64(0)
		if q.Paused {
			paused = 1
		}
		var limit, rate, period sql.NullInt64
		if l := q.Live.MaxRunning; l != nil {
			limit = sql.NullInt64{Int64: int64(*l), Valid: true}
		}
		if r := q.Live.Rate; r != nil {
			rate = sql.NullInt64{Int64: int64(r.Starts), Valid: true}
			period = sql.NullInt64{Int64: r.Period.Microseconds(), Valid: true}
		}
		if _, err := t.exec(setQueue, int64(job.QueueHashOf(q.JobType, q.Queue)), q.JobType,
			q.Queue, paused, int64(q.MaxRunning), int64(q.Rate.Starts),
			q.Rate.Period.Microseconds(), limit, rate, period); err != nil {
			return err
		}
	}
	return nil
}

// QueueSettings is documented at the port, as are all exported methods below.
func (t *Tx) QueueSettings() ([]job.QueueSettings, error) {
	return collect(t, getQueues, func(rows *sql.Rows) (q job.QueueSettings, err error) {
		var paused, period int64
		var limit, rate, livePeriod sql.NullInt64
		err = rows.Scan(&q.JobType, &q.Queue, &paused, &q.MaxRunning, &q.Rate.Starts, &period,
			&limit, &rate, &livePeriod)
		q.Paused, q.Rate.Period = paused != 0, micros(period)
		if limit.Valid {
			n := int(limit.Int64)
			q.Live.MaxRunning = &n
		}
		if rate.Valid {
			q.Live.Rate = &job.Rate{Starts: int(rate.Int64), Period: micros(livePeriod.Int64)}
		}
		return q, err
	})
}

// micros returns a duration of whole microseconds.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// addCounts writes one row for each queue, in the order in which CompactCounts locks them: so
// the two never deadlock.
func (t *Tx) addCounts(deltas []job.QueueCount) error {
	sums := map[job.QueueHash]job.QueueCount{}
	for _, d := range deltas {
		hash := job.QueueHashOf(d.JobType, d.Queue)
		sums[hash] = d.Plus(sums[hash])
	}
	rows := make([][]any, 0, len(sums))
	for _, hash := range slices.Sorted(maps.Keys(sums)) {
		d := sums[hash]
		rows = append(rows, []any{int64(hash), t.s.Slot(int64(hash)), d.JobType, d.Queue,
			d.Waiting, d.Delayed, d.Ready, d.Leased, d.Done, d.Dead})
	}
	return t.bulk(AddCounts, rows)
}

func (t *Tx) Counts(s store.QueueSelector) ([]job.QueueCount, error) {
	counts, all, args := getCounts, getAllCounts, []any{s.JobType}
	switch {
	case s.Queue != "":
		counts, all = getQueueCount, getQueueCountWithDone
		args = append(args, s.Queue, int64(job.QueueHashOf(s.JobType, s.Queue)))
	case s.Sums:
		counts, all = sumCounts, sumAllCounts
	}
	if s.WithDone {
		counts = all
	}
	return collect(t, counts, func(rows *sql.Rows) (c job.QueueCount, err error) {
		err = rows.Scan(&c.JobType, &c.Queue, &c.Waiting, &c.Delayed, &c.Ready, &c.Leased,
			&c.Done, &c.Dead)
		return c, err
	}, args...)
}

func (t *Tx) ReadyQueues(s store.ReadySelector) ([]store.ReadyQueue, error) {
	if len(s.Queues) == 0 {
		return nil, t.failed
	}
	hashes := hashesOf(s.Queues)
	if !s.WithSince {
		return collect(t, readyQueues, func(rows *sql.Rows) (q store.ReadyQueue, err error) {
			err = rows.Scan(&q.Queue)
			return q, err
		}, t.s.Ints(hashes))
	}
	heads, err := collect(t, readySince, func(rows *sql.Rows) (q store.ReadyQueue, err error) {
		var since int64
		err = rows.Scan(&q.Queue, &since)
		q.Since = fromMicros(since)
		return q, err
	}, t.s.Ints(hashes))
	slices.SortFunc(heads, func(a, b store.ReadyQueue) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), a.Since.Compare(b.Since))
	})
	isSame := func(a, b store.ReadyQueue) bool { return a.Queue == b.Queue }
	return slices.CompactFunc(heads, isSame), err
}

func (t *Tx) Elect(role, node string, until time.Time) (bool, error) {
	if role == store.NoRole {
		_, err := t.exec(endTerms, node)
		return false, err
	}
	n, err := t.exec(elect, role, node, Micros(until), Micros(t.Now()))
	return n == 1, err
}

// PruneFinished deletes children in a transaction of their own: a later call, which finds none
// left, deletes their parents.
func (t *Tx) PruneFinished(jobType string, before time.Time, bytes int64, n int) (store.Pruned,
	error) {
	old, err := t.locked(store.NoBodies, finished, jobType, Micros(before), n)
	if err != nil || len(old) == 0 {
		return store.Pruned{}, err
	}
	if bytes > 0 {
		old = firstBySize(bytes, old)
	}
	below, err := t.lockJobs(store.NoBodies, children, t.s.Ints(seqsOf(old)), n)
	if err != nil {
		return store.Pruned{}, err
	}
	if len(below) > 0 {
		return store.Pruned{Children: len(below), Removed: below}, t.deleteJobRows(below)
	}
	return store.Pruned{Jobs: len(old), Removed: old}, t.deleteJobRows(old)
}

// firstBySize returns the first jobs whose sizes add up to bytes.
func firstBySize(bytes int64, jobs []*job.Job) []*job.Job {
	for i, j := range jobs {
		if bytes -= j.Size; bytes <= 0 {
			return jobs[:i+1]
		}
	}
	return jobs
}

func seqsOf(jobs []*job.Job) []int64 {
	seqs := make([]int64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.Seq
	}
	return seqs
}

// deleteJobRows removes jobs with their events, dependencies and bodies.
func (t *Tx) deleteJobRows(jobs []*job.Job) error {
	seqs := seqsOf(jobs)
	return t.Apply(store.Changes{Delete: jobs, DeleteEvents: seqs, DeleteEdges: seqs})
}

func (t *Tx) Size(jobType string) (int64, error) {
	sum, err := collect(t, sumSizes, scanInt, jobType)
	if err != nil {
		return 0, err
	}
	return sum[0], nil
}

// hashesOf returns hashes as they are stored.
func hashesOf(queues []job.QueueHash) []int64 {
	hashes := make([]int64, len(queues))
	for i, q := range queues {
		hashes[i] = int64(q)
	}
	return hashes
}
