package sqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A job is one row of the table jobs. jobColumns and bodyColumns are the one list of that
// table's columns. The inserts, updates and selects of jobs, the values they send and the
// fields they fill are all made from it, so that no two of them can disagree:
//
//	jobColumns, bodyColumns: name, type, group, get, set
//	     |                                     |
//	columnsOf(fields) -> INSERT, UPDATE   readable -> SELECT
//	     |                                     |
//	valuesOf(columns, job)                scanner.scan(rows)
//
// A new column touches three places: a field of job.Job, a row of this list, and a migration
// of each database. The conformance suite fills every field of a job and fails where one is
// not stored or not read back.

// The groups of columns that Apply writes, each of which is in one of store.Fields. The insert
// writes every column.
const (
	// leaseGroup is small so that a database that writes an index entry whenever a column of the
	// index is named, changed or not, has hardly one to write.
	leaseGroup      = store.LeaseFields
	stateGroup      = store.StateFields &^ store.LeaseFields
	definitionGroup = store.AllFields &^ store.StateFields
)

// jobColumn is a column of the table jobs.
type jobColumn struct {
	Column
	group store.Fields // 0 for a column that only the insert writes
	// get returns the value to store.
	get func(*job.Job) any
	// set stores a value that was read. It is nil where the column is derived from other
	// fields and serves to select by alone.
	set func(j *job.Job, value any) error
	// text returns the value of a text, which is checked before it is stored; nil otherwise.
	text func(*job.Job) string
}

// seqColumn is the key: updates name it last, and each database numbers new jobs by itself.
var seqColumn = intColumn("seq", 0, func(j *job.Job) *int64 { return &j.Seq })

// outOfLineColumn says which bodies are in the table bodies; every statement that writes a
// body writes it too.
var outOfLineColumn = intColumn("apart", 0, func(j *job.Job) *uint8 { return &j.OutOfLine })

// jobColumns lists the columns of a job but its bodies.
var jobColumns = []jobColumn{
	seqColumn,
	derivedColumn("ident", "bytea", 0, func(j *job.Job) any {
		hash := j.ID.IdentityHash()
		return hash[:]
	}),
	textColumn("contract", 0, func(j *job.Job) *string { return &j.ID.Contract }),
	textColumn("scope", 0, func(j *job.Job) *string { return &j.ID.Scope }),
	textColumn("key", 0, func(j *job.Job) *string { return &j.ID.Key }),

	textColumn("state", stateGroup, func(j *job.Job) *job.State { return &j.State }),
	intColumn("phase", stateGroup, func(j *job.Job) *job.Phase { return &j.Phase }),
	timeColumn("order_time", stateGroup, func(j *job.Job) *time.Time { return &j.OrderTime }),
	timeColumn("due_at", stateGroup, func(j *job.Job) *time.Time { return &j.DueAt }),
	hashColumn("run_id", stateGroup, func(j *job.Job) *job.RunID { return &j.Run }),
	timeColumn("lease_until", leaseGroup, func(j *job.Job) *time.Time { return &j.LeaseUntil }),
	textColumn("worker", stateGroup, func(j *job.Job) *string { return &j.Worker }),
	intColumn("runs", stateGroup, func(j *job.Job) *int { return &j.Attempts }),
	intColumn("failures", stateGroup, func(j *job.Job) *int { return &j.FailedAttempts }),
	intColumn("open_deps", leaseGroup, func(j *job.Job) *int { return &j.OpenDeps }),
	derivedColumn("held", "int8", leaseGroup, hasOpenDeps),
	intColumn("failed_deps", leaseGroup, func(j *job.Job) *int { return &j.FailedDeps }),
	timeColumn("updated_at", leaseGroup, func(j *job.Job) *time.Time { return &j.UpdatedAt }),
	timeColumn("started_at", stateGroup, func(j *job.Job) *time.Time { return &j.StartedAt }),
	timeColumn("settled_at", stateGroup, func(j *job.Job) *time.Time { return &j.FinishedAt }),
	intColumn("lost_runs", stateGroup, func(j *job.Job) *int { return &j.LostAttempts }),

	hashColumn("alias", definitionGroup, func(j *job.Job) *job.IdentityHash { return &j.Alias }),
	textColumn("kind", definitionGroup, func(j *job.Job) *string { return &j.Kind }),
	textColumn("queue", definitionGroup, func(j *job.Job) *string { return &j.Queue }),
	derivedColumn("lane", "int8", definitionGroup,
		func(j *job.Job) any { return int64(j.QueueHash()) }),
	textColumn("owner", definitionGroup, func(j *job.Job) *string { return &j.Owner }),
	intColumn("priority", definitionGroup, func(j *job.Job) *int { return &j.Priority }),
	durationColumn("lease", definitionGroup, func(j *job.Job) *time.Duration { return &j.Lease }),
	intColumn("run_limit", definitionGroup, func(j *job.Job) *int { return &j.MaxAttempts }),
	intColumn("retry_strategy", definitionGroup,
		func(j *job.Job) *job.Strategy { return &j.Retry.Strategy }),
	durationColumn("retry_base", definitionGroup,
		func(j *job.Job) *time.Duration { return &j.Retry.Base }),
	durationColumn("retry_max", definitionGroup,
		func(j *job.Job) *time.Duration { return &j.Retry.Max }),
	intColumn("retry_after", definitionGroup, func(j *job.Job) *int { return &j.Retry.After }),
	intColumn("parent", definitionGroup, func(j *job.Job) *int64 { return &j.Parent }),
	textColumn("trace", definitionGroup, func(j *job.Job) *string { return &j.Trace }),
	timeColumn("created_at", definitionGroup,
		func(j *job.Job) *time.Time { return &j.CreatedAt }),
	searchColumn("listed", definitionGroup),
	intColumn("children", definitionGroup, func(j *job.Job) *int { return &j.Children }),
	intColumn("size", definitionGroup, func(j *job.Job) *int64 { return &j.Size }),

	outOfLineColumn,
}

