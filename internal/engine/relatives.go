package engine

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The relatives of a job are its dependencies and dependents, which are edges of a graph, and its
// parent and children. A job waits for its open dependencies and for its open children; OpenDeps is
// the number of both. A new job locks what it depends on before it counts it, so that none of that
// finishes unnoticed; from then on propagate.go keeps the number right.

// links are the dependencies and parents of a batch of new jobs.
type links struct {
	batch      []Submission
	index      map[job.ID]int      // of the batch
	known      map[job.ID]*job.Job // of the store, locked
	childrenOf map[int][]int       // children of the batch, by parent there
}

// link looks up what a batch depends on. Dependencies are locked, so that none finishes between
// being read and being waited for.
func (u *unit) link(batch []Submission) (*links, error) {
	l := &links{batch: batch}
	var wanted []job.ID
	for _, s := range batch {
		wanted = append(wanted, s.DependsOn...)
		if s.Parent != (job.ID{}) {
			wanted = append(wanted, s.Parent)
		}
	}
	if len(wanted) == 0 {
		return l, nil
	}
	l.index, l.known, l.childrenOf = map[job.ID]int{}, map[job.ID]*job.Job{}, map[int][]int{}
	for i, s := range batch {
		l.index[s.Job.ID] = i
	}
	var external []job.ID
	for _, id := range wanted {
		if _, inside := l.index[id]; !inside {
			external = append(external, id)
		}
	}
	existing, err := u.tx.Load(store.Selector{IDs: external, Lock: true})
	if err != nil {
		return nil, err
	}
	for _, j := range existing {
		l.known[j.ID] = j
	}
	for _, id := range external {
		if l.known[id] == nil {
			return nil, &job.Error{Kind: job.NotFound, Op: "engine.submit", ID: id,
				Msg: fmt.Sprintf("there is no job %q to wait for", id.Key)}
		}
	}
	return l, l.check(u)
}

// check refuses a dependency cycle and parents that cannot have children.
func (l *links) check(u *unit) error {
	for i, s := range l.batch {
		if at, ok := l.index[s.Parent]; ok {
			l.childrenOf[at] = append(l.childrenOf[at], i)
		}
		if s.Parent != (job.ID{}) && slices.Contains(s.DependsOn, s.Parent) {
			return errCycle([]string{s.Job.ID.Key, s.Parent.Key})
		}
	}
	// A job waits for its dependencies, and a parent for its children.
	waits := make([][]int, len(l.batch))
	for i, s := range l.batch {
		waits[i] = slices.Clone(l.childrenOf[i])
		for _, id := range s.DependsOn {
			if at, ok := l.index[id]; ok {
				waits[i] = append(waits[i], at)
			}
		}
	}
	if path := job.FindIndexCycle(waits); path != nil {
		keys := make([]string, len(path))
		for i, at := range path {
			keys[i] = l.batch[at].Job.ID.Key
		}
		return errCycle(keys)
	}
	return l.addToParents(u)
}

// addToParents counts the new jobs with their parents that are in the store.
func (l *links) addToParents(u *unit) error {
	for _, s := range l.batch {
		p := l.known[s.Parent]
		if p == nil {
			continue
		}
		p.OpenDeps++
		p.Children++
		p.Size += s.Job.Size
		u.edit(p)
		u.updateAll(p)
		if err := u.reopen(p); err != nil {
			return err
		}
	}
	return nil
}

// reopen retries a parent that gets one more child, where its machine allows that for a parent
// which is about to finish or has finished.
func (u *unit) reopen(p *job.Job) error {
	if u.allows(p, job.Retried) {
		return u.transition(p, job.Retried)
	}
	if p.Phase == job.Done {
		return &job.Error{Kind: job.Conflict, Op: "engine.submit", ID: p.ID,
			Msg: "the parent is finished"}
	}
	return nil
}

const msgCycle = "the jobs have a dependency cycle"

func errCycle(path []string) error {
	return &job.Error{Kind: job.Cycle, Op: "engine.submit", Msg: msgCycle, Path: path}
}

// apply sets what a new job waits for and reports whether it can never be satisfied.
func (l *links) apply(u *unit, i int, j *job.Job) (blocked bool) {
	if l.index == nil {
		return false
	}
	j.OpenDeps, j.Children = len(l.childrenOf[i]), len(l.childrenOf[i])
	for _, child := range l.childrenOf[i] {
		j.Size += l.batch[child].Job.Size
	}
	if l.batch[i].Parent != (job.ID{}) {
		j.Size = 0 // it is in the size of the parent
	}
	seen := map[job.ID]bool{}
	for _, id := range l.batch[i].DependsOn {
		if seen[id] {
			continue
		}
		seen[id] = true
		if d := l.known[id]; d == nil || d.Phase != job.Done {
			j.OpenDeps++
		} else if !u.e.jobTypes[d.ID.JobType].Machine.IsSuccess(d.State) {
			blocked = true
		}
	}
	return blocked
}

// store inserts the jobs, parents before their children, and their edges.
func (l *links) store(u *unit, jobs []*job.Job) (existing []int, err error) {
	if l.index == nil {
		return u.insertJobs(jobs)
	}
	for generation := l.roots(); len(generation) > 0; {
		wave := make([]*job.Job, len(generation))
		var next []int
		for k, i := range generation {
			wave[k] = jobs[i]
			jobs[i].Parent = l.seq(jobs, l.batch[i].Parent)
			next = append(next, l.childrenOf[i]...)
		}
		conflicts, err := u.insertJobs(wave)
		if err != nil {
			return nil, err
		}
		if len(conflicts) > 0 { // jobs with relatives are stored all or none
			return nil, errExists(wave[conflicts[0]].ID)
		}
		generation = next
	}
	var edges []job.Edge
	for i, s := range l.batch {
		for _, id := range s.DependsOn {
			edges = append(edges, job.Edge{Dependent: jobs[i].Seq, Dependency: l.seq(jobs, id)})
		}
	}
	return nil, u.tx.Apply(store.Changes{Edges: edges})
}

// insertJobs stores new jobs and returns the indexes of those that exist already.
func (u *unit) insertJobs(jobs []*job.Job) (existing []int, err error) {
	c := store.Changes{Insert: jobs}
	if err := u.tx.Apply(c); err != nil {
		return nil, err
	}
	u.hasWritten = true
	return c.Existing(), nil
}

// roots returns the jobs of the batch whose parent is not in it.
func (l *links) roots() (indexes []int) {
	for i, s := range l.batch {
		if _, inside := l.index[s.Parent]; !inside {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (l *links) seq(jobs []*job.Job, id job.ID) int64 {
	if at, ok := l.index[id]; ok {
		return jobs[at].Seq
	}
	if known := l.known[id]; known != nil {
		return known.Seq
	}
	return 0
}
