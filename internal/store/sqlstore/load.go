package sqlstore

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A job is found by the hash of its identity (identity), by its number (seq) or by its alias: the
// texts of an identity can be longer than an index entry. Load has a statement for each of these
// keys, each choice of bodies, with and without a lock:
//
//	Selector ─▶ load ─▶ loads[load] ───────────────▶ rows ─▶ scanner ─▶ jobs ─▶ loadOutOfLine
//	                 └▶ lockDefinitions[load] ─▶ getStates ┘
//
// The row in jobs is the lock of a job: a transaction that changes the job holds it. Rows are
// locked by number, so that no two transactions wait for each other in a circle. A change of phase
// writes the row of the state alone, so a statement that had to wait for the lock would not notice
// it: its snapshot is older than that change. So the states are read by a second statement, after
// the lock.
//
// Who waits for a worker that is about to record the end of a run keeps a connection meanwhile, and
// there are few of these. So a lock has a short timeout, after which the session runs the update
// again later, but for Selector.NoLockTimeout: of those many may wait for each other at a time.

// load is what differs between the statements of Load.
type load struct {
	key    loadKey
	bodies store.Bodies
	lock   bool
}

// loadKey is the column that finds jobs.
type loadKey string

const (
	byID    loadKey = "identity"
	bySeq   loadKey = "seq"
	byAlias loadKey = "alias"
)

// condition returns what a row j of jobs meets if it has one of the keys in $1.
func (k loadKey) condition() string {
	switch k {
	case byID:
		return "{identities $1}"
	case bySeq:
		return "j.seq {in $1}"
	}
	return "j.alias {blob in $1}"
}

// loadNames are the names of the statements that the engine uses. The others have names made of
// their parts.
var loadNames = map[load]string{
	{byID, store.AllBodies, false}:       "get_jobs",
	{byID, store.NoBodies, true}:         "lock_jobs",
	{bySeq, store.AllBodies, false}:      "get_by_seq",
	{bySeq, store.DefinitionOnly, false}: "get_definitions",
	{bySeq, store.FailureOnly, false}:    "get_listed",
	{bySeq, store.OnlyBodies, false}:     "get_only_bodies",
	{bySeq, store.NoBodies, true}:        "lock_by_seq",
	{byAlias, store.AllBodies, false}:    "get_by_alias",
	{byAlias, store.NoBodies, true}:      "lock_by_alias",
}

var (
	loads           = loadStatements(false, jobsOf, "")
	lockDefinitions = loadStatements(true, func(bodies store.Bodies) string {
		return selectDefinitions(bodies) + "{short timeout}"
	}, " ORDER BY j.seq {for update}")
	getStates = stateStatements()

	lockWithoutTimeout = lockWithoutBodies("lock_waiting_by_seq", bySeq, "{for update}")
	lockSkipLocked     = lockWithoutBodies("lock_free_by_seq", bySeq, "{skip locked}")

	lockForLease     = lockWithoutBodies("lock_for_lease_by_seq", bySeq, "{for lease update}")
	lockForLeaseByID = lockWithoutBodies("lock_for_lease", byID, "{for lease update}")
)

// lockWithoutBodies makes a lock of another kind, without bodies and without a short timeout.
func lockWithoutBodies(name string, key loadKey, lock string) *Statement {
	return &Statement{name, selectDefinitions(store.NoBodies) + " WHERE " + key.condition() +
		" ORDER BY j.seq " + lock}
}

func selectDefinitions(bodies store.Bodies) string {
	return "SELECT " + definitionList(bodies) + " FROM jobs AS j"
}

// loadStatements makes all variants at the start of the process: 3 keys and 5 choices of bodies.
func loadStatements(lock bool, begin func(store.Bodies) string, end string) map[load]*Statement {
	all := map[load]*Statement{}
	for _, key := range []loadKey{byID, bySeq, byAlias} {
		for bodies := range store.OnlyBodies + 1 {
			l := load{key, bodies, lock}
			all[l] = &Statement{l.name(), begin(bodies) + " WHERE " + key.condition() + end}
		}
	}
	return all
}

