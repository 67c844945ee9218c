package engine

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A job that finishes concerns its relatives: its parent counts it as a child that is no longer
// open, and its dependents are satisfied or not. They may finish by that as well, and concern
// theirs:
//
//	finished jobs ─▶ updateParents ───▶ parents that finish ────┐
//	      ▲          updateDependents ─▶ dependents that finish ─┤
//	      └───────────────────── the next wave ◀─────────────────┘

// propagateFinished lets the jobs that finished in this transaction count with their parents and
// dependents, wave after wave, until no further job finishes. All of it is one transaction: no
// reader sees a failed job with a dependent still waiting for it, and after a crash either all or
// nothing has happened.
func (u *unit) propagateFinished() error {
	for len(u.relatives.finished) > 0 {
		wave := u.relatives.finished
		u.relatives.finished = nil
		if err := u.updateParents(wave); err != nil {
			return err
		}
		if err := u.updateDependents(wave); err != nil {
			return err
		}
	}
	return nil
}

// parentUpdate is what a transaction changes in a parent besides the counts of its children.
type parentUpdate struct {
	childStarted bool   // one was claimed for the first time
	failure      []byte // of the last run that failed
}

func (u *unit) parentUpdate(parent int64) *parentUpdate {
	if u.relatives.parentUpdates == nil {
		u.relatives.parentUpdates = map[int64]*parentUpdate{}
	}
	if u.relatives.parentUpdates[parent] == nil {
		u.relatives.parentUpdates[parent] = &parentUpdate{}
	}
	return u.relatives.parentUpdates[parent]
}

// applyParentUpdates lets parents of which a child was claimed for the first time be Started, where
// they wait and their machine allows it, and gives them the Failure of the last failed run of a
// child.
func (u *unit) applyParentUpdates() error {
	if len(u.relatives.parentUpdates) == 0 {
		return nil
	}
	updates := u.relatives.parentUpdates
	u.relatives.parentUpdates = nil
	if err := u.skipStartedParents(updates); err != nil || len(updates) == 0 {
		return err
	}
	seqs := slices.Collect(maps.Keys(updates))
	for _, f := range u.relatives.finished { // their parents are locked later: all in one order
		if f.job.Parent != 0 {
			seqs = append(seqs, f.job.Parent)
		}
	}
	slices.Sort(seqs)
	parents, err := u.lock(slices.Compact(seqs))
	if err != nil {
		return err
	}
	for _, p := range parents {
		update := updates[p.Seq]
		if update == nil {
			continue
		}
		if update.failure != nil {
			u.edit(p)
			u.setBody(p, job.Failure, update.failure)
		}
		if update.childStarted && p.Phase == job.Waiting && u.allows(p, job.Started) {
			if err := u.transition(p, job.Started); err != nil {
				return err
			}
		}
	}
	return nil
}

// allows reports whether a job's machine has a transition for a cause in its present state.
func (u *unit) allows(j *job.Job, on job.Cause) bool {
	_, ok := u.e.jobTypes[j.ID.JobType].Machine.Next(j.State, on)
	return ok
}

