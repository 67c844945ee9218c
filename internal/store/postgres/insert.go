package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// stateColumns are the columns of the set of states that an insert gets.
var stateColumns = func() []sqlstore.Column {
	all := sqlstore.InsertStates(job.Ready).Columns
	return all[:len(all)-1] // the last is the number
}()

// identityColumn is where a row of InsertJobs has the identity of a job.
var identityColumn = slices.IndexFunc(sqlstore.InsertJobs.Columns,
	func(c sqlstore.Column) bool { return c.Name == "identity" })

// insertParameters returns the statement that inserts jobs, and its arguments: those of the
// definitions, those of the states and, if there is more than one, the phases.
func insertParameters(b *sqlstore.Bulk, jobs []*job.Job,
	definitions, states *sqlstore.BulkValues) (text string,
	args []any) {
	key := textKey{of: b}
	args, key.same = arguments(nil, b.Columns, definitions)
	args, key.sameStates = arguments(args, stateColumns, states)
	phases := make([]int64, len(jobs))
	for i, j := range jobs {
		phases[i] = int64(j.Phase)
		key.phases |= 1 << j.Phase
		key.searchable = key.searchable || j.Searchable
	}
	if !isOne(key.phases) {
		args = append(args, phases)
	}
	return textOf(key, func() string { return insertText(b, key) }), args
}

// isOne reports whether one bit is set.
func isOne(bits uint8) bool { return bits&(bits-1) == 0 }

// insertText returns the statement that inserts jobs, their states and the rows of searches:
//
//	u        the rows, numbered in their order
//	stored   the jobs, in the order of their identities: so two transactions with the same
//	         jobs meet in the same order and cannot deadlock. Those that conflict are not in it
//	in_…     the states of a phase
//
// Where nothing may conflict the other inserts need not look at what was stored.
func insertText(b *sqlstore.Bulk, key textKey) string {
	definitions, states := unnestedRows{}, unnestedRows{}
	definitions.add(b.Columns, key.same, 1, "")
	states.add(stateColumns, key.sameStates, 1+len(b.Columns), "s_")
	all := unnestedRows{arrays: slices.Concat(definitions.arrays, states.arrays),
		names: slices.Concat(definitions.names, states.names)}
	if !isOne(key.phases) {
		all.add([]sqlstore.Column{{Name: "phase", Type: sqlstore.Integer}}, 0,
			1+len(b.Columns)+len(stateColumns), "s_")
	}
	stored := ""
	if b.Tail != "" {
		stored = " AND seq IN (SELECT seq FROM stored)"
	}
	var text strings.Builder
	fmt.Fprintf(&text, `WITH u AS MATERIALIZED (SELECT nextval('job_numbers') AS seq,u.* FROM %s),
		stored AS (INSERT INTO jobs (%s,seq) SELECT %s,seq FROM u ORDER BY u.identity,seq
		%s RETURNING identity,seq)`, all.from(), b.ColumnList(), strings.Join(definitions.values, ","),
		b.Tail)
	for p := range job.Done + 1 {
		if key.phases&(1<<p) == 0 {
			continue
		}
		of := "true"
		if !isOne(key.phases) {
			of = fmt.Sprintf("u.s_phase=%d", p)
		}
		table := sqlstore.PhaseTable(p)
		fmt.Fprintf(&text, `, in_%s AS (INSERT INTO %[1]s (%s) SELECT %s,seq FROM u WHERE %s%s)`,
			table, sqlstore.InsertStates(p).ColumnList(), strings.Join(states.values, ","), of,
			stored)
	}
	if key.searchable {
		text.WriteString(insertSearchable(b, definitions.values, states.values, stored))
	}
	return text.String() + " SELECT identity,seq FROM stored"
}

// insertSearchable returns the part of an insert that inserts the rows of searches.
func insertSearchable(b *sqlstore.Bulk, definitions, states []string, stored string) string {
	value := func(cols []sqlstore.Column, values []string, name string) string {
		return values[slices.IndexFunc(cols,
			func(c sqlstore.Column) bool { return c.Name == name })]
	}
	listed := value(b.Columns, definitions, "listed")
	var values []string
	for _, c := range sqlstore.InsertSearchable.Columns {
		switch c.Name {
		case "seq":
			values = append(values, "seq")
		case "state":
			values = append(values, value(stateColumns, states, c.Name))
		default:
			values = append(values, value(b.Columns, definitions, c.Name))
		}
	}
	return fmt.Sprintf(", in_searchable AS (INSERT INTO searchable (%s) SELECT %s FROM u "+
		"WHERE %s IS NOT NULL%s)", sqlstore.InsertSearchable.ColumnList(),
		strings.Join(values, ","), listed, stored)
}
