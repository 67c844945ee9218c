package sqlstore

import (
	"cmp"
	"database/sql"
	"math"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Edges are the dependencies between jobs: a row of two job numbers. The primary key leads from
// a dependent to its dependencies, the other index back:
//
//	edgesFrom      what jobs depend on            for a graph
//	edgesTo        what depends on jobs           after their end, before a removal, for a graph
//	allEdgesFrom   all that jobs depend on        to refuse a dependency cycle
//	dependencies   what jobs depend on, by identity, for reads
//
// The edges of a job go with it (DeleteEdges); those that lead to it are the engine's concern.
var (
	addEdges = insertInto("add_edges", "edges",
		[]Column{{"dependent", Integer}, {"dependency", Integer}}, "ON CONFLICT DO NOTHING")
	deleteEdges = &Statement{"delete_edges", "DELETE FROM edges WHERE dependent {in $1}"}
	edgesFrom   = &Statement{"edges_from",
		"SELECT dependent,dependency FROM edges WHERE dependent {in $1}"}
	edgesTo = &Statement{"edges_to",
		"SELECT dependent,dependency FROM edges WHERE dependency {in $1} {limit $2}"}

	// UNION, unlike UNION ALL, visits each job once, however many paths lead to it.
	allEdgesFrom = &Statement{"all_edges_from", `WITH RECURSIVE reached(seq) AS (
			SELECT dependency FROM edges WHERE dependent {in $1}
			UNION SELECT e.dependency FROM reached r JOIN edges e ON e.dependent=r.seq)
		SELECT dependent,dependency FROM edges WHERE dependent {in $1}
		UNION SELECT e.dependent,e.dependency FROM reached r JOIN edges e ON e.dependent=r.seq`}
	dependencies = &Statement{"dependencies",
		`SELECT j.contract,j.scope,j.key,d.contract,d.scope,d.key
		FROM jobs j JOIN edges e ON e.dependent=j.seq JOIN jobs d ON d.seq=e.dependency
		WHERE {identities $1}`}
)

// Dependencies is documented at the port, as are all methods below.
func (t *Tx) Dependencies(ids []job.ID) (map[job.ID][]job.ID, error) {
	type pair struct{ from, to job.ID }
	pairs, err := collect(t, dependencies, func(rows *sql.Rows) (p pair, err error) {
		err = rows.Scan(&p.from.JobType, &p.from.Scope, &p.from.Key, &p.to.JobType, &p.to.Scope,
			&p.to.Key)
		return p, err
	}, t.s.Identities(ids))
	all := map[job.ID][]job.ID{}
	for _, p := range pairs {
		all[p.from] = append(all[p.from], p.to)
	}
	return all, err
}

func (t *Tx) Edges(s store.EdgeSelector) ([]job.Edge, error) {
	switch {
	case len(s.From) > 0 && s.Transitive:
		return collect(t, allEdgesFrom, scanEdge, t.s.Ints(s.From))
	case len(s.From) > 0:
		return collect(t, edgesFrom, scanEdge, t.s.Ints(s.From))
	case len(s.To) > 0:
		return collect(t, edgesTo, scanEdge, t.s.Ints(s.To), cmp.Or(s.Limit, math.MaxInt))
	default:
		return nil, t.failed
	}
}

// scanEdge reads a row of dependent and dependency.
func scanEdge(rows *sql.Rows) (e job.Edge, err error) {
	err = rows.Scan(&e.Dependent, &e.Dependency)
	return e, err
}

// addEdges stores edges. One that exists stays as it is.
func (t *Tx) addEdges(edges []job.Edge) error {
	rows := make([][]any, len(edges))
	for i, e := range edges {
		rows[i] = []any{e.Dependent, e.Dependency}
	}
	return t.bulk(addEdges, rows)
}
