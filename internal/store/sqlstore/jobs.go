package sqlstore

import (
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Bodies above this many bytes are kept in their own table, so that scans of
// the queue stay narrow.
const maxInlineBody = 8 << 10

// stateColumns lists what moves change, in the order of hotValues; seq is the key.
var stateColumns = []Column{{"state", "text"}, {"phase", "int8"}, {"order_time", "int8"},
	{"due_at", "int8"}, {"run_id", "bytea"},
	{"lease_until", "int8"}, {"worker", "text"}, {"runs", "int8"}, {"failures", "int8"},
	{"open_deps", "int8"},
	{"failed_deps", "int8"}, {"updated_at", "int8"}, {"started_at", "int8"},
	{"settled_at", "int8"}, {"held", "int8"},
	{"lost_runs", "int8"}}

// leaseColumns lists what may change while a job stays in its state, in the order of
// appendLease. A database that writes an index anew whenever a column of it is
// named, changed or not, has hardly one to write.
var leaseColumns = []Column{{"lease_until", "int8"}, {"open_deps", "int8"}, {"held", "int8"},
	{"failed_deps", "int8"}, {"updated_at", "int8"}}

// definitionColumns lists what only a rewrite changes, in the order of coldValues.
var definitionColumns = []Column{{"alias", "bytea"}, {"kind", "text"}, {"queue", "text"},
	{"lane", "int8"}, {"owner", "text"}, {"priority", "int8"}, {"lease", "int8"},
	{"run_limit", "int8"}, {"parent", "int8"}, {"trace", "text"}, {"created_at", "int8"},
	{"listed", "int8"},
	{"children", "int8"}, {"size", "int8"}}

var (
	seqColumn = Column{"seq", "int8"}
	identity  = []Column{{"ident", "bytea"}, {"contract", "text"}, {"scope", "text"},
		{"key", "text"}}
	bodyNames = [job.Parts]string{"definition", "payload", "progress", "result", "failure"}
)

// JobColumns are the columns InsertJobs takes, in the order of JobValues.
var JobColumns = slices.Concat(identity, stateColumns, definitionColumns, bodyColumns(),
	[]Column{{"apart", "int8"}})

func bodyColumns() []Column {
	cols := make([]Column, job.Parts)
	for i, n := range bodyNames {
		cols[i] = Column{n, "bytea"}
	}
	return cols
}

// JobValues returns the values of JobColumns. Bodies kept apart are nil there.
func JobValues(j *job.Job) []any {
	ident := j.ID.IdentityHash()
	v := make([]any, 0, len(JobColumns)+1)
	v = append(v, ident[:], j.ID.Contract, j.ID.Scope, j.ID.Key)
	v = appendState(v, j)
	v = appendDefinition(v, j)
	j.OutOfLine = 0
	for p := range job.Parts {
		body := *j.Body(p)
		if len(body) > maxInlineBody {
			j.OutOfLine |= 1 << p
			body = nil
		}
		v = append(v, nullable(body))
	}
	return append(v, int64(j.OutOfLine))
}

func appendState(v []any, j *job.Job) []any {
	var run any
	if !j.Run.IsZero() {
		run = j.Run[:]
	}
	return append(v, string(j.State), int64(j.Phase), Micros(j.OrderTime), Micros(j.DueAt), run,
		Micros(j.LeaseUntil), j.Worker, int64(j.Attempts), int64(j.FailedAttempts),
		int64(j.OpenDeps),
		int64(j.FailedDeps), Micros(j.UpdatedAt), Micros(j.StartedAt), Micros(j.FinishedAt),
		hasOpenDeps(j), int64(j.LostAttempts))
}

func appendLease(v []any, j *job.Job) []any {
	return append(v, Micros(j.LeaseUntil), int64(j.OpenDeps), hasOpenDeps(j), int64(j.FailedDeps),
		Micros(j.UpdatedAt))
}

func hasOpenDeps(j *job.Job) int64 {
	if j.OpenDeps != 0 {
		return 1
	}
	return 0
}

func appendDefinition(v []any, j *job.Job) []any {
	var alias any
	if j.Alias != (job.IdentityHash{}) {
		alias = j.Alias[:]
	}
	return append(v, alias, j.Kind, j.Queue, int64(j.QueueHash()), j.Owner, int64(j.Priority),
		j.Lease.Microseconds(),
		int64(j.MaxAttempts), j.Parent, j.Trace, Micros(j.CreatedAt), searchOrder(j),
		int64(j.Children), j.Size)
}

// searchOrder is the place of a job in the order of a search, 0 where none finds it.
func searchOrder(j *job.Job) int64 {
	if j.Searchable {
		return -Micros(j.CreatedAt)
	}
	return 0
}

// nullable keeps a missing body (nil) apart from an empty one.
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// blob reads a value so that a missing one (NULL, nil) stays apart from an empty
// one, for which a driver may give nil bytes.
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

const (
	coreColumns = "seq,contract,scope,key,state,phase,order_time,due_at,run_id,lease_until,worker,runs,failures,open_deps," +
		"failed_deps,updated_at,started_at,settled_at,alias,kind,queue,owner,priority," +
		"lease,run_limit,parent,trace,created_at,listed,children,size,apart,lost_runs"
	fullColumns = coreColumns + ",definition,payload,progress,result,failure"
)

// scanner reads rows of coreColumns or fullColumns; one serves a whole result.
type scanner struct {
	bodies                                                 job.Part // how many of them follow
	dest                                                   []any
	state                                                  string
	run, alias                                             []byte
	phase, order, due, until, updated, started, settled    int64
	runs, failures, openDeps, failedDeps, priority, lease  int64
	limit, created, searchOrder, children, outOfLine, lost int64
}

func newScanner(bodies job.Part) *scanner { return &scanner{bodies: bodies} }

func (c *scanner) scan(rows *sql.Rows) (*job.Job, error) {
	j := &job.Job{}
	c.dest = append(c.dest[:0], &j.Seq, &j.ID.Contract, &j.ID.Scope, &j.ID.Key, &c.state, &c.phase,
		&c.order, &c.due,
		&c.run, &c.until, &j.Worker, &c.runs, &c.failures, &c.openDeps, &c.failedDeps, &c.updated,
		&c.started,
		&c.settled, &c.alias, &j.Kind, &j.Queue, &j.Owner, &c.priority, &c.lease, &c.limit,
		&j.Parent, &j.Trace, &c.created, &c.searchOrder,
		&c.children, &j.Size, &c.outOfLine, &c.lost)
	for p := range c.bodies {
		c.dest = append(c.dest, (*blob)(j.Body(p)))
	}
	if err := rows.Scan(c.dest...); err != nil {
		return nil, err
	}
	j.State, j.Phase = job.State(c.state), job.Phase(c.phase)
	j.OrderTime, j.DueAt, j.LeaseUntil = fromMicros(c.order), fromMicros(c.due), fromMicros(c.until)
	j.UpdatedAt, j.StartedAt, j.FinishedAt = fromMicros(c.updated), fromMicros(c.started),
		fromMicros(c.settled)
	j.CreatedAt, j.Lease = fromMicros(c.created), time.Duration(c.lease)*time.Microsecond
	j.Attempts, j.FailedAttempts, j.LostAttempts, j.MaxAttempts = int(c.runs), int(c.failures),
		int(c.lost), int(c.limit)
	j.OpenDeps, j.FailedDeps, j.Priority, j.OutOfLine = int(c.openDeps), int(c.failedDeps),
		int(c.priority), uint8(c.outOfLine)
	j.Searchable, j.Children = c.searchOrder != 0, int(c.children)
	if len(c.run) == len(j.Run) {
		j.Run = job.RunID(c.run)
	}
	if len(c.alias) == len(j.Alias) {
		j.Alias = job.IdentityHash(c.alias)
	}
	return j, nil
}

// jobs runs a select of fullColumns and completes the bodies kept apart.
func (t *Tx) jobs(s *Statement, args ...any) ([]*job.Job, error) {
	all, err := collect(t, s, newScanner(job.Parts).scan, args...)
	if err != nil {
		return nil, err
	}
	return all, t.loadOutOfLine(all)
}

// cores runs a select of coreColumns.
func (t *Tx) cores(s *Statement, args ...any) ([]*job.Job, error) {
	return collect(t, s, newScanner(0).scan, args...)
}

var (
	getJobs = &Statement{"get_jobs",
		"SELECT " + fullColumns + " FROM jobs WHERE ident {blob in $1}"}
	getSeqs = &Statement{"get_seqs",
		"SELECT " + fullColumns + " FROM jobs WHERE seq {in $1}"}
	byAlias = &Statement{"get_by_alias",
		"SELECT " + fullColumns + " FROM jobs WHERE alias {blob in $1}"}
	getWithoutBodies = &Statement{"get_briefs",
		"SELECT " + coreColumns + ",definition FROM jobs WHERE seq {in $1}"}
	exists = &Statement{"job_exists",
		"SELECT count(*) FROM jobs WHERE ident {blob in $1}"}

	lockJobs = &Statement{"lock_jobs", "SELECT " + coreColumns +
		" FROM jobs WHERE ident {blob in $1} ORDER BY seq {for update}"}
	lockSeqs = &Statement{"lock_seqs", "SELECT " + coreColumns +
		" FROM jobs WHERE seq {in $1} ORDER BY seq {for update}"}

	// The partial index on phase 1 leads with the lane and is in claim order, so
	// the cost is that of n rows, whatever the backlog.
	lockReady = &Statement{"lock_ready", "SELECT " + fullColumns + ` FROM jobs
		WHERE phase=1 AND lane=$1 AND contract=$2 AND queue=$3
		ORDER BY priority DESC, order_time, seq {limit $4} {skip locked}`}
	lockDue = &Statement{"lock_due", "SELECT " + coreColumns + ` FROM jobs
		WHERE phase=0 AND held=0 AND due_at<=$1 AND ($3=0 OR NOT contract||' '||state {text in $4}) ORDER BY due_at {limit $2} {skip locked}`}
	// $2 is the time of a clock jump, the zero time for none: what was last heard
	// of before it is kept for one lease more, counted from the jump. A later beat
	// has moved lease_until at least as far.
	lockLapsed = &Statement{"lock_lapsed", "SELECT " + coreColumns + ` FROM jobs
		WHERE phase=2 AND lease_until<=$1 AND (updated_at>=$2 OR $2+lease<=$1)
		ORDER BY lease_until {limit $3} {skip locked}`}

	nextDue = &Statement{"next_due",
		"SELECT due_at FROM jobs WHERE phase=0 AND held=0 ORDER BY due_at LIMIT 1"}
	nextLease = &Statement{"next_lease",
		"SELECT lease_until FROM jobs WHERE phase=2 ORDER BY lease_until LIMIT 1"}

	listJobs = &Statement{"list_jobs", "SELECT " + fullColumns + ` FROM jobs
		WHERE seq>$1 AND ($2='' OR contract=$2) AND ($3='' OR queue=$3) AND ($4='' OR owner=$4)
		AND ($5=0 OR state {text in $6}) AND ($7=0 OR phase {in $8})
		ORDER BY seq {limit $9}`}

	// The index on the parent leads with what is asked for and ends with seq.
	listChildren = &Statement{"list_children", "SELECT " + fullColumns + ` FROM jobs
		WHERE parent=$1 AND parent>0 AND seq>$2 AND ($3=0 OR state {text in $4})
		ORDER BY seq {limit $5}`}

	// The index on the owner leads with what is asked for and ends with seq.
	listOwned = &Statement{"list_owned", "SELECT " + fullColumns + ` FROM jobs
		WHERE contract=$1 AND owner=$2 AND owner<>'' AND seq<$3 AND ($4=0 OR state {text in $5})
		ORDER BY seq DESC {limit $6}`}

	updateStates = updateOf("save_jobs", "jobs", slices.Concat(stateColumns, []Column{seqColumn}))
	updateLeases = updateOf("touch_jobs", "jobs", slices.Concat(leaseColumns, []Column{seqColumn}))
	updateJobs   = updateOf("rewrite_jobs", "jobs",
		slices.Concat(stateColumns, definitionColumns, []Column{seqColumn}))
	deleteJobs = &Statement{"delete_jobs", "DELETE FROM jobs WHERE seq {in $1}"}
)

// InsertJobs is run by the session, as it differs how the numbers come: a row
// takes its number as the last value; rows are numbered in their order, but
// stored in that of their identities, so that transactions that insert the same
// jobs wait for each other and never in a circle.
var InsertJobs = &Bulk{
	Name:    "insert_jobs",
	Columns: JobColumns,
	Row: fmt.Sprintf("INSERT INTO jobs (%s,seq) VALUES (%s) ON CONFLICT DO NOTHING",
		columnNames(JobColumns), params(len(JobColumns)+1)),
	set: func(values []string, from string) string {
		return fmt.Sprintf(`WITH u AS MATERIALIZED (SELECT nextval('job_numbers') AS seq,u.* FROM %s)
			INSERT INTO jobs (%s,seq) SELECT %s,seq FROM u ORDER BY u.ident,seq
			ON CONFLICT DO NOTHING RETURNING ident,seq`, from, columnNames(JobColumns), strings.Join(values, ","))
	},
}

func idents(ids []job.ID) []job.IdentityHash {
	all := make([]job.IdentityHash, len(ids))
	for i, id := range ids {
		all[i] = id.IdentityHash()
	}
	return all
}

// Get is documented at the port, as are all verbs below.
func (t *Tx) Get(ids []job.ID) ([]*job.Job, error) {
	return t.jobs(getJobs, t.s.IdentityHashes(idents(ids)))
}

func (t *Tx) GetBySeq(seqs []int64) ([]*job.Job, error) { return t.jobs(getSeqs, t.s.Ints(seqs)) }

func (t *Tx) GetByAlias(aliases []job.IdentityHash) ([]*job.Job, error) {
	return t.jobs(byAlias, t.s.IdentityHashes(aliases))
}

func (t *Tx) GetWithoutBodies(seqs []int64) ([]*job.Job, error) {
	all, err := collect(t, getWithoutBodies, newScanner(job.Definition+1).scan, t.s.Ints(seqs))
	if err != nil {
		return nil, err
	}
	return all, t.loadOutOfLine(all)
}

func (t *Tx) Exists(id job.ID) (bool, error) {
	n, err := collect(t, exists, scanInt, t.s.IdentityHashes([]job.IdentityHash{id.IdentityHash()}))
	return err == nil && n[0] > 0, err
}

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
		return t.jobs(listOwned, f.Contract, f.Owner, before, len(states), t.s.Texts(states), limit)
	}
	if f.Parent != 0 {
		return t.jobs(listChildren, f.Parent, f.After, len(states), t.s.Texts(states), limit)
	}
	return t.jobs(listJobs, f.After, f.Contract, f.Queue, f.Owner, len(states), t.s.Texts(states),
		len(phases), t.s.Ints(phases), limit)
}

