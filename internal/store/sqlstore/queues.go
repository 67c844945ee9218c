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
//	queues    settings: paused, the limit of running jobs; few rows, rarely written
//	counts    jobs in each phase, by queue and slot; written by almost every transaction
//	duties    the leader of each role and the end of its term
//
// Counts must be exact, as limits are decided by them, and must not make transactions on one
// queue wait for each other (decision 0004). The order of locks, queues by hash and slots
// within a queue, is what keeps Apply and CompactCounts from deadlocks.

var (
	setQueue = &Statement{"set_queue",
		`INSERT INTO queues (lane,contract,queue,paused,run_limit) VALUES ($1,$2,$3,$4,$5)
		ON CONFLICT (lane) DO UPDATE SET paused=excluded.paused, run_limit=excluded.run_limit`}
	getQueues = &Statement{"get_queues",
		"SELECT contract,queue,paused,run_limit FROM queues ORDER BY contract,queue"}

	// A queue has a counter for each slot, and its count is their sum: concurrent transactions
	// use different slots and so do not wait for each other. The column lane is the QueueHash.
	countBy = insertInto("count_by", "counts",
		[]Column{{"lane", "int8"}, {"slot", "int8"}, {"contract", "text"}, {"queue", "text"},
			{"waiting", "int8"}, {"delayed", "int8"}, {"ready", "int8"}, {"leased", "int8"}},
		`ON CONFLICT (lane,slot) DO UPDATE SET
		waiting=counts.waiting+excluded.waiting, delayed=counts.delayed+excluded.delayed,
		ready=counts.ready+excluded.ready, leased=counts.leased+excluded.leased`)
	getCounts = &Statement{"get_counts",
		`SELECT contract,queue,sum(waiting),sum(delayed),sum(ready),sum(leased) FROM counts
		WHERE $1='' OR contract=$1 GROUP BY contract,queue`}
	emptyQueues = &Statement{"empty_lanes", `SELECT lane FROM counts GROUP BY lane
		HAVING sum(waiting)=0 AND sum(delayed)=0 AND sum(ready)=0 AND sum(leased)=0 {limit $1}`}
	lockCounts = &Statement{"lock_counts",
		`SELECT lane,slot,waiting,delayed,ready,leased FROM counts
		WHERE lane {in $1} ORDER BY lane,slot {for update}`}
	dropCounts = &Statement{"drop_counts", "DELETE FROM counts WHERE lane {in $1} AND slot {in $2}"}

	// $4 is the time of the transaction: a term that has ended is free for any holder.
	elect = &Statement{"elect", `INSERT INTO duties (name,holder,until) VALUES ($1,$2,$3)
		ON CONFLICT (name) DO UPDATE SET holder=excluded.holder, until=excluded.until
		WHERE duties.holder=excluded.holder OR duties.until<=$4`}
	endTerms = &Statement{"drop_duties", "DELETE FROM duties WHERE holder=$1"}
	finished = &Statement{"settled", "SELECT " + selected(coreColumns) + ` FROM jobs
		WHERE phase=3 AND contract=$1 AND settled_at<$2
		ORDER BY settled_at,seq {limit $3} {skip locked}`}
	children = &Statement{"children", "SELECT " + selected(coreColumns) +
		" FROM jobs WHERE parent {in $1} AND parent>0 {limit $2} {for update}"}
	sumSizes = &Statement{"sum_sizes",
		"SELECT CAST(coalesce(sum(size),0) AS BIGINT) FROM jobs WHERE contract=$1 AND size>0"}
)

// setQueues stores settings in the order of their queues, so that two never deadlock.
func (t *Tx) setQueues(settings []job.QueueSettings) error {
	settings = slices.SortedStableFunc(slices.Values(settings), func(a, b job.QueueSettings) int {
		return cmp.Or(strings.Compare(a.Contract, b.Contract), strings.Compare(a.Queue, b.Queue))
	})
	for _, q := range settings {
		paused := int64(0)
		if q.Paused {
			paused = 1
		}
		if _, err := t.exec(setQueue, int64(job.QueueHashOf(q.Contract, q.Queue)), q.Contract,
			q.Queue, paused, int64(q.MaxRunning)); err != nil {
			return err
		}
	}
	return nil
}