// bodyColumns lists the columns of the bodies.
var bodyColumns = [job.Parts]jobColumn{
	job.Definition: bodyColumn("definition", job.Definition),
	job.Payload:    bodyColumn("payload", job.Payload),
	job.Progress:   bodyColumn("progress", job.Progress),
	job.Result:     bodyColumn("result", job.Result),
	job.Failure:    bodyColumn("failure", job.Failure),
}

var (
	insertedColumns = slices.Concat(jobColumns[1:], bodyColumns[:]) // all but seq

	coreColumns  = slices.DeleteFunc(slices.Clone(jobColumns), isDerived)
	briefColumns = slices.Concat(coreColumns, bodyColumns[job.Definition:job.Definition+1])
	fullColumns  = slices.Concat(coreColumns, bodyColumns[:])
)

// isDerived reports whether no field is read from a column.
func isDerived(c jobColumn) bool { return c.set == nil }

// columnsOf returns the columns that hold fields.
func columnsOf(fields store.Fields) []jobColumn {
	return slices.DeleteFunc(slices.Clone(jobColumns), func(c jobColumn) bool {
		return c.group&fields == 0
	})
}

// intColumn is a column of a field that is a number.
func intColumn[T ~int | ~int64 | ~uint8](name string, group store.Fields,
	field func(*job.Job) *T) jobColumn {
	return jobColumn{
		Column: Column{name, "int8"},
		group:  group,
		get:    func(j *job.Job) any { return int64(*field(j)) },
		set: func(j *job.Job, value any) error {
			n, err := asInt(value)
			*field(j) = T(n)
			return err
		},
	}
}

// textColumn is a column of a field that is a text.
func textColumn[T ~string](name string, group store.Fields, field func(*job.Job) *T) jobColumn {
	text := func(j *job.Job) string { return string(*field(j)) }
	return jobColumn{
		Column: Column{name, "text"},
		group:  group,
		get:    func(j *job.Job) any { return text(j) },
		set: func(j *job.Job, value any) error {
			s, ok := value.(string)
			if !ok {
				return fmt.Errorf("%T is not a text", value)
			}
			*field(j) = T(s)
			return nil
		},
		text: text,
	}
}

// timeColumn is a column of a field that is a time, see Micros.
func timeColumn(name string, group store.Fields, field func(*job.Job) *time.Time) jobColumn {
	return jobColumn{
		Column: Column{name, "int8"},
		group:  group,
		get:    func(j *job.Job) any { return Micros(*field(j)) },
		set: func(j *job.Job, value any) error {
			us, err := asInt(value)
			*field(j) = fromMicros(us)
			return err
		},
	}
}

// durationColumn is a column of a field that is a duration, in microseconds.
func durationColumn(name string, group store.Fields,
	field func(*job.Job) *time.Duration) jobColumn {
	return jobColumn{
		Column: Column{name, "int8"},
		group:  group,
		get:    func(j *job.Job) any { return field(j).Microseconds() },
		set: func(j *job.Job, value any) error {
			us, err := asInt(value)
			*field(j) = time.Duration(us) * time.Microsecond
			return err
		},
	}
}

// hashColumn is a column of a field of 16 bytes, NULL where they are zero.
func hashColumn[T ~[16]byte](name string, group store.Fields, field func(*job.Job) *T) jobColumn {
	return jobColumn{
		Column: Column{name, "bytea"},
		group:  group,
		get: func(j *job.Job) any {
			if *field(j) == (T{}) {
				return nil
			}
			return (*field(j))[:]
		},
		set: func(j *job.Job, value any) error {
			data, ok := value.([]byte)
			if !ok && value != nil {
				return fmt.Errorf("%T is not bytes", value)
			}
			if len(data) == len(*field(j)) {
				copy((*field(j))[:], data)
			}
			return nil
		},
	}
}