func (t *Tx) Lock(ids []job.ID) ([]*job.Job, error) {
	return t.cores(lockJobs, t.s.IdentityHashes(idents(ids)))
}

func (t *Tx) LockBySeq(seqs []int64) ([]*job.Job, error) {
	return t.cores(lockSeqs, t.s.Ints(seqs))
}

func (t *Tx) LockReady(contract, queue string, n int) ([]*job.Job, error) {
	found, err := collect(t, lockReady, newScanner(job.Parts).scan,
		int64(job.QueueHashOf(contract, queue)), contract, queue, n)
	if err != nil {
		return nil, err
	}
	if found, err = t.within(store.MaxReadyBytes, found); err != nil {
		return nil, err
	}
	return found, t.loadOutOfLine(found)
}

func (t *Tx) LockDue(n int, except []string) ([]*job.Job, error) {
	return t.cores(lockDue, Micros(t.Now()), n, len(except), t.s.Texts(except))
}

func (t *Tx) LockExpired(jumped time.Time, n int) ([]*job.Job, error) {
	return t.cores(lockLapsed, Micros(t.Now()), Micros(jumped), n)
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
			if *q.to = fromMicros(at[0]); q.to.IsZero() { // it has no time, so it is due already
				*q.to = t.Now()
			}
		}
	}
	return due, lease, nil
}