// QueueSettings is documented at the port, as are all exported methods below.
func (t *Tx) QueueSettings() ([]job.QueueSettings, error) {
	return collect(t, getQueues, func(rows *sql.Rows) (q job.QueueSettings, err error) {
		var paused int64
		err = rows.Scan(&q.Contract, &q.Queue, &paused, &q.MaxRunning)
		q.Paused = paused != 0
		return q, err
	})
}

// addCounts writes one row for each queue, in the order in which CompactCounts locks them: so
// the two never deadlock.
func (t *Tx) addCounts(deltas []job.QueueCount) error {
	sums := map[job.QueueHash]job.QueueCount{}
	for _, d := range deltas {
		hash := job.QueueHashOf(d.Contract, d.Queue)
		sums[hash] = d.Plus(sums[hash])
	}
	rows := make([][]any, 0, len(sums))
	for _, hash := range slices.Sorted(maps.Keys(sums)) {
		d := sums[hash]
		rows = append(rows, []any{int64(hash), t.s.Slot(), d.Contract, d.Queue, d.Waiting,
			d.Delayed, d.Ready, d.Leased})
	}
	return t.bulk(countBy, rows)
}

func (t *Tx) Counts(contract string) ([]job.QueueCount, error) {
	return collect(t, getCounts, func(rows *sql.Rows) (c job.QueueCount, err error) {
		err = rows.Scan(&c.Contract, &c.Queue, &c.Waiting, &c.Delayed, &c.Ready, &c.Leased)
		return c, err
	}, contract)
}

// CompactCounts removes the counters of a queue whose sum is zero. It deletes only those it has
// locked, so a counter that another transaction adds meanwhile stays and the sums stay right.
func (t *Tx) CompactCounts(n int) error {
	hashes, err := collect(t, emptyQueues, scanInt, n)
	if err != nil || len(hashes) == 0 {
		return err
	}
	type counter struct{ hash, slot, waiting, delayed, ready, leased int64 }
	locked, err := collect(t, lockCounts, func(rows *sql.Rows) (c counter, err error) {
		err = rows.Scan(&c.hash, &c.slot, &c.waiting, &c.delayed, &c.ready, &c.leased)
		return c, err
	}, t.s.Ints(hashes))
	if err != nil {
		return err
	}
	sums, slots := map[int64]counter{}, map[int64][]int64{}
	for _, c := range locked {
		s := sums[c.hash]
		sums[c.hash] = counter{waiting: s.waiting + c.waiting, delayed: s.delayed + c.delayed,
			ready: s.ready + c.ready, leased: s.leased + c.leased}
		slots[c.hash] = append(slots[c.hash], c.slot)
	}
	for hash, s := range sums {
		if s != (counter{}) {
			continue
		}
		_, err := t.exec(dropCounts, t.s.Ints([]int64{hash}), t.s.Ints(slots[hash]))
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) Elect(role, holder string, until time.Time) (bool, error) {
	n, err := t.exec(elect, role, holder, Micros(until), Micros(t.Now()))
	return n == 1, err
}

func (t *Tx) EndTerms(holder string) error {
	_, err := t.exec(endTerms, holder)
	return err
}

// PruneFinished deletes children in a transaction of their own: a later call, which finds none
// left, deletes their parents.
func (t *Tx) PruneFinished(contract string, before time.Time, bytes int64, n int) (store.Pruned,
	error) {
	old, err := t.jobs(store.NoBodies, finished, contract, Micros(before), n)
	if err != nil || len(old) == 0 {
		return store.Pruned{}, err
	}
	if bytes > 0 {
		old = firstBySize(bytes, old)
	}
	below, err := t.jobs(store.NoBodies, children, t.s.Ints(seqsOf(old)), n)
	if err != nil {
		return store.Pruned{}, err
	}
	if len(below) > 0 {
		return store.Pruned{Children: len(below)}, t.deleteJobRows(below)
	}
	return store.Pruned{Jobs: len(old)}, t.deleteJobRows(old)
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

func (t *Tx) Size(contract string) (int64, error) {
	sum, err := collect(t, sumSizes, scanInt, contract)
	if err != nil {
		return 0, err
	}
	return sum[0], nil
}