// bodyColumn is the column of a body, NULL where there is none or it is out of line.
func bodyColumn(name string, p job.Part) jobColumn {
	return jobColumn{
		Column: Column{name, "bytea"},
		get: func(j *job.Job) any {
			if j.OutOfLine&(1<<p) != 0 {
				return nil
			}
			return nullable(*j.Body(p))
		},
		set: func(j *job.Job, value any) error { return (*blob)(j.Body(p)).Scan(value) },
	}
}

// derivedColumn is a column that follows from other fields. Statements select by it and no
// field is read from it.
func derivedColumn(name, kind string, group store.Fields, get func(*job.Job) any) jobColumn {
	return jobColumn{Column: Column{name, kind}, group: group, get: get}
}

// hasOpenDeps is stored beside their number so that counting it down changes no index.
func hasOpenDeps(j *job.Job) any {
	if j.OpenDeps != 0 {
		return int64(1)
	}
	return int64(0)
}

// searchColumn holds the position of a job in the order of a search, newest first, and 0
// where no search finds the job.
func searchColumn(name string, group store.Fields) jobColumn {
	return jobColumn{
		Column: Column{name, "int8"},
		group:  group,
		get: func(j *job.Job) any {
			if j.Searchable {
				return -Micros(j.CreatedAt)
			}
			return int64(0)
		},
		set: func(j *job.Job, value any) error {
			position, err := asInt(value)
			j.Searchable = position != 0
			return err
		},
	}
}

// asInt returns the integer that a driver has read; any other type is an error.
func asInt(value any) (int64, error) {
	n, ok := value.(int64)
	if !ok {
		return 0, fmt.Errorf("%T is not an integer", value)
	}
	return n, nil
}

// selected returns the select list of columns.
func selected(cols []jobColumn) string { return columnNames(plain(cols)) }

// plain returns the names and types of columns, as a bulk statement takes them.
func plain(cols []jobColumn) []Column {
	all := make([]Column, len(cols))
	for i := range cols {
		all[i] = cols[i].Column
	}
	return all
}

// valuesOf returns what the columns hold for a job. There is space for one value more.
func valuesOf(cols []jobColumn, j *job.Job) []any {
	values := make([]any, len(cols), len(cols)+1)
	for i := range cols {
		values[i] = cols[i].get(j)
	}
	return values
}

// InsertValues returns the values of InsertJobs.Columns, after it has decided which bodies
// are kept out of line.
func InsertValues(j *job.Job) []any {
	j.OutOfLine = 0
	for p := range job.Parts {
		if len(*j.Body(p)) > maxInlineBody {
			j.OutOfLine |= 1 << p
		}
	}
	return valuesOf(insertedColumns, j)
}

// InsertJobs is run by the session of each database, which numbers the rows in their order.
// PostgreSQL stores them in the order of their identities, so that transactions that insert
// the same jobs wait for each other but never deadlock; SQLite has one writer.
var InsertJobs = insertInto("insert_jobs", "jobs", plain(insertedColumns),
	"ON CONFLICT DO NOTHING")

// jobUpdate is a bulk update of some columns of jobs by their number.
type jobUpdate struct {
	*Bulk
	columns []jobColumn
}

// updateJobs returns an update of the columns, with seq as its key.
func updateJobs(name string, cols ...jobColumn) jobUpdate {
	cols = append(slices.Clone(cols), seqColumn)
	return jobUpdate{Bulk: updateOf(name, "jobs", plain(cols)), columns: cols}
}

// rows returns the values of the update for each job.
func (u jobUpdate) rows(jobs []*job.Job) [][]any {
	rows := make([][]any, len(jobs))
	for i, j := range jobs {
		rows[i] = valuesOf(u.columns, j)
	}
	return rows
}

// scanner reads the rows of a select of some columns of jobs. One scanner serves a whole
// result: its destinations stay and only the job they fill changes.
type scanner struct {
	job   *job.Job
	cells []cell
	dest  []any // a pointer to each cell
}

// cell is the destination of one column. It implements sql.Scanner.
type cell struct {
	of  *scanner
	set func(j *job.Job, value any) error
}

func (c *cell) Scan(value any) error { return c.set(c.of.job, value) }

// newScanner returns a scanner for rows of the columns, none of which may be derived.
func newScanner(cols []jobColumn) *scanner {
	s := &scanner{cells: make([]cell, len(cols)), dest: make([]any, len(cols))}
	for i := range cols {
		s.cells[i] = cell{s, cols[i].set}
		s.dest[i] = &s.cells[i]
	}
	return s
}

// scan reads a row as a new job.
func (s *scanner) scan(rows *sql.Rows) (*job.Job, error) {
	j := &job.Job{}
	return j, s.scanInto(j, rows)
}

// scanInto reads a row into the fields of j that its columns stand for.
func (s *scanner) scanInto(j *job.Job, rows *sql.Rows) error {
	s.job = j
	return rows.Scan(s.dest...)
}

// textFields are the texts of a job.
var textFields = textsOf(jobColumns)

func textsOf(cols []jobColumn) (all []func(*job.Job) string) {
	for _, c := range cols {
		if c.text != nil {
			all = append(all, c.text)
		}
	}
	return all
}