// skipStartedParents drops the updates that would change nothing: a parent that has started does
// not start again, and a lock of its row would make all claims of its children wait for each
// other.
func (u *unit) skipStartedParents(updates map[int64]*parentUpdate) error {
	var seqs []int64
	for seq, update := range updates {
		if update.failure == nil {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	parents, err := u.tx.Load(store.Selector{Seqs: seqs, Bodies: store.DefinitionOnly})
	for _, p := range parents {
		if !u.allows(p, job.Started) {
			delete(updates, p.Seq)
		}
	}
	return err
}

// updateParents counts children. A parent's OpenDeps are its unfinished children, its FailedDeps
// those that failed; with the last one that finishes it is Satisfied, however they ended. A child
// that leaves a finished state, to run once more, counts as open again, and where the machine
// allows it the parent is Retried too.
func (u *unit) updateParents(wave []finishedJob) error {
	open, failed := map[int64]int{}, map[int64]int{}
	var seqs []int64
	for _, f := range wave {
		parent := f.job.Parent
		if parent == 0 {
			continue
		}
		if _, listed := open[parent]; !listed {
			seqs = append(seqs, parent)
		}
		open[parent] -= f.sign
		if !f.success {
			failed[parent] += f.sign
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	parents, err := u.lock(seqs)
	if err != nil {
		return err
	}
	for _, p := range parents {
		p.OpenDeps += open[p.Seq]
		p.FailedDeps += failed[p.Seq]
		u.edit(p)
		if err := u.followChildren(p, open[p.Seq] > 0); err != nil {
			return err
		}
	}
	return nil
}

// followChildren moves a parent to where its children lead it.
func (u *unit) followChildren(p *job.Job, reopened bool) error {
	if reopened && u.allows(p, job.Retried) {
		return u.transition(p, job.Retried)
	}
	return u.satisfy(p)
}

// satisfy applies Satisfied to a job without open dependencies and children, if its machine allows
// it.
func (u *unit) satisfy(j *job.Job) error {
	if j.OpenDeps > 0 || !u.allows(j, job.Satisfied) {
		return nil
	}
	return u.transition(j, job.Satisfied)
}

// updateDependents counts dependencies: one that succeeded is one open dependency less for its
// dependents, one that failed makes them Unsatisfiable. Only waiting dependents are changed. A
// dependency that leaves a successful end is open again for them.
func (u *unit) updateDependents(wave []finishedJob) error {
	closed := map[int64]int{} // by how much a dependency reduces OpenDeps; 0 if it failed
	var seqs []int64
	for _, f := range wave {
		if !u.e.jobTypes[f.job.ID.JobType].Graph || (f.sign < 0 && !f.success) {
			continue
		}
		closed[f.job.Seq] = 0
		if f.success {
			closed[f.job.Seq] = f.sign
		}
		seqs = append(seqs, f.job.Seq)
	}
	if len(seqs) == 0 {
		return nil
	}
	edges, err := u.tx.Edges(store.EdgeSelector{To: seqs})
	if err != nil {
		return err
	}
	wait := map[int64][]int{}
	for _, e := range edges {
		wait[e.Dependent] = append(wait[e.Dependent], closed[e.Dependency])
	}
	dependents, err := u.lock(slices.Collect(maps.Keys(wait)))
	if err != nil {
		return err
	}
	for _, d := range dependents {
		if err := u.updateDependent(d, wait[d.Seq]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) updateDependent(d *job.Job, closed []int) error {
	machine := u.e.jobTypes[d.ID.JobType].Machine
	blockedMove, waits := machine.Next(d.State, job.Unsatisfiable)
	if !waits {
		return nil
	}
	blocked := false
	for _, n := range closed {
		d.OpenDeps -= n
		blocked = blocked || n == 0
	}
	u.edit(d)
	if blocked {
		if machine.Phase(blockedMove.To) == job.Ready {
			d.OpenDeps = 0 // it goes on: Promote would pass over it after a delay otherwise
		}
		return u.transition(d, job.Unsatisfiable)
	}
	return u.satisfy(d)
}

// lock locks jobs that wait for others, and returns them as lockChanged does.
func (u *unit) lock(seqs []int64) ([]*job.Job, error) {
	return u.lockChanged(store.Selector{Seqs: seqs, Lock: true, NoLockTimeout: true})
}

// lockChanged locks jobs and returns them; those that this transaction has changed in their changed
// form.
func (u *unit) lockChanged(s store.Selector) ([]*job.Job, error) {
	locked, err := u.tx.Load(s)
	for i, j := range locked {
		if changed := u.writes.changed(j.Seq).Job; changed != nil {
			locked[i] = changed
		}
	}
	return locked, err
}
