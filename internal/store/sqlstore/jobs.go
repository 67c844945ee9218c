package sqlstore

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// maxInlineBody is the size up to which a body stands in the row of its job.
const maxInlineBody = 8 << 10

// nullable returns NULL for a missing body, which is nil and not the same as an empty one.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// blob scans a value so that NULL becomes nil and an empty value does not, although a driver
// may return nil bytes for it.
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
		"SELECT count(*) FROM jobs WHERE ident {blob in $1}"}

	// The partial index on phase 1 leads with the lane and is in claim order, so
	// the cost is that of n rows, whatever the backlog.
	lockReady = &Statement{"lock_ready", "SELECT " + selected(fullColumns) + ` FROM jobs
		WHERE phase=1 AND lane=$1 AND contract=$2 AND queue=$3
		ORDER BY priority DESC, order_time, seq {limit $4} {skip locked}`}
	// The partial index on phase 0 has the jobs without open dependencies by due time.
	lockDue = &Statement{"lock_due", "SELECT " + selected(coreColumns) + ` FROM jobs
		WHERE phase=0 AND held=0 AND due_at<=$1 AND ($3=0 OR NOT contract||' '||state {text in $4})
		ORDER BY due_at {limit $2} {skip locked}`}
	// $2 is the time of a clock jump, the zero time for none. An attempt whose last
	// heartbeat is from before the jump gets one lease more, counted from the jump. A later
	// heartbeat has moved lease_until at least as far (decision 0006).
	lockExpired = &Statement{"lock_lapsed", "SELECT " + selected(coreColumns) + ` FROM jobs
		WHERE phase=2 AND lease_until<=$1 AND (updated_at>=$2 OR $2+lease<=$1)
		ORDER BY lease_until {limit $3} {skip locked}`}

	// Each reads the first entry of the index of lockDue and lockExpired.
	nextDue = &Statement{"next_due",
		"SELECT due_at FROM jobs WHERE phase=0 AND held=0 ORDER BY due_at LIMIT 1"}
	nextLease = &Statement{"next_lease",
		"SELECT lease_until FROM jobs WHERE phase=2 ORDER BY lease_until LIMIT 1"}

	// No index leads with all that is asked for here, so a page costs what it passes over.
	listJobs = &Statement{"list_jobs", "SELECT " + selected(fullColumns) + ` FROM jobs
		WHERE seq>$1 AND ($2='' OR contract=$2) AND ($3='' OR queue=$3) AND ($4='' OR owner=$4)
		AND ($5=0 OR state {text in $6}) AND ($7=0 OR phase {in $8})
		ORDER BY seq {limit $9}`}

	// The index on the parent ends with seq, so a page costs no more than its rows.
	listChildren = &Statement{"list_children", "SELECT " + selected(fullColumns) + ` FROM jobs
		WHERE parent=$1 AND parent>0 AND seq>$2 AND ($3=0 OR state {text in $4})
		ORDER BY seq {limit $5}`}

	// The index on the contract and owner ends with seq, so a page costs no more than its rows.
	listOwned = &Statement{"list_owned", "SELECT " + selected(fullColumns) + ` FROM jobs
		WHERE contract=$1 AND owner=$2 AND owner<>'' AND seq<$3 AND ($4=0 OR state {text in $5})
		ORDER BY seq DESC {limit $6}`}

	// Updates find their rows by number alone: the caller has locked them.
	updateStates = updateJobs("save_jobs", columnsOf(store.StateFields)...)
	updateLeases = updateJobs("touch_jobs", columnsOf(store.LeaseFields)...)
	updateAll    = updateJobs("rewrite_jobs", columnsOf(store.AllFields)...)
	deleteJobs   = &Statement{"delete_jobs", "DELETE FROM jobs WHERE seq {in $1}"}
)

