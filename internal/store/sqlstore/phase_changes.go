package sqlstore

import (
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// PhaseChange moves the states of jobs from the table of one phase to that of another. The number
// is its last column and its key.
type PhaseChange struct {
	*Bulk
	// Searchable says that the jobs are in the table searchable too, whose state is set.
	Searchable bool
}

// stateWrite is how the state of a job is written: where it is, where it goes, and with which of
// the bodies of the state.
type stateWrite struct {
	from location
	to   job.Phase
	// all says that the copies of definitions are written too. A change of phase always writes
	// them.
	all  bool
	body job.Body // noBody for none
}

// noBody stands for no body in a stateWrite.
const noBody = job.Bodies

// stateWriter is the statement of a stateWrite: an update in the table where the job is, or a
// change of phase.
type stateWriter struct {
	columns []jobColumn
	update  *Bulk
	change  *PhaseChange
}

// stateWriters has the statement of every stateWrite, made at the start of the process.
var stateWriters = newStateWriters()

func newStateWriters() map[stateWrite]*stateWriter {
	all := map[stateWrite]*stateWriter{}
	for from := range tables {
		for to := range tables {
			for _, body := range []job.Body{noBody, job.Progress, job.Result, job.Failure} {
				for _, flags := range [][2]bool{{}, {true}, {false, true}, {true, true}} {
					w := stateWrite{location{job.Phase(from), flags[0]}, job.Phase(to), flags[1], body}
					all[w] = w.writer()
				}
			}
		}
	}
	return all
}

func (w stateWrite) writer() *stateWriter {
	changesPhase := w.from.phase != w.to
	fields := store.StateFields
	if w.all || changesPhase {
		fields = store.AllFields
	}
	cols, suffix := columnsIn(fields, stateColumns), ""
	if w.body != noBody {
		cols = append(cols, bodyColumns[w.body], outOfLineColumns[1])
		suffix = "_with_" + bodyColumns[w.body].Name
	}
	cols = append(cols, seqColumn)
	from, to := tables[w.from.phase].name, tables[w.to].name
	if !changesPhase {
		return &stateWriter{cols, updateOf("update_"+from+suffix, from, plain(cols)), nil}
	}
	var carried []Column
	for p := job.Progress; p < job.Bodies; p++ {
		if p != w.body {
			carried = append(carried, bodyColumns[p].Column)
		}
	}
	if w.body == noBody {
		carried = append(carried, outOfLineColumns[1].Column)
	}
	return &stateWriter{cols, nil, &PhaseChange{
		Bulk: &Bulk{Name: "move_to_" + to + suffix, Table: to, Columns: plain(cols),
			Key: len(cols) - 1, From: from, Carried: carried},
		Searchable: w.from.searchable,
	}}
}

// writeStates writes the states of jobs, all of them in one way.
func (t *Tx) writeStates(w stateWrite, jobs []*job.Job) error {
	s := stateWriters[w]
	set := setOfJobsByKey(len(s.columns)-1, s.columns, jobs)
	if err := t.try(func() error {
		if s.change == nil {
			return t.s.Bulk(s.update, set)
		}
		changed, err := t.s.ChangePhase(s.change, set)
		if err != nil {
			return err
		}
		return t.checkAllMoved(s.change.Name, changed, set)
	}); err != nil {
		return err
	}
	for i, j := range jobs {
		if err := t.cacheWritten(j.Seq, w.to, s.columns, set, i); err != nil {
			return err
		}
		t.locations[j.Seq] = location{w.to, w.from.searchable}
	}
	if s.change == nil && w.from.searchable && !w.all {
		return t.bulkOf(updateSearchable, jobs)
	}
	return nil
}

// Searches by state look at rows of their own, which only the jobs of job types that search have.
var (
	searchableColumns = []jobColumn{
		always(searchColumn("listed", 0)),
		priorityColumn,
		textColumn("contract", 0, func(j *job.Job) *string { return &j.ID.JobType }),
		textColumn("queue", 0, func(j *job.Job) *string { return &j.Queue }),
		textColumn("state", 0, func(j *job.Job) *job.State { return &j.State }),
		textColumn("key", 0, func(j *job.Job) *string { return &j.ID.Key }),
		seqColumn,
	}
	// InsertSearchable is for a session that does not insert these rows with the jobs.
	InsertSearchable = insertInto("insert_searchable", "searchable", plain(searchableColumns), "")
	// UpdateSearchable is for a session that does not do it with a change of phase. Its columns are
	// the state and the number.
	UpdateSearchable = updateSearchable.Bulk

	deleteSearchable = &Statement{"delete_searchable", "DELETE FROM searchable WHERE seq {in $1}"}
	updateSearchable = updateJobs("update_searchable", "searchable", searchableColumns[4])
)

// bulkOf runs an update for jobs.
func (t *Tx) bulkOf(u jobUpdate, jobs []*job.Job) error {
	set := setOfJobs(u.Bulk, u.columns, jobs)
	return t.try(func() error { return t.s.Bulk(u.Bulk, set) })
}

// SearchableOf returns the values of InsertSearchable for those of the jobs that are stored and
// searchable, nil for none.
func SearchableOf(jobs []*job.Job) *BulkValues {
	var found []*job.Job
	for _, j := range jobs {
		if j.Searchable && j.Seq != 0 {
			found = append(found, j)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return setOfJobsByKey(len(searchableColumns)-1, searchableColumns, found)
}

// updateSearchable replaces the rows of searches, of jobs of which all fields were written.
func (t *Tx) updateSearchable(jobs []*job.Job) error {
	var was []int64
	for _, j := range jobs {
		if t.locations[j.Seq].searchable {
			was = append(was, j.Seq)
		}
		t.locations[j.Seq] = location{t.locations[j.Seq].phase, j.Searchable}
	}
	if err := t.deleteRows(deleteSearchable, was); err != nil {
		return err
	}
	if set := SearchableOf(jobs); set != nil {
		return t.try(func() error { return t.s.Bulk(InsertSearchable, set) })
	}
	return nil
}
