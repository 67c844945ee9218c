package sqlstore

import (
	"bytes"

	"github.com/millrace/millrace/internal/job"
)

// BulkValues has the values of a bulk statement's columns for several rows. In most sets few
// columns differ from row to row. A value that all rows have in common is in the set once: it is
// made, sent and bound once (decision 0008).
type BulkValues struct {
	rows    int
	columns []values
}

// values has the values of one column: one for each row or, if there are none, one for all.
type values struct {
	each []any
	one  any
}

// Len returns the number of rows.
func (s *BulkValues) Len() int { return s.rows }

// IsCommon reports whether all rows have one value in a column. The key of a statement is never
// common.
func (s *BulkValues) IsCommon(column int) bool { return s.columns[column].each == nil }

// Value returns the value of a row in a column.
func (s *BulkValues) Value(row, column int) any {
	v := &s.columns[column]
	if v.each == nil {
		return v.one
	}
	return v.each[row]
}

// Add adds a column, with a value for each row.
func (s *BulkValues) Add(each []any) { s.columns = append(s.columns, values{each: each}) }

// Rows returns the set of some of the rows.
func (s *BulkValues) Rows(rows []int) *BulkValues {
	some := &BulkValues{rows: len(rows), columns: make([]values, len(s.columns), len(s.columns)+1)}
	for c, v := range s.columns {
		if some.columns[c].one = v.one; v.each == nil {
			continue
		}
		some.columns[c].each = make([]any, len(rows))
		for i, row := range rows {
			some.columns[c].each[i] = v.each[row]
		}
	}
	return some
}

// Columns returns the set of some of the columns.
func (s *BulkValues) Columns(columns ...int) *BulkValues {
	some := &BulkValues{rows: s.rows, columns: make([]values, len(columns))}
	for i, c := range columns {
		some.columns[i] = s.columns[c]
	}
	return some
}

// setOfRows returns the set of rows of b. There is at least one.
func setOfRows(b *Bulk, rows [][]any) *BulkValues {
	s := &BulkValues{rows: len(rows), columns: make([]values, len(b.Columns))}
	for c := range s.columns {
		v := &s.columns[c]
		if c != b.Key && sameInAll(rows, c) {
			v.one = rows[0][c]
			continue
		}
		v.each = make([]any, len(rows))
		for i, row := range rows {
			v.each[i] = row[c]
		}
	}
	return s
}

// sameInAll reports whether column c has one value in all rows; NULL and an empty body differ.
func sameInAll(rows [][]any, c int) bool {
	first := rows[0][c]
	raw, isBytes := first.([]byte)
	for _, row := range rows[1:] {
		other, otherBytes := row[c].([]byte)
		if isBytes != otherBytes || (isBytes && !bytes.Equal(raw, other)) ||
			(!isBytes && row[c] != first) {
			return false
		}
	}
	return true
}

// setOfJobs returns what the columns of b hold for each job. There is at least one job.
func setOfJobs(b *Bulk, cols []jobColumn, jobs []*job.Job) *BulkValues {
	return setOfJobsByKey(b.Key, cols, jobs)
}

// noKey is for a set without a key.
const noKey = -1

// setOfJobsByKey returns what columns hold for each job. That of the key has a value for each of
// them.
func setOfJobsByKey(key int, cols []jobColumn, jobs []*job.Job) *BulkValues {
	s := &BulkValues{rows: len(jobs), columns: make([]values, len(cols), len(cols)+1)}
	for c := range cols {
		get, v := cols[c].get, &s.columns[c]
		if c != key && cols[c].isCommon(jobs) {
			v.one = get(jobs[0])
			continue
		}
		v.each = make([]any, len(jobs))
		for i, j := range jobs {
			v.each[i] = get(j)
		}
	}
	return s
}

// isCommon reports that all jobs hold the same in a column.
func (c *jobColumn) isCommon(jobs []*job.Job) bool {
	if c.same == nil {
		return false
	}
	for i := 1; i < len(jobs); i++ {
		if !c.same(jobs[i-1], jobs[i]) {
			return false
		}
	}
	return true
}

// setFields sets the fields of a job to the values that a row has in columns, as a read would: only
// those that are common to all rows, or the others.
func (s *BulkValues) setFields(j *job.Job, cols []jobColumn, row int, common bool) error {
	for c := range cols {
		if cols[c].set == nil || s.IsCommon(c) != common {
			continue
		}
		if err := cols[c].set(j, s.Value(row, c)); err != nil {
			return err
		}
	}
	return nil
}
