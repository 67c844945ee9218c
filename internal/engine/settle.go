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
func (u *unit) settle() error {
	for len(u.settled) > 0 {
		wave := u.settled
		u.settled = nil
		if err := u.settleParents(wave); err != nil {
			return err
		}
		if err := u.settleDependents(wave); err != nil {
			return err
		}
	}
	return nil
}

// news is what a parent hears of its children in a transaction.
type news struct {
	began   bool   // one was claimed for the first time
	failure []byte // of the last run that failed
}

func (u *unit) hear(parent int64) *news {
	if u.heard == nil {
		u.heard = map[int64]*news{}
	}
	if u.heard[parent] == nil {
		u.heard[parent] = &news{}
	}
	return u.heard[parent]
}

// tellParents lets parents of which a child was claimed for the first time be
// Started, where they wait and their machine holds it, and gives them the Failure of
// the last run of a child that failed.
func (u *unit) tellParents() error {
	if len(u.heard) == 0 {
		return nil
	}
	heard := u.heard
	u.heard = nil
	if err := u.skipBegun(heard); err != nil || len(heard) == 0 {
		return err
	}
	seqs := slices.Collect(maps.Keys(heard))
	for _, s := range u.settled { // their parents are locked next: all in one order
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
		n := heard[p.Seq]
		if n == nil {
			continue
		}
		if n.failure != nil {
			u.edit(p)
			u.setBody(p, job.Failure, n.failure)
		}
		if _, ok := u.e.contracts[p.ID.Contract].Machine.Next(p.State, job.Started); ok && n.began && p.Phase == job.Waiting {
			if err := u.move(p, job.Started); err != nil {
				return err
			}
		}
	}
	return nil
}

// skipBegun forgets parents that have nothing to hear: one that has begun does not wait to begin again, and to hold its
// row for that would have all claims of its children wait for each other.
func (u *unit) skipBegun(heard map[int64]*news) error {
	var seqs []int64
	for seq, n := range heard {
		if n.failure == nil {
			seqs = append(seqs, seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	parents, err := u.tx.Briefs(seqs)
	for _, p := range parents {
		if _, waits := u.e.contracts[p.ID.Contract].Machine.Next(p.State, job.Started); !waits {
			delete(heard, p.Seq)
		}
	}
	return err
}

// settleParents counts children. A parent's OpenDeps are its unsettled
// children, its FailedDeps those that ended badly; with the last one it is
// Satisfied, however they ended. A child that leaves a settled state, to run
// once more, counts as before it settled, and where the machine holds it the
// parent is Retried too.
func (u *unit) settleParents(wave []settlement) error {
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
		if !s.good {
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
		if err := u.follow(p, open[p.Seq] > 0); err != nil {
			return err
		}
	}
	return nil
}

// follow lets a parent go where its children lead it.
func (u *unit) follow(p *job.Job, reopened bool) error {
	if _, ok := u.e.contracts[p.ID.Contract].Machine.Next(p.State, job.Retried); reopened && ok {
		return u.move(p, job.Retried)
	}
	return u.satisfy(p)
}

// satisfy lets a job that waits for nothing any more go on, where its machine
// says how.
func (u *unit) satisfy(j *job.Job) error {
	if _, ok := u.e.contracts[j.ID.Contract].Machine.Next(j.State, job.Satisfied); j.OpenDeps > 0 || !ok {
		return nil
	}
	return u.move(j, job.Satisfied)
}

// settleDependents counts dependencies: each that ended well is one open
// dependency less for those that wait for it, one that did not makes them
// Unsatisfiable. Only waiting dependents are touched. A dependency that leaves a
// good end is open again for them.
func (u *unit) settleDependents(wave []settlement) error {
	closed := map[int64]int{} // by how much a dependency lessens OpenDeps; 0 if it ended badly
	var seqs []int64
	for _, s := range wave {
		if !u.e.contracts[s.job.ID.Contract].Graph || s.sign < 0 && !s.good {
			continue
		}
		closed[s.job.Seq] = 0
		if s.good {
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
		if err := u.settleDependent(d, wait[d.Seq]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) settleDependent(d *job.Job, closed []int) error {
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
	for _, s := range []*set{&u.edits, &u.saves, &u.rewrites, &u.deletes} {
		for _, j := range s.jobs {
			held[j.Seq] = j
		}
	}
	locked, err := u.tx.LockSeqs(seqs)
	for i, j := range locked {
		if h := held[j.Seq]; h != nil {
			locked[i] = h
		}
	}
	return locked, err
}
