package sqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A select of jobs reads definitions from jobs AS j and states from s, which is the table of a
// phase or all four of them:
//
//	SELECT j.seq, j.contract, …, s.phase, s.state, … FROM jobs AS j JOIN … AS s ON s.seq=j.seq

// phaseColumn is the column phase of statesOf: which table a state is from.
var phaseColumn = intColumn("phase", 0, func(j *job.Job) *job.Phase { return &j.Phase })

var (
	readDefinitions = slices.DeleteFunc(slices.Clone(definitionColumns), isDerived)
	readStates      = append([]jobColumn{phaseColumn},
		slices.DeleteFunc(slices.Clone(stateColumns[1:]), isDerived)...)

	// definitionsRead and statesRead are the columns that are read for each choice of bodies.
	definitionsRead = [...][]jobColumn{
		store.NoBodies:       readDefinitions,
		store.DefinitionOnly: slices.Concat(readDefinitions, bodyColumns[:job.Payload]),
		store.FailureOnly:    readDefinitions,
		store.AllBodies:      slices.Concat(readDefinitions, bodyColumns[:job.Progress]),
		store.OnlyBodies: slices.Concat([]jobColumn{seqColumn, outOfLineColumns[0]},
			bodyColumns[:job.Progress]),
	}
	statesRead = [...][]jobColumn{
		store.NoBodies:       readStates,
		store.DefinitionOnly: readStates,
		store.FailureOnly:    slices.Concat(readStates, bodyColumns[job.Failure:]),
		store.AllBodies:      slices.Concat(readStates, bodyColumns[job.Progress:]),
		store.OnlyBodies: slices.Concat([]jobColumn{outOfLineColumns[1]},
			bodyColumns[job.Progress:]),
	}
)

// definitionList returns the select list of the definitions of jobs.
func definitionList(bodies store.Bodies) string { return "j." + names(",j.", definitionsRead[bodies]) }

// names returns the names of columns with a text between them.
func names(between string, cols []jobColumn) string {
	all := make([]string, len(cols))
	for i := range cols {
		all[i] = cols[i].Name
	}
	return strings.Join(all, between)
}

// jobsOf begins a select of jobs in any phase.
func jobsOf(bodies store.Bodies) string { return jobsFrom("jobs", bodies) }

// jobsFrom is jobsOf for some of the rows of jobs.
func jobsFrom(rows string, bodies store.Bodies) string {
	return "SELECT " + definitionList(bodies) + ",s." + names(",s.", statesRead[bodies]) + " FROM " +
		rows + " AS j JOIN (" + statesOf(statesRead[bodies], "") + ") AS s ON s.seq=j.seq"
}

// JobsIn begins a select of jobs in one phase, which are j and their states s.
func JobsIn(p job.Phase, bodies store.Bodies) string {
	return "SELECT " + definitionList(bodies) + "," + stateNames(p, "s.", statesRead[bodies]) +
		" FROM " + tables[p].name + " AS s JOIN jobs AS j ON j.seq=s.seq"
}

// statesOf returns a select of the number and of columns of the states in all tables, with a
// condition.
func statesOf(cols []jobColumn, condition string) string {
	each := make([]string, len(tables))
	for p := range tables {
		each[p] = "SELECT seq," + stateNames(job.Phase(p), "", cols) + " FROM " + tables[p].name +
			condition
	}
	return strings.Join(each, " UNION ALL ")
}

// stateNames returns the select list of columns of the table of a phase.
func stateNames(p job.Phase, prefix string, cols []jobColumn) string {
	all := make([]string, len(cols))
	for i, c := range cols {
		switch {
		case c.Name == phaseColumn.Name:
			all[i] = fmt.Sprintf("%d AS %s", p, c.Name)
		case c.Name == endColumn.Name && p == job.Leased:
			all[i] = "{run end " + tables[p].name + "}"
		case c.Name == endColumn.Name:
			all[i] = "0"
		default:
			all[i] = prefix + c.Name
		}
	}
	return strings.Join(all, ",")
}

// endColumn says whether the end of the run is recorded. It is read after a lock alone, and by a
// mark, as not every database has recorded ends.
var endColumn = jobColumn{
	Column: Column{"ended", Integer},
	set: func(j *job.Job, value any) error {
		ended, err := asInt(value)
		if ended != 0 {
			j.End = &job.RunEnd{}
		}
		return err
	},
}

// scanner reads the rows of a select of some columns of jobs. One scanner serves a whole result:
// its destinations stay and only the job they fill changes.
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
func newScanner(cols ...[]jobColumn) *scanner {
	s := &scanner{}
	for _, c := range slices.Concat(cols...) {
		s.cells = append(s.cells, cell{s, c.set})
	}
	for i := range s.cells {
		s.dest = append(s.dest, &s.cells[i])
	}
	return s
}

// newJobScanner returns a scanner for rows of definitions and states.
func newJobScanner(bodies store.Bodies) *scanner {
	return newScanner(definitionsRead[bodies], statesRead[bodies])
}

// lockedStates returns the columns of states that are read after a lock.
func lockedStates(bodies store.Bodies) []jobColumn {
	if bodies == store.OnlyBodies {
		return statesRead[bodies]
	}
	return append(slices.Clone(statesRead[bodies]), endColumn)
}

// newStateScanner returns a scanner for rows of numbers and of columns of states, which fills the
// jobs of these numbers. It removes those from the map that it has filled.
func newStateScanner(cols []jobColumn, jobs map[int64]*job.Job) *scanner {
	s := newScanner([]jobColumn{seqColumn}, cols)
	s.cells[0].set = func(_ *job.Job, value any) error {
		seq, err := asInt(value)
		if err != nil {
			return err
		}
		if s.job = jobs[seq]; s.job == nil {
			return fmt.Errorf("the state of job %d is there twice or was not asked for", seq)
		}
		delete(jobs, seq)
		return nil
	}
	return s
}

// scan reads a row as a new job.
func (s *scanner) scan(rows *sql.Rows) (*job.Job, error) {
	j := &job.Job{}
	s.job = j
	return j, rows.Scan(s.dest...)
}
