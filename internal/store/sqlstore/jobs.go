package sqlstore

import (
	"database/sql"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// maxInlineBody is the size up to which a body is stored in the row of its job.
const maxInlineBody = 8 << 10

// nullable returns NULL for a missing body, which is nil and not the same as an empty one.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// blob scans a value so that NULL becomes nil and an empty value does not, although a driver may
// return nil bytes for it.
type blob []byte

// Scan implements sql.Scanner.
func (b *blob) Scan(value any) error {
	data, ok := value.([]byte)
	if !ok && value != nil {
		return fmt.Errorf("%T is not bytes", value)
	}
	if *b = nil; ok {
		*b = append(make([]byte, 0, len(data)), data...)
	}
	return nil
}

var (
	exists = &Statement{"job_exists",
		"SELECT count(*) FROM jobs AS j WHERE {identities $1}"}

	// LockReady reads its index from the queue hash on, in claim order, so it costs n rows,
	// whatever the backlog. The row of jobs is locked first, as everywhere, and then the row of
	// ready: a job that another transaction has moved since the statement began has none any longer
	// and is passed over.
	LockReady = &Statement{"lock_ready", JobsIn(job.Ready, store.AllBodies) + `
		WHERE s.queue_hash=$1 AND j.contract=$2 AND j.queue=$3
		ORDER BY s.priority DESC, s.order_time, s.seq {limit $4} {skip locked jobs}`}
	// It reads nothing but the index of LockReady, which does not have the job type and the queue.
	readyNumbers = &Statement{"ready_numbers", `SELECT seq FROM ready WHERE queue_hash=$1
		ORDER BY priority DESC, order_time, seq {limit $2}`}
	// The partial index has the jobs without open dependencies by due time.
	lockDue = &Statement{"lock_due", JobsIn(job.Waiting, store.NoBodies) + `
		WHERE s.has_open_deps IS NULL AND s.due_at<=$1
		AND ($3=0 OR NOT j.contract||' '||s.state {text in $4})
		ORDER BY s.due_at {limit $2} {skip locked jobs}`}
	// LockExpired is ExpiredJobs without a condition.
	LockExpired = ExpiredJobs("")

	// NextDue and NextLease each read the first entry of the index of lockDue and LockExpired, if
	// it is not after $1. The second column is 1 in a row that stands for a recorded end, which the
	// statement of a database that has such ends may add.
	NextDue = &Statement{"next_due",
		`SELECT due_at,0 FROM waiting WHERE has_open_deps IS NULL AND due_at<=$1
		ORDER BY due_at LIMIT 1`}
	NextLease = &Statement{"next_lease",
		"SELECT lease_until FROM leases WHERE lease_until<=$1 ORDER BY lease_until LIMIT 1"}
)

// ExpiredJobs returns a select of jobs whose lease has ended at $1, up to $3 of them, with another
// condition on the row s of leases, which ends with AND. $2 is the time of a clock jump, the zero
// time for none. An attempt whose last heartbeat is from before the jump gets one lease more,
// counted from the jump. A later heartbeat has moved lease_until at least as far (decision 0006). A
// lease whose end is recorded does not end otherwise, and is passed over where the statement knows
// that already.
func ExpiredJobs(condition string) *Statement {
	return &Statement{"lock_expired", JobsIn(job.Leased, store.NoBodies) + " WHERE " + condition +
		` s.lease_until<=$1
		AND (s.updated_at>=$2 OR $2+coalesce(j.lease,0)<=$1) AND {run end s}=0
		ORDER BY s.lease_until {limit $3} {skip locked jobs}`}
}

// Exists is documented at the port, as are all methods below.
func (t *Tx) Exists(id job.ID) (bool, error) {
	n, err := collect(t, exists, scanInt, t.s.Identities([]job.ID{id}))
	if err != nil {
		return false, err
	}
	return n[0] > 0, nil
}

// LockReady locks n rows, but returns fewer of them where their bodies out of line are too large
// together. The others are free again when the transaction ends. A claim that takes fewer than it
// asked for does not lose the others: they stay ready.
func (t *Tx) LockReady(jobType, queue string, n int) ([]*job.Job, error) {
	found, err := t.ready(jobType, queue, n)
	if err != nil {
		return nil, err
	}
	t.locations.add(found)
	if found, err = t.limitOutOfLine(store.MaxReadyBytes, found); err != nil {
		return nil, err
	}
	return found, t.loadOutOfLine(store.AllBodies, found)
}

// ready returns the jobs of LockReady without the bodies that are out of line. Where there is a
// cache it reads the numbers of the jobs from the index alone, and the rows of those that the cache
// does not have.
func (t *Tx) ready(jobType, queue string, n int) ([]*job.Job, error) {
	hash := int64(job.QueueHashOf(jobType, queue))
	if t.cache == nil {
		return t.readyRows(hash, jobType, queue, n)
	}
	seqs, err := collect(t, readyNumbers, scanInt, hash, n)
	if err != nil {
		return nil, err
	}
	bySeq, err := t.loadFull(seqs)
	if err != nil {
		return nil, err
	}
	found := make([]*job.Job, len(seqs))
	for i, seq := range seqs {
		j := bySeq[seq]
		if j == nil || j.ID.JobType != jobType || j.Queue != queue { // of the same hash
			return t.readyRows(hash, jobType, queue, n)
		}
		found[i] = j
	}
	return found, nil
}

// readyRows is ready by the rows alone.
func (t *Tx) readyRows(hash int64, jobType, queue string, n int) ([]*job.Job, error) {
	return collect(t, LockReady, newJobScanner(store.AllBodies).scan, hash, jobType, queue, n)
}

func (t *Tx) LockDue(n int, exceptStates []string) ([]*job.Job, error) {
	return t.locked(store.NoBodies, lockDue, Micros(t.Now()), n, len(exceptStates),
		t.s.Texts(exceptStates))
}

// LockExpired looks for recorded ends when it has locked the jobs.
func (t *Tx) LockExpired(clockJump time.Time, n int) ([]*job.Job, error) {
	found, err := t.locked(store.NoBodies, LockExpired, Micros(t.Now()), Micros(clockJump), n)
	if err != nil || len(found) == 0 {
		return found, err
	}
	return found, t.readEnds(seqsOf(found), found)
}

func (t *Tx) NextDue(until time.Time) (d store.Due, err error) {
	due, err := collect(t, NextDue, scanDue, Micros(until))
	if err != nil {
		return d, err
	}
	for _, row := range due {
		if row.ended {
			d.RecordedEnds = true
			continue
		}
		d.Waiting = t.dueTime(row.at)
	}
	leases, err := collect(t, NextLease, scanInt, Micros(until))
	if len(leases) > 0 {
		d.Lease = t.dueTime(leases[0])
	}
	return d, err
}

// dueTime returns when a job is due that is stored; one without a due time is due now.
func (t *Tx) dueTime(us int64) time.Time {
	if at := fromMicros(us); !at.IsZero() {
		return at
	}
	return t.Now()
}

// dueRow is a row of NextDue.
type dueRow struct {
	at    int64
	ended bool
}

func scanDue(rows *sql.Rows) (d dueRow, err error) {
	err = rows.Scan(&d.at, &d.ended)
	return d, err
}

// insert stores jobs with their bodies. Those that are taken have Seq 0 afterwards and none of
// their bodies are stored; see Changes.Existing.
func (t *Tx) insert(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	definitions, states := newJobs(jobs)
	var existing []int
	if err := t.try(func() (err error) {
		existing, err = t.s.InsertJobs(jobs, definitions, states)
		return err
	}); err != nil {
		return err
	}
	if err := t.cacheNew(jobs, definitions, states); err != nil {
		return err
	}
	stored := jobs
	if len(existing) > 0 {
		stored = nil
		for _, j := range jobs {
			if j.Seq != 0 {
				stored = append(stored, j)
			}
		}
	}
	t.locations.add(stored)
	return t.storeOutOfLine(stored)
}

// checkText refuses what one of the databases cannot keep in a text of a job. The owner stands
// in an index, so its length is limited; identities and queues are found by digests (decision
// 0002).
func checkText(j *job.Job) error {
	for _, field := range textFields {
		if !isText(field(j)) {
			return &job.Error{Kind: job.Invalid, Op: "apply", ID: j.ID,
				Msg: "a text is not UTF-8 or holds a NUL character"}
		}
	}
	if len(j.Owner) > store.MaxNameBytes {
		return &job.Error{Kind: job.Invalid, Op: "apply", ID: j.ID, Msg: "the owner is too long"}
	}
	return nil
}

// areValidTexts reports whether texts are short enough for an index entry and can be stored.
func areValidTexts(all ...string) bool {
	for _, s := range all {
		if len(s) > store.MaxNameBytes {
			return false
		}
	}
	return isText(all...)
}

// isText reports whether texts are UTF-8 without a NUL character, which PostgreSQL cannot store.
func isText(all ...string) bool {
	for _, s := range all {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return false
		}
	}
	return true
}

// delete removes jobs with their bodies. The jobs must have been loaded with their OutOfLine,
// which reports whether there is a body to delete.
func (t *Tx) delete(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := t.locate(jobs); err != nil {
		return err
	}
	var outOfLine []int64
	var in [2 * len(tables)][]int64 // by location
	for _, j := range jobs {
		if t.cache != nil {
			t.cache.Remove(j.Seq)
		}
		if p, ok := t.locations[j.Seq]; ok {
			in[p.index()] = append(in[p.index()], j.Seq)
			delete(t.locations, j.Seq)
		}
		if j.OutOfLine != 0 {
			outOfLine = append(outOfLine, j.Seq)
		}
	}
	if len(outOfLine) > 0 {
		if _, err := t.exec(deleteBodies, t.s.Ints(outOfLine)); err != nil {
			return err
		}
	}
	for i, seqs := range in {
		if len(seqs) == 0 {
			continue
		}
		err := t.try(func() error { return t.s.DeleteJobs(tablesOfLocation[i], seqs) })
		if err != nil {
			return err
		}
	}
	return nil
}