func (t *Tx) Insert(jobs []*job.Job) ([]int, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if err := checkText("insert_jobs", jobs); err != nil {
		return nil, err
	}
	var taken []int
	if err := t.try(func() (err error) {
		taken, err = t.s.InsertJobs(jobs)
		return err
	}); err != nil {
		return nil, err
	}
	stored := jobs
	if len(taken) > 0 {
		stored = nil
		for i, j := range jobs {
			if _, is := slices.BinarySearch(taken, i); !is {
				stored = append(stored, j)
			}
		}
	}
	return taken, t.storeOutOfLine(stored)
}

// checkText refuses what one of the databases cannot keep in a text.
func checkText(op string, jobs []*job.Job) error {
	for _, j := range jobs {
		for _, s := range [...]string{j.ID.Contract, j.ID.Scope, j.ID.Key, j.Kind, j.Queue, j.Owner,
			string(j.State), j.Worker, j.Trace} {
			if !isText(s) {
				return &job.Error{Kind: job.Invalid, Op: op, ID: j.ID,
					Msg: "a text is not UTF-8 or holds a NUL character"}
			}
		}
		if len(j.Owner) > store.MaxNameBytes {
			return &job.Error{Kind: job.Invalid, Op: op, ID: j.ID, Msg: "the owner is too long"}
		}
	}
	return nil
}

