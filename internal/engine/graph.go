package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A graph is what operators and clients see of dependencies: the jobs around one, found wave after
// wave in both directions.
//
//	wave 2       wave 1       wave 0      wave 1       wave 2
//	  a ─────────▶ c ─────────▶ job ────────▶ e ─────────▶ f
//	  b ───────────▲
//
// Whatever the size of a graph, a call reads little more than it shows: a wave has the limit of
// jobs at most, and a bounded number of edges of each. truncated says that some are left out.

// Dependencies returns what each of the jobs depends on, ordered by key. A job that has no
// dependencies, or does not exist, has no entry.
func (e *Engine) Dependencies(ctx context.Context, ids []job.ID) (all map[job.ID][]job.ID,
	err error) {
	err = e.view(ctx, func(r reader) error { all, err = r.Dependencies(ids); return err })
	for _, list := range all {
		slices.SortFunc(list, compareKeys)
	}
	return all, err
}

func compareKeys(a, b job.ID) int { return strings.Compare(a.Key, b.Key) }

// Graph returns the jobs that are connected with a job by dependencies in either direction, nearest
// first, with no body but the definition, and the edges between them. Of more than limit jobs it
// returns limit and reports truncated.
func (e *Engine) Graph(ctx context.Context, id job.ID, limit int) (jobs []*job.Job,
	edges []job.Edge, truncated bool, err error) {
	err = e.view(ctx, func(r reader) error {
		w := neighbourhood{reader: r, limit: max(1, limit)}
		jobs, edges, err = w.explore(id)
		truncated = w.truncated
		return err
	})
	return jobs, edges, truncated, err
}

// maxEdgesPerJob bounds how many edges are read at a time, so that a job on which a million others
// depend costs no more than the part of the graph that is shown.
const maxEdgesPerJob = 10

// neighbourhood walks from a job over edges, breadth first.
type neighbourhood struct {
	reader
	limit     int
	visited   map[int64]bool
	order     []int64
	truncated bool
}

func (w *neighbourhood) explore(id job.ID) ([]*job.Job, []job.Edge, error) {
	root, err := getOne(w.reader, id, store.NoBodies)
	if err != nil {
		return nil, nil, err
	}
	w.visited = map[int64]bool{}
	w.visit(root.Seq)
	for from := 0; from < len(w.order) && !w.truncated; {
		wave := w.order[from:]
		from = len(w.order)
		if err := w.step(wave); err != nil {
			return nil, nil, err
		}
	}
	return w.collect()
}

func (w *neighbourhood) visit(seq int64) {
	switch {
	case w.visited[seq]:
	case len(w.order) == w.limit:
		w.truncated = true
	default:
		w.visited[seq] = true
		w.order = append(w.order, seq)
	}
}

func (w *neighbourhood) step(wave []int64) error {
	up, err := w.Edges(store.EdgeSelector{From: wave})
	if err != nil {
		return err
	}
	maxEdges := maxEdgesPerJob * w.limit
	down, err := w.Edges(store.EdgeSelector{To: wave, Limit: maxEdges})
	if err != nil {
		return err
	}
	var next []int64
	for _, e := range up {
		next = append(next, e.Dependency)
	}
	for _, e := range down {
		next = append(next, e.Dependent)
	}
	slices.Sort(next)
	for _, seq := range next {
		w.visit(seq)
	}
	w.truncated = w.truncated || len(down) == maxEdges
	return nil
}

// collect reads the jobs that were visited and the edges between them.
func (w *neighbourhood) collect() ([]*job.Job, []job.Edge, error) {
	jobs, err := w.Load(store.Selector{Seqs: w.order, Bodies: store.DefinitionOnly})
	if err != nil {
		return nil, nil, err
	}
	position := make(map[int64]int, len(w.order))
	for i, seq := range w.order {
		position[seq] = i
	}
	slices.SortFunc(jobs, func(a, b *job.Job) int { return position[a.Seq] - position[b.Seq] })
	edges, err := w.Edges(store.EdgeSelector{From: w.order})
	edges = slices.DeleteFunc(edges, func(e job.Edge) bool { return !w.visited[e.Dependency] })
	slices.SortFunc(edges, func(a, b job.Edge) int {
		if a.Dependent != b.Dependent {
			return position[a.Dependent] - position[b.Dependent]
		}
		return position[a.Dependency] - position[b.Dependency]
	})
	return jobs, edges, err
}
