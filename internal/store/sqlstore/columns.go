package sqlstore

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A job is a row of the table jobs, which has its definitions, and a row of the table of its phase,
// which has its state. definitionColumns, stateColumns and bodyColumns are the one list of their
// columns. The inserts, updates, moves and selects of jobs, the values they send and the fields
// they fill are all made from it, so that no two of them can disagree:
//
//	definitionColumns, stateColumns, bodyColumns: name, type, group, get, set
//	     |                                     |
//	columnsIn -> INSERT, UPDATE, phase    definitionsRead, statesRead -> SELECT
//	     |                                     |
//	setOfJobs(columns, jobs)              scanner.scan(rows)
//
// The tables of the phases have the same columns, see tables. A number that is 0 and a time that is
// not set are NULL, which costs nothing.
//
// For storage alone a new column is three places: a field of job.Job, a row of this list and a
// migration of each database. What submits it, changes it or shows it comes on top, see doc.go. The
// conformance suite fills every field of a job and fails where one is not stored or not read back.

// The groups of columns that Apply writes, each of which is in one of store.Fields. The insert
// writes every column.
const (
	// leaseGroup is small so that a database that writes an index entry whenever a column of the
	// index is named, changed or not, has hardly one to write.
	leaseGroup      = store.LeaseFields
	stateGroup      = store.StateFields &^ store.LeaseFields
	definitionGroup = store.AllFields &^ store.StateFields
)

// jobColumn is a column of a job.
type jobColumn struct {
	Column
	isTime bool
	group  store.Fields // 0 for a column that only the insert and statements of bodies write
	// get returns the value to store.
	get func(*job.Job) any
	// set stores a value that was read. It is nil where the column is derived from other fields and
	// serves to select by alone.
	set func(j *job.Job, value any) error
	// same reports that get would return the same for two jobs. It may be nil: then nothing is
	// known.
	same func(a, b *job.Job) bool
	// text returns the value of a text, which is checked before it is stored; nil otherwise.
	text func(*job.Job) string
}

// seqColumn is the key of all tables of jobs: updates name it last, and each database numbers new
// jobs by itself.
var seqColumn = intColumn("seq", 0, func(j *job.Job) *int64 { return &j.Seq })

// definitionColumns lists the columns of the table jobs but the bodies.
var definitionColumns = []jobColumn{
	seqColumn,
	derivedColumn("identity", Bytes, 0, func(j *job.Job) any {
		hash := j.ID.IdentityHash()
		return hash[:]
	}, nil),
	textColumn("contract", 0, func(j *job.Job) *string { return &j.ID.JobType }),
	textColumn("scope", 0, func(j *job.Job) *string { return &j.ID.Scope }),
	textColumn("key", 0, func(j *job.Job) *string { return &j.ID.Key }),
	hashColumn("alias", definitionGroup, func(j *job.Job) *job.IdentityHash { return &j.Alias }),
	textColumn("kind", definitionGroup, func(j *job.Job) *string { return &j.Kind }),
	textColumn("queue", definitionGroup, func(j *job.Job) *string { return &j.Queue }),
	textColumn("owner", definitionGroup, func(j *job.Job) *string { return &j.Owner }),
	priorityColumn,
	orderTimeColumn,
	durationColumn("lease", definitionGroup, func(j *job.Job) *time.Duration { return &j.Lease }),
	intColumn("max_attempts", definitionGroup, func(j *job.Job) *int { return &j.MaxAttempts }),
	intColumn("retry_strategy", definitionGroup,
		func(j *job.Job) *job.Strategy { return &j.Retry.Strategy }),
	durationColumn("retry_base", definitionGroup,
		func(j *job.Job) *time.Duration { return &j.Retry.Base }),
	durationColumn("retry_max", definitionGroup,
		func(j *job.Job) *time.Duration { return &j.Retry.Max }),
	intColumn("failed_before", definitionGroup,
		func(j *job.Job) *int { return &j.Retry.FailedBefore }),
	intColumn("parent", definitionGroup, func(j *job.Job) *int64 { return &j.Parent }),
	textColumn("trace", definitionGroup, func(j *job.Job) *string { return &j.Trace }),
	textColumn("callback", definitionGroup, func(j *job.Job) *string { return &j.Callback }),
	timeColumn("created_at", definitionGroup,
		func(j *job.Job) *time.Time { return &j.CreatedAt }),
	searchColumn("listed", definitionGroup),
	intColumn("children", definitionGroup, func(j *job.Job) *int { return &j.Children }),
	intColumn("size", definitionGroup, func(j *job.Job) *int64 { return &j.Size }),
	outOfLineColumns[0],
}