// stateStatements makes the reads of states after a lock for each choice of bodies.
func stateStatements() (all [store.OnlyBodies + 1]*Statement) {
	for bodies := range all {
		all[bodies] = &Statement{"get_states",
			statesOf(lockedStates(store.Bodies(bodies)), " WHERE seq {in $1}")}
	}
	return all
}

// name returns the name of a variant, such as lock_definition_by_seq, which is its metric label.
func (l load) name() string {
	if name := loadNames[l]; name != "" {
		return name
	}
	verb := "get"
	if l.lock {
		verb = "lock"
	}
	bodies := [...]string{store.NoBodies: "bare", store.DefinitionOnly: "definition",
		store.FailureOnly: "listed",
		store.AllBodies:   "full", store.OnlyBodies: "bodies"}[l.bodies]
	return verb + "_" + bodies + "_by_" + string(l.key)
}

// Load is documented at the port. A selector without keys selects no job and runs no statement.
func (t *Tx) Load(s store.Selector) ([]*job.Job, error) {
	if s.Lock && t.isView {
		return nil, &job.Error{Kind: job.Internal, Op: "load", Msg: "a view locks no jobs"}
	}
	l := load{bodies: s.Bodies, lock: s.Lock}
	var keys any
	switch {
	case s.RecordedEnds > 0:
		return t.loadEnded(s)
	case len(s.IDs) > 0:
		l.key, keys = byID, t.s.Identities(s.IDs)
		if s.LeaseOnly {
			return t.lockJobs(store.NoBodies, lockForLeaseByID, keys)
		}
	case len(s.Seqs) > 0:
		return t.loadBySeq(l, s)
	case len(s.Aliases) > 0:
		l.key, keys = byAlias, t.s.IdentityHashes(s.Aliases)
	default:
		return nil, t.failed
	}
	return t.loadRows(l, keys)
}

// loadRows is Load by rows alone.
func (t *Tx) loadRows(l load, keys any) ([]*job.Job, error) {
	if l.lock {
		return t.lockJobs(l.bodies, lockDefinitions[l], keys)
	}
	return t.jobs(l.bodies, loads[l], keys)
}