func areValidTexts(all ...string) bool {
	for _, s := range all {
		if len(s) > store.MaxNameBytes {
			return false
		}
	}
	return isText(all...)
}

func isText(all ...string) bool {
	for _, s := range all {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return false
		}
	}
	return true
}

func (t *Tx) UpdateState(jobs []*job.Job) error { return t.update(updateStates, jobs, appendState) }

func (t *Tx) UpdateLeases(jobs []*job.Job) error {
	return t.update(updateLeases, jobs, appendLease)
}

func (t *Tx) UpdateAll(jobs []*job.Job) error {
	return t.update(updateJobs, jobs, func(v []any, j *job.Job) []any {
		return appendDefinition(appendState(v, j), j)
	})
}

func (t *Tx) update(b *Bulk, jobs []*job.Job, values func([]any, *job.Job) []any) error {
	if err := checkText(b.Name, jobs); err != nil {
		return err
	}
	rows := make([][]any, len(jobs))
	for i, j := range jobs {
		rows[i] = append(values(make([]any, 0, len(b.Columns)), j), j.Seq)
	}
	return t.bulk(b, rows)
}

func (t *Tx) Delete(jobs []*job.Job) error {
	var seqs, apart []int64
	for _, j := range jobs {
		seqs = append(seqs, j.Seq)
		if j.OutOfLine != 0 {
			apart = append(apart, j.Seq)
		}
	}
	if len(apart) > 0 {
		if _, err := t.exec(deleteBodies, t.s.Ints(apart)); err != nil {
			return err
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	_, err := t.exec(deleteJobs, t.s.Ints(seqs))
	return err
}