// These are never NULL: claims and searches are in their order.
var (
	priorityColumn = always(intColumn("priority", definitionGroup,
		func(j *job.Job) *int { return &j.Priority }))
	orderTimeColumn = always(timeColumn("order_time", definitionGroup,
		func(j *job.Job) *time.Time { return &j.OrderTime }))
)

// stateColumns lists the columns of each table of a phase but the bodies.
var stateColumns = []jobColumn{
	seqColumn,
	textColumn("state", stateGroup, func(j *job.Job) *job.State { return &j.State }),
	always(timeColumn("due_at", stateGroup, func(j *job.Job) *time.Time { return &j.DueAt })),
	hashColumn("run_id", stateGroup, func(j *job.Job) *job.RunID { return &j.Run }),
	alwaysIn(job.Leased, timeColumn("lease_until", leaseGroup,
		func(j *job.Job) *time.Time { return &j.LeaseUntil })),
	textColumn("worker", stateGroup, func(j *job.Job) *string { return &j.Worker }),
	intColumn("attempts", stateGroup, func(j *job.Job) *int { return &j.Attempts }),
	intColumn("failed_attempts", stateGroup, func(j *job.Job) *int { return &j.FailedAttempts }),
	intColumn("lost_attempts", stateGroup, func(j *job.Job) *int { return &j.LostAttempts }),
	intColumn("open_deps", leaseGroup, func(j *job.Job) *int { return &j.OpenDeps }),
	derivedColumn("has_open_deps", Integer, leaseGroup, hasOpenDeps,
		func(a, b *job.Job) bool { return (a.OpenDeps != 0) == (b.OpenDeps != 0) }),
	intColumn("failed_deps", leaseGroup, func(j *job.Job) *int { return &j.FailedDeps }),
	timeColumn("updated_at", leaseGroup, func(j *job.Job) *time.Time { return &j.UpdatedAt }),
	timeColumn("started_at", stateGroup, func(j *job.Job) *time.Time { return &j.StartedAt }),
	alwaysIn(job.Done, timeColumn("finished_at", stateGroup,
		func(j *job.Job) *time.Time { return &j.FinishedAt })),

	// Copies for the indexes of one phase, NULL in the others.
	copyIn(job.Ready, derivedColumn("queue_hash", Integer, definitionGroup,
		func(j *job.Job) any { return int64(j.QueueHash()) }, func(a, b *job.Job) bool {
			return a.Queue == b.Queue && a.ID.JobType == b.ID.JobType
		})),
	copyIn(job.Ready, priorityColumn),
	copyIn(job.Ready, orderTimeColumn),
	copyIn(job.Done, textColumn("contract", definitionGroup,
		func(j *job.Job) *string { return &j.ID.JobType })),
	outOfLineColumns[1],
}

// The bodies in the row of the definitions, and in that of the state.
const (
	definitionBodies = 1<<job.Definition | 1<<job.Payload
	stateBodies      = 1<<job.Progress | 1<<job.Result | 1<<job.Failure
)

// bodyColumns lists the columns of the bodies.
var bodyColumns = [job.Bodies]jobColumn{
	job.Definition: bodyColumn("definition", job.Definition),
	job.Payload:    bodyColumn("payload", job.Payload),
	job.Progress:   bodyColumn("progress", job.Progress),
	job.Result:     bodyColumn("result", job.Result),
	job.Failure:    bodyColumn("failure", job.Failure),
}

