package sqlite

import (
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// What changes the tables of jobs is a statement for each of them: SQLite has no statement that
// writes two tables, as PostgreSQL has (WITH). There is no other writer, so nothing can come
// between two of them.
//
// Numbers are given here and not by the database. So after an insert the jobs whose numbers are not
// stored are those whose identity was taken.

// insertJobs is sqlstore.InsertJobs with the number of each job as its last value.
var insertJobs = &sqlstore.Bulk{
	Name:  sqlstore.InsertJobs.Name,
	Table: sqlstore.InsertJobs.Table,
	Columns: append(slices.Clone(sqlstore.InsertJobs.Columns),
		sqlstore.Column{Name: "seq", Type: sqlstore.Integer}),
	Key:  len(sqlstore.InsertJobs.Columns),
	Tail: sqlstore.InsertJobs.Tail,
}

// storedNumbers finds which of the jobs of an insert are stored.
var storedNumbers = &sqlstore.Statement{Name: "stored_numbers",
	SQL: "SELECT seq FROM jobs WHERE seq BETWEEN $1 AND $2"}

// InsertJobs is documented at sqlstore.Session. It uses up a number for a job that is taken too.
func (s *session) InsertJobs(jobs []*job.Job,
	definitions, states *sqlstore.BulkValues) (existing []int,
	err error) {
	seqs := make([]any, len(jobs))
	for i, j := range jobs {
		if j.Seq, err = s.nextSeq(len(jobs) - i); err != nil {
			return nil, err
		}
		seqs[i] = j.Seq
	}
	definitions.Add(seqs)
	states.Add(seqs)
	if err := s.observed(insertJobs, func() error {
		return s.bulk(insertJobs, definitions, func(from, to int, changed int64) error {
			if int(changed) == to-from {
				return nil
			}
			stored, err := s.stored(jobs[from].Seq, jobs[to-1].Seq)
			for i := from; i < to; i++ {
				if !stored[jobs[i].Seq] {
					existing = append(existing, i)
					jobs[i].Seq = 0
				}
			}
			return err
		})
	}); err != nil {
		return nil, err
	}
	if err := s.insertStates(jobs, states); err != nil {
		return nil, err
	}
	if found := sqlstore.SearchableOf(jobs); found != nil {
		return existing, s.Bulk(sqlstore.InsertSearchable, found)
	}
	return existing, nil
}

// insertStates inserts the states of the jobs that are stored into the tables of their phases.
func (s *session) insertStates(jobs []*job.Job, states *sqlstore.BulkValues) error {
	var in [job.Done + 1][]int
	for i, j := range jobs {
		if j.Seq != 0 {
			in[j.Phase] = append(in[j.Phase], i)
		}
	}
	for phase, rows := range in {
		some := states
		switch len(rows) {
		case 0:
			continue
		case len(jobs):
		default:
			some = states.Rows(rows)
		}
		if err := s.Bulk(sqlstore.InsertStates(job.Phase(phase)), some); err != nil {
			return err
		}
	}
	return nil
}

// stored returns which job numbers from first to last are in use.
func (s *session) stored(first, last int64) (map[int64]bool, error) {
	rows, err := s.Query(storedNumbers, first, last)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int64]bool{}
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return nil, err
		}
		all[seq] = true
	}
	return all, rows.Err()
}

// ChangePhase inserts the states of jobs into the table of their new phase, with the columns that
// they keep, and deletes their states from the table of the old phase.
func (s *session) ChangePhase(m *sqlstore.PhaseChange,
	set *sqlstore.BulkValues) (moved int64, err error) {
	if err := s.observed(m.Bulk, func() error {
		return s.bulk(m.Bulk, set, func(_, _ int, changed int64) error {
			moved += changed
			return nil
		})
	}); err != nil {
		return 0, err
	}
	if m.Searchable {
		if err := s.Bulk(sqlstore.UpdateSearchable, set.Columns(stateOf(m), m.Key)); err != nil {
			return 0, err
		}
	}
	seqs := make([]int64, set.Len())
	for i := range seqs {
		seqs[i] = set.Value(i, m.Key).(int64)
	}
	return moved, s.deleteFrom(m.From, seqs)
}

// stateOf returns which column of a change of phase has the state.
func stateOf(m *sqlstore.PhaseChange) int {
	return slices.IndexFunc(m.Columns, func(c sqlstore.Column) bool { return c.Name == "state" })
}

// DeleteJobs is documented at sqlstore.Session.
func (s *session) DeleteJobs(others []string, seqs []int64) error {
	for _, table := range others {
		if err := s.deleteFrom(table, seqs); err != nil {
			return err
		}
	}
	return s.deleteFrom("jobs", seqs)
}

// deletes are the statements of deleteFrom by table.
var deletes = func() map[string]*sqlstore.Statement {
	all := map[string]*sqlstore.Statement{}
	tables := []string{"jobs", "searchable"}
	for p := range job.Done + 1 {
		tables = append(tables, sqlstore.PhaseTable(p))
	}
	for _, t := range tables {
		all[t] = &sqlstore.Statement{Name: "delete_" + t,
			SQL: "DELETE FROM " + t + " WHERE seq {in $1}"}
	}
	return all
}()

// deleteFrom deletes the rows of jobs from a table.
func (s *session) deleteFrom(table string, seqs []int64) error {
	_, err := s.Exec(deletes[table], s.Ints(seqs))
	return err
}