// Exists is documented at the port, as are all methods below.
func (t *Tx) Exists(id job.ID) (bool, error) {
	n, err := collect(t, exists, scanInt, t.s.IdentityHashes([]job.IdentityHash{id.IdentityHash()}))
	if err != nil {
		return false, err
	}
	return n[0] > 0, nil
}

// List chooses the index that leads with what the filter asks for.
func (t *Tx) List(f store.Filter) ([]*job.Job, error) {
	states, phases := make([]string, len(f.States)), make([]int64, len(f.Phases))
	for i, s := range f.States {
		states[i] = string(s)
	}
	for i, p := range f.Phases {
		phases[i] = int64(p)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = math.MaxInt
	}
	if f.NewestFirst {
		before := f.Before
		if before <= 0 {
			before = math.MaxInt64
		}
		return t.jobs(store.AllBodies, listOwned, f.Contract, f.Owner, before, len(states),
			t.s.Texts(states), limit)
	}
	if f.Parent != 0 {
		return t.jobs(store.AllBodies, listChildren, f.Parent, f.After, len(states),
			t.s.Texts(states), limit)
	}
	return t.jobs(store.AllBodies, listJobs, f.After, f.Contract, f.Queue, f.Owner, len(states),
		t.s.Texts(states), len(phases), t.s.Ints(phases), limit)
}

// LockReady locks n rows, but returns fewer of them where their bodies out of line are too
// large together. The others are free again when the transaction ends. A claim that takes fewer
// than it asked for does not lose the others: they stay ready.
func (t *Tx) LockReady(contract, queue string, n int) ([]*job.Job, error) {
	found, err := collect(t, lockReady, newScanner(fullColumns).scan,
		int64(job.QueueHashOf(contract, queue)), contract, queue, n)
	if err != nil {
		return nil, err
	}
	if found, err = t.limitOutOfLine(store.MaxReadyBytes, found); err != nil {
		return nil, err
	}
	return found, t.loadOutOfLine(store.AllBodies, found)
}

func (t *Tx) LockDue(n int, except []string) ([]*job.Job, error) {
	return t.jobs(store.NoBodies, lockDue, Micros(t.Now()), n, len(except), t.s.Texts(except))
}

func (t *Tx) LockExpired(jumped time.Time, n int) ([]*job.Job, error) {
	return t.jobs(store.NoBodies, lockExpired, Micros(t.Now()), Micros(jumped), n)
}

func (t *Tx) NextDue() (due, lease time.Time, err error) {
	for _, q := range []struct {
		s  *Statement
		to *time.Time
	}{{nextDue, &due}, {nextLease, &lease}} {
		at, err := collect(t, q.s, scanInt)
		if err != nil {
			return due, lease, err
		}
		if len(at) > 0 {
			*q.to = fromMicros(at[0])
			if q.to.IsZero() { // the job has no due time, so it is due now
				*q.to = t.Now()
			}
		}
	}
	return due, lease, nil
}

// insert stores jobs with their bodies. Those that are taken have Seq 0 afterwards and none of
// their bodies are stored; see Changes.Taken.
func (t *Tx) insert(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	var taken []int
	if err := t.try(func() (err error) {
		taken, err = t.s.InsertJobs(jobs)
		return err
	}); err != nil {
		return err
	}
	stored := jobs
	if len(taken) > 0 {
		stored = nil
		for _, j := range jobs {
			if j.Seq != 0 {
				stored = append(stored, j)
			}
		}
	}
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
// which says whether there is a body to delete.
func (t *Tx) delete(jobs []*job.Job) error {
	var seqs, outOfLine []int64
	for _, j := range jobs {
		seqs = append(seqs, j.Seq)
		if j.OutOfLine != 0 {
			outOfLine = append(outOfLine, j.Seq)
		}
	}
	if len(outOfLine) > 0 {
		if _, err := t.exec(deleteBodies, t.s.Ints(outOfLine)); err != nil {
			return err
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	_, err := t.exec(deleteJobs, t.s.Ints(seqs))
	return err
}
