package engine

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
)

// settle lets what settled in this transaction count with parents and
// dependents, wave after wave, until nothing new settles. All of it is one
// transaction: no reader sees a failed job with a dependent still waiting for
// it, and after a crash either all or nothing has happened.
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

// parentUpdate is what a parent hears of its children in a transaction.
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

// applyParentUpdates lets parents of which a child was claimed for the first time be
// Started, where they wait and their machine holds it, and gives them the Failure of
// the last run of a child that failed.
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
	for _, s := range u.relatives.finished { // their parents are locked next: all in one order
		if s.job.Parent != 0 {
			seqs = append(seqs, s.job.Parent)
		}
	}
	slices.Sort(seqs)
	parents, err := u.lock(slices.Compact(seqs))
	if err != nil {
		return err
	}
	for _, p := range parents {
		n := updates[p.Seq]
		if n == nil {
			continue
		}
		if n.failure != nil {
			u.edit(p)
			u.setBody(p, job.Failure, n.failure)
		}
		if _, ok := u.e.contracts[p.ID.Contract].Machine.Next(p.State, job.Started); ok &&
			n.childStarted && p.Phase == job.Waiting {
			if err := u.move(p, job.Started); err != nil {
				return err
			}
		}
	}
	return nil
}

// skipStartedParents forgets parents that have nothing to hear: one that has begun does not wait to
// begin again, and to hold its row for that would have all claims of its children wait for each
// other.
func (u *unit) skipStartedParents(updates map[int64]*parentUpdate) error {
	var seqs []int64
	for seq, n := range updates {
		if n.failure == nil {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	parents, err := u.tx.GetWithoutBodies(seqs)
	for _, p := range parents {
		if _, waits := u.e.contracts[p.ID.Contract].Machine.Next(p.State, job.Started); !waits {
			delete(updates, p.Seq)
		}
	}
	return err
}

// updateParents counts children. A parent's OpenDeps are its unsettled
// children, its FailedDeps those that ended badly; with the last one it is
// Satisfied, however they ended. A child that leaves a settled state, to run
// once more, counts as before it settled, and where the machine holds it the
// parent is Retried too.
func (u *unit) updateParents(wave []finishedJob) error {
	open, failed := map[int64]int{}, map[int64]int{}
	var seqs []int64
	for _, s := range wave {
		if s.job.Parent == 0 {
			continue
		}
		if _, seen := open[s.job.Parent]; !seen {
			seqs = append(seqs, s.job.Parent)
		}
		open[s.job.Parent] -= s.sign
		if !s.success {
			failed[s.job.Parent] += s.sign
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

// followChildren lets a parent go where its children lead it.
func (u *unit) followChildren(p *job.Job, reopened bool) error {
	if _, ok := u.e.contracts[p.ID.Contract].Machine.Next(p.State, job.Retried); reopened && ok {
		return u.move(p, job.Retried)
	}
	return u.satisfy(p)
}

// satisfy lets a job that waits for nothing any more go on, where its machine
// says how.
func (u *unit) satisfy(j *job.Job) error {
	if _, ok := u.e.contracts[j.ID.Contract].Machine.Next(j.State, job.Satisfied); j.OpenDeps > 0 ||
		!ok {
		return nil
	}
	return u.move(j, job.Satisfied)
}

// updateDependents counts dependencies: each that ended well is one open
// dependency less for those that wait for it, one that did not makes them
// Unsatisfiable. Only waiting dependents are touched. A dependency that leaves a
// good end is open again for them.
func (u *unit) updateDependents(wave []finishedJob) error {
	closed := map[int64]int{} // by how much a dependency lessens OpenDeps; 0 if it ended badly
	var seqs []int64
	for _, s := range wave {
		if !u.e.contracts[s.job.ID.Contract].Graph || (s.sign < 0 && !s.success) {
			continue
		}
		closed[s.job.Seq] = 0
		if s.success {
			closed[s.job.Seq] = s.sign
		}
		seqs = append(seqs, s.job.Seq)
	}
	if len(seqs) == 0 {
		return nil
	}
	edges, err := u.tx.EdgesTo(seqs, 0)
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
	machine := u.e.contracts[d.ID.Contract].Machine
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
			d.OpenDeps = 0 // it goes on all the same: nothing open may hold up a later delay of it
		}
		return u.move(d, job.Unsatisfiable)
	}
	return u.satisfy(d)
}

// lock returns the jobs locked, those this transaction holds already in the
// form it has changed them to.
func (u *unit) lock(seqs []int64) ([]*job.Job, error) {
	held := map[int64]*job.Job{}
	for _, s := range []*set{&u.writes.edits, &u.writes.saves, &u.writes.rewrites, &u.writes.deletes} {
		for _, j := range s.jobs {
			held[j.Seq] = j
		}
	}
	locked, err := u.tx.LockBySeq(seqs)
	for i, j := range locked {
		if h := held[j.Seq]; h != nil {
			locked[i] = h
		}
	}
	return locked, err
}
