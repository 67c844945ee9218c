package sqlstore

import (
	"database/sql"

	"github.com/millrace/millrace/internal/job"
)

var (
	addEdges  = insertInto("add_edges", "edges", []Column{{"dependent", "int8"}, {"dependency", "int8"}}, "ON CONFLICT DO NOTHING")
	dropEdges = &Statement{"drop_edges", "DELETE FROM edges WHERE dependent {in $1}"}
	getEdges  = &Statement{"get_edges", `SELECT dependent,dependency FROM edges WHERE dependent {in $1}
		UNION SELECT dependent,dependency FROM edges WHERE dependency {in $1} ORDER BY 1,2`}
)

// Edges is documented at the port, as are all verbs below.
func (t *Tx) Edges(seqs []int64) ([]job.Edge, error) {
	return collect(t, getEdges, func(rows *sql.Rows) (e job.Edge, err error) {
		err = rows.Scan(&e.Dependent, &e.Dependency)
		return e, err
	}, t.s.Ints(seqs))
}

func (t *Tx) AddEdges(edges []job.Edge) error {
	rows := make([][]any, len(edges))
	for i, e := range edges {
		rows[i] = []any{e.Dependent, e.Dependency}
	}
	return t.bulk(addEdges, rows)
}

func (t *Tx) DropEdges(dependents []int64) error { return t.drop(dropEdges, dependents) }