// outOfLineColumns say which bodies of a row are in the table bodies instead: those of the
// definitions and those of the state. Every statement that writes a body writes it too.
var outOfLineColumns = [2]jobColumn{bodySetColumn("out_of_line", definitionBodies),
	bodySetColumn("out_of_line", stateBodies)}

// isInDefinition reports whether a body is in the row of the definitions.
func isInDefinition(p job.Body) bool { return 1<<p&definitionBodies != 0 }

// The columns that an insert of jobs writes: all but the number.
var (
	insertedDefinitions = slices.Concat(definitionColumns[1:], bodyColumns[:job.Progress])
	insertedStates      = slices.Concat(stateColumns[1:], bodyColumns[job.Progress:])
)

// phaseTable is the table of the jobs of a phase.
type phaseTable struct {
	name   string
	insert *Bulk
}

// tables has the table of each phase. PhaseTable returns their names to the sessions.
var tables = [...]phaseTable{
	job.Waiting: newPhaseTable("waiting"),
	job.Ready:   newPhaseTable("ready"),
	job.Leased:  newPhaseTable("leases"),
	job.Done:    newPhaseTable("finished"),
}

func newPhaseTable(name string) phaseTable {
	return phaseTable{name, insertInto("insert_"+name, name,
		append(plain(insertedStates), seqColumn.Column), "")}
}

// PhaseTable returns the name of the table of the jobs of a phase.
func PhaseTable(p job.Phase) string { return tables[p].name }

// InsertStates returns the insert of the states of jobs of one phase. The number is its last
// column; the others are the columns of the set of states that InsertJobs gets.
func InsertStates(p job.Phase) *Bulk { return tables[p].insert }

// columnsIn returns those of the columns that hold fields.
func columnsIn(fields store.Fields, cols []jobColumn) []jobColumn {
	return slices.DeleteFunc(slices.Clone(cols), func(c jobColumn) bool {
		return c.group&fields == 0
	})
}

// isDerived reports whether no field is read from a column.
func isDerived(c jobColumn) bool { return c.set == nil }

// plain returns the names and types of columns, as a bulk statement takes them.
func plain(cols []jobColumn) []Column {
	all := make([]Column, len(cols))
	for i := range cols {
		all[i] = cols[i].Column
	}
	return all
}

// newJobs returns the values of InsertJobs.Columns and of InsertStates for jobs, after it has
// decided which bodies are kept out of line.
func newJobs(jobs []*job.Job) (definitions, states *BulkValues) {
	for _, j := range jobs {
		j.OutOfLine = 0
		for p := range job.Bodies {
			if len(*j.Body(p)) > maxInlineBody {
				j.OutOfLine |= 1 << p
			}
		}
	}
	return setOfJobsByKey(noKey, insertedDefinitions, jobs),
		setOfJobsByKey(noKey, insertedStates, jobs)
}

// InsertJobs is run by the session of each database, which numbers the rows in their order.
// PostgreSQL stores them in the order of their identities, so that transactions that insert the
// same jobs wait for each other but never deadlock; SQLite has one writer.
var InsertJobs = insertInto("insert_jobs", "jobs", plain(insertedDefinitions), "ON CONFLICT DO NOTHING")

// jobUpdate is a bulk update of some columns of jobs by their number.
type jobUpdate struct {
	*Bulk
	columns []jobColumn
}

// updateJobs returns an update of columns of a table, with seq as its key.
func updateJobs(name, table string, cols ...jobColumn) jobUpdate {
	cols = append(slices.Clone(cols), seqColumn)
	return jobUpdate{Bulk: updateOf(name, table, plain(cols)), columns: cols}
}

// textFields are the texts of a job.
var textFields = textsOf(slices.Concat(definitionColumns, stateColumns))

func textsOf(cols []jobColumn) (all []func(*job.Job) string) {
	for _, c := range cols {
		if c.text != nil {
			all = append(all, c.text)
		}
	}
	return all
}