// lockJobs runs a select that locks the definitions of jobs, and then reads their states.
func (t *Tx) lockJobs(bodies store.Bodies, s *Statement, args ...any) ([]*job.Job, error) {
	all, err := collect(t, s, newScanner(definitionsRead[bodies]).scan, args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	seqs, bySeq := make([]int64, len(all)), make(map[int64]*job.Job, len(all))
	for i, j := range all {
		seqs[i], bySeq[j.Seq] = j.Seq, j
	}
	states := newStateScanner(lockedStates(bodies), bySeq)
	if _, err := collect(t, getStates[bodies], func(rows *sql.Rows) (struct{}, error) {
		return struct{}{}, rows.Scan(states.dest...)
	}, t.s.Ints(seqs)); err != nil {
		return nil, err
	}
	if len(bySeq) > 0 {
		return nil, t.defect("load", fmt.Sprintf("%d jobs have no state", len(bySeq)))
	}
	if bodies != store.OnlyBodies {
		t.locations.add(all)
	}
	if err := t.readEnds(endedOf(all), all); err != nil {
		return nil, err
	}
	return all, t.loadOutOfLine(bodies, all)
}

// loadBySeq is Load by number. It reads the rows of the jobs that the cache does not have.
func (t *Tx) loadBySeq(l load, s store.Selector) ([]*job.Job, error) {
	l.key = bySeq
	found, missing := t.cached(s.Seqs, l.bodies)
	if len(missing) > 0 {
		rows, err := t.rowsBySeq(l, s, t.s.Ints(missing))
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	if l.lock {
		if l.bodies != store.OnlyBodies {
			t.locations.add(found)
		}
		slices.SortFunc(found, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	return found, t.failed
}

// rowsBySeq is loadRows with the kinds of locks that only jobs by their number have.
func (t *Tx) rowsBySeq(l load, s store.Selector, seqs any) ([]*job.Job, error) {
	switch {
	case s.SkipLocked:
		return t.lockJobs(store.NoBodies, lockSkipLocked, seqs)
	case s.NoLockTimeout:
		return t.lockJobs(store.NoBodies, lockWithoutTimeout, seqs)
	case s.LeaseOnly:
		return t.lockJobs(store.NoBodies, lockForLease, seqs)
	}
	return t.loadRows(l, seqs)
}

// loadEnded is Load of jobs whose run has a recorded end.
func (t *Tx) loadEnded(s store.Selector) (found []*job.Job, err error) {
	err = t.try(func() error {
		found, err = t.s.ListRunEnds(s.After, s.RecordedEnds)
		return err
	})
	return found, err
}

// endedOf returns the numbers of the jobs whose run has a recorded end. Most have none.
func endedOf(jobs []*job.Job) (ended []int64) {
	for _, j := range jobs {
		if j.End != nil {
			ended = append(ended, j.Seq)
		}
	}
	return ended
}

// readEnds gives jobs that are locked their recorded ends. seqs are the numbers of those that may
// have one.
func (t *Tx) readEnds(seqs []int64, jobs []*job.Job) error {
	if len(seqs) == 0 {
		return t.failed
	}
	return t.try(func() error {
		found, err := t.s.RunEnds(seqs)
		ends := make(map[job.RunID]*job.RunEnd, len(found))
		for i := range found {
			ends[found[i].Run] = &found[i]
		}
		for _, j := range jobs {
			j.End = ends[j.Run]
		}
		return err
	})
}

// deleteEnds removes the recorded ends of runs.
func (t *Tx) deleteEnds(runs []job.RunID) error {
	if len(runs) == 0 {
		return t.failed
	}
	return t.try(func() error { return t.s.DeleteRunEnds(runs) })
}

// cached returns those of the jobs that the cache has, each once, and the numbers of the others.
func (t *Tx) cached(seqs []int64, bodies store.Bodies) (found []*job.Job, missing []int64) {
	if t.cache == nil || t.failed != nil {
		return nil, seqs
	}
	seqs = slices.Clone(seqs)
	slices.Sort(seqs)
	for _, seq := range slices.Compact(seqs) {
		if j := t.cachedJob(seq, bodies); j != nil {
			found = append(found, j)
		} else {
			missing = append(missing, seq)
		}
	}
	return found, missing
}

// loadFull returns jobs by number, with the bodies that are in their rows, and keeps those that it
// reads in the cache.
func (t *Tx) loadFull(seqs []int64) (map[int64]*job.Job, error) {
	found, missing := t.cached(seqs, store.AllBodies)
	if len(missing) > 0 {
		rows, err := collect(t, loads[load{bySeq, store.AllBodies, false}],
			newJobScanner(store.AllBodies).scan, t.s.Ints(missing))
		if err != nil {
			return nil, err
		}
		t.cacheRead(rows)
		found = append(found, rows...)
	}
	all := make(map[int64]*job.Job, len(found))
	for _, j := range found {
		all[j.Seq] = j
	}
	return all, t.failed
}

// locked runs a select of jobs that locks them and loads those of the bodies that are out of line.
func (t *Tx) locked(bodies store.Bodies, s *Statement, args ...any) ([]*job.Job, error) {
	all, err := t.jobs(bodies, s, args...)
	t.locations.add(all)
	return all, err
}

// jobs runs a select of jobs and loads those of the bodies that are out of line.
func (t *Tx) jobs(bodies store.Bodies, s *Statement, args ...any) ([]*job.Job, error) {
	all, err := collect(t, s, newJobScanner(bodies).scan, args...)
	if err != nil {
		return nil, err
	}
	return all, t.loadOutOfLine(bodies, all)
}
