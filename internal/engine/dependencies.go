package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A change of dependencies goes through these steps, in one transaction:
//
//	lockAll        the name "graph:" of the job type, old and new dependencies, the job
//	applyEdit      what else the caller changes
//	check          all dependencies exist and form no cycle
//	replaceEdges
//	evaluate       counts the open dependencies and moves the job to where they lead it

// SetDependencies is Change for what a job depends on: it has these dependencies and no others
// afterwards. A job that is in a state that waits is evaluated again: it is Satisfied where all
// dependencies have succeeded, and Unsatisfiable where one has failed, as are its dependents. Any
// other job may only depend on jobs that have succeeded. Where the machine allows it the change
// is a Replaced that stays in the state.
//
// Errors: those of Change and, after that of edit, NotFound with the ID of an unknown dependency,
// Cycle with the keys along the dependency cycle from the job on, Conflict for a job that is
// finished or must not wait, Invalid for a dependency on another job type's job.
func (e *Engine) SetDependencies(ctx context.Context, id job.ID, deps []job.ID,
	edit func(j *job.Job, now time.Time) error) (*job.Job, error) {
	t, err := e.jobType(id.JobType)
	if err != nil {
		return nil, err
	}
	if !t.Graph || slices.ContainsFunc(deps, func(d job.ID) bool { return d.JobType != t.Name }) {
		return nil, &job.Error{Kind: job.Invalid, Op: "engine.relink", ID: id,
			Msg: msgForeignDependency}
	}
	var after *job.Job
	err = e.updateRetryingRaces(ctx, func(u *unit) (err error) {
		r := dependencyUpdate{unit: u, id: id, deps: unique(deps)}
		after, err = r.run(edit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

func unique(ids []job.ID) (once []job.ID) {
	for _, id := range ids {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return once
}

// dependencyUpdate is one call of SetDependencies. One runs at a time for each job type: two that
// close no dependency cycle by themselves may close one together (TF-040).
type dependencyUpdate struct {
	*unit
	id    job.ID
	deps  []job.ID
	job   *job.Job
	old   []job.ID            // what it depended on
	known map[job.ID]*job.Job // what of old and deps exists, locked
}

func (r *dependencyUpdate) run(edit func(*job.Job, time.Time) error) (*job.Job, error) {
	if err := r.lockAll(); err != nil {
		return nil, err
	}
	if edit != nil {
		if err := r.applyEdit(r.job, edit); err != nil {
			return nil, err
		}
	}
	for _, step := range []func() error{r.check, r.replaceEdges, r.evaluate} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r.job, nil
}

// lockAll locks what the job depends on, before and after the change, and then the job: no
// dependency finishes meanwhile and is counted twice or not at all.
func (r *dependencyUpdate) lockAll() error {
	if err := r.tx.LockName("graph:" + r.id.JobType); err != nil {
		return err
	}
	old, err := r.currentDependencies()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(unique(slices.Concat(old, r.deps)), func(id job.ID) bool {
		return id == r.id
	})
	locked, err := r.tx.Load(store.Selector{IDs: others, Lock: true})
	if err != nil {
		return err
	}
	r.known = map[job.ID]*job.Job{}
	for _, j := range locked {
		r.known[j.ID] = j
	}
	if r.job, err = r.lockOne(r.id); err != nil {
		return err
	}
	if r.old, err = r.currentDependencies(); err != nil {
		return err
	}
	if !slices.Equal(r.old, old) { // the job was removed and submitted again meanwhile
		return errConcurrentChange
	}
	return nil
}

// currentDependencies returns what the job depends on. Beside SetDependencies only the removal of
// the job changes that.
func (r *dependencyUpdate) currentDependencies() ([]job.ID, error) {
	all, err := r.tx.Dependencies([]job.ID{r.id})
	list := all[r.id]
	slices.SortFunc(list, compareKeys)
	return list, err
}

// check refuses what the job cannot depend on.
func (r *dependencyUpdate) check() error {
	if r.job.Phase == job.Done {
		return r.refuse("the job is finished")
	}
	seqs := make([]int64, len(r.deps))
	for i, id := range r.deps {
		j := r.known[id]
		if id == r.id {
			j = r.job
		}
		if j == nil {
			return &job.Error{Kind: job.NotFound, Op: "engine.relink", ID: id,
				Msg: fmt.Sprintf("there is no job %q to wait for", id.Key)}
		}
		seqs[i] = j.Seq
	}
	path, err := r.cycle(seqs)
	if err != nil || path == nil {
		return err
	}
	return &job.Error{Kind: job.Cycle, Op: "engine.relink", ID: r.id, Msg: msgCycle, Path: path}
}

func (r *dependencyUpdate) refuse(why string) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.relink", ID: r.id, Msg: why}
}

// cycle returns the keys along the dependency cycle that the new dependencies close.
func (r *dependencyUpdate) cycle(deps []int64) ([]string, error) {
	edges, err := r.tx.Edges(store.EdgeSelector{From: deps, Transitive: true})
	if err != nil {
		return nil, err
	}
	n := nodeIndex{index: map[int64]int{}}
	at := n.of(r.job.Seq) // the first
	for _, d := range deps {
		n.link(at, n.of(d))
	}
	for _, e := range edges {
		if e.Dependent != r.job.Seq { // those of the job itself are replaced
			n.link(n.of(e.Dependent), n.of(e.Dependency))
		}
	}
	found := job.FindIndexCycle(n.deps)
	if found == nil {
		return nil, nil
	}
	position, cycle := map[int64]int{}, make([]int64, len(found))
	for i, at := range found {
		cycle[i] = n.seqs[at]
		position[n.seqs[at]] = i
	}
	jobs, err := r.tx.Load(store.Selector{Seqs: cycle, Bodies: store.DefinitionOnly})
	path := make([]string, len(found))
	for _, j := range jobs {
		path[position[j.Seq]] = j.ID.Key
	}
	return path, err
}

// nodeIndex numbers jobs from 0 in the order they are visited.
type nodeIndex struct {
	index map[int64]int
	seqs  []int64
	deps  [][]int
}

func (n *nodeIndex) of(seq int64) int {
	at, visited := n.index[seq]
	if !visited {
		at = len(n.seqs)
		n.index[seq] = at
		n.seqs, n.deps = append(n.seqs, seq), append(n.deps, nil)
	}
	return at
}

func (n *nodeIndex) link(from, to int) { n.deps[from] = append(n.deps[from], to) }

func (r *dependencyUpdate) replaceEdges() error {
	edges := make([]job.Edge, len(r.deps))
	for i, id := range r.deps {
		edges[i] = job.Edge{Dependent: r.job.Seq, Dependency: r.known[id].Seq}
	}
	return r.tx.Apply(store.Changes{DeleteEdges: []int64{r.job.Seq}, Edges: edges})
}

// evaluate moves the job to where its dependencies lead it (G-TF-09). Its open children, which
// OpenDeps counts as well, stay counted.
func (r *dependencyUpdate) evaluate() error {
	j, machine := r.job, r.e.jobTypes[r.id.JobType].Machine
	blockedMove, waits := machine.Next(j.State, job.Unsatisfiable)
	open, failed := r.count(r.deps)
	if !waits && open+failed > 0 {
		return r.refuse(fmt.Sprintf("the job is %s and can only depend on jobs that have succeeded",
			j.State))
	}
	if waits {
		was, _ := r.count(r.old)
		j.OpenDeps += open - was
	}
	if tr, ok := machine.Next(j.State, job.Replaced); ok && tr.To == j.State {
		if err := r.transition(j, job.Replaced); err != nil {
			return err
		}
	} else {
		r.edit(j)
	}
	switch {
	case !waits:
		return nil
	case failed > 0:
		if machine.Phase(blockedMove.To) == job.Ready {
			j.OpenDeps = 0 // as in updateDependent
		}
		return r.transition(j, job.Unsatisfiable)
	default:
		return r.satisfy(j)
	}
}

// count returns how many of the dependencies are open and how many have failed.
func (r *dependencyUpdate) count(ids []job.ID) (open, failed int) {
	machine := r.e.jobTypes[r.id.JobType].Machine
	for _, id := range ids {
		switch j := r.known[id]; {
		case j == nil: // pruned
		case j.Phase != job.Done:
			open++
		case !machine.IsSuccess(j.State):
			failed++
		}
	}
	return open, failed
}
