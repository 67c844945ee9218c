package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// Dependencies returns what each of the jobs depends on, by key. A job that
// depends on nothing, or does not exist, is not there.
func (e *Engine) Dependencies(ctx context.Context, ids []job.ID) (all map[job.ID][]job.ID, err error) {
	err = e.view(ctx, func(r reader) error { all, err = r.Dependencies(ids); return err })
	for _, list := range all {
		slices.SortFunc(list, compareKeys)
	}
	return all, err
}

func compareKeys(a, b job.ID) int { return strings.Compare(a.Key, b.Key) }

// Graph returns the jobs that hang together with a job over dependencies in
// either direction, nearest first, with no body but the definition, and the edges
// between them. Of more than limit jobs it returns so many and says truncated.
func (e *Engine) Graph(ctx context.Context, id job.ID, limit int) (jobs []*job.Job, edges []job.Edge, truncated bool, err error) {
	err = e.view(ctx, func(r reader) error {
		w := spread{reader: r, limit: max(1, limit)}
		jobs, edges, err = w.around(id)
		truncated = w.truncated
		return err
	})
	return jobs, edges, truncated, err
}

// edgesPerJob bounds how many edges are read at a time, so that a job on which a
// million others depend costs no more than what is shown of it.
const edgesPerJob = 10

// spread walks from a job over edges, wave after wave.
type spread struct {
	reader
	limit     int
	met       map[int64]bool
	order     []int64
	truncated bool
}

func (w *spread) around(id job.ID) ([]*job.Job, []job.Edge, error) {
	root, err := w.Get([]job.ID{id})
	if err == nil && len(root) == 0 {
		err = notFound(id)
	}
	if err != nil {
		return nil, nil, err
	}
	w.met = map[int64]bool{}
	w.meet(root[0].Seq)
	for from := 0; from < len(w.order) && !w.truncated; {
		wave := w.order[from:]
		from = len(w.order)
		if err := w.step(wave); err != nil {
			return nil, nil, err
		}
	}
	return w.collect()
}

func (w *spread) meet(seq int64) {
	switch {
	case w.met[seq]:
	case len(w.order) == w.limit:
		w.truncated = true
	default:
		w.met[seq] = true
		w.order = append(w.order, seq)
	}
}

func (w *spread) step(wave []int64) error {
	up, err := w.EdgesFrom(wave)
	if err != nil {
		return err
	}
	most := edgesPerJob * w.limit
	down, err := w.EdgesTo(wave, most)
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
		w.meet(seq)
	}
	w.truncated = w.truncated || len(down) == most
	return nil
}

// collect reads what was met, and the edges that have both their ends there.
func (w *spread) collect() ([]*job.Job, []job.Edge, error) {
	jobs, err := w.Briefs(w.order)
	if err != nil {
		return nil, nil, err
	}
	place := make(map[int64]int, len(w.order))
	for i, seq := range w.order {
		place[seq] = i
	}
	slices.SortFunc(jobs, func(a, b *job.Job) int { return place[a.Seq] - place[b.Seq] })
	edges, err := w.EdgesFrom(w.order)
	edges = slices.DeleteFunc(edges, func(e job.Edge) bool { return !w.met[e.Dependency] })
	slices.SortFunc(edges, func(a, b job.Edge) int {
		if a.Dependent != b.Dependent {
			return place[a.Dependent] - place[b.Dependent]
		}
		return place[a.Dependency] - place[b.Dependency]
	})
	return jobs, edges, err
}
