package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// RemoveWithDependents deletes a job and all jobs that depend on it, directly or through others, or
// none of them. Those may be limit jobs at most, the first included. It returns them as they were.
//
// Errors: NotFound, Conflict while one of them is leased or where they are more than limit, and
// those of the store.
func (e *Engine) RemoveWithDependents(ctx context.Context, id job.ID, limit int) (
	removed []*job.Job, err error) {
	if _, err := e.jobType(id.JobType); err != nil {
		return nil, err
	}
	err = e.updateRetryingRaces(ctx, func(u *unit) error {
		c := cascade{unit: u, id: id, limit: limit}
		removed, err = c.run()
		return err
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}

// cascade is one call of RemoveWithDependents. The set of jobs is collected without locks, as it is
// not known before, then locked in the order of all verbs, and collected once more: where it is
// another set by then, all begins again. Jobs are removed last first, so that none is removed while
// one that depends on it is there.
//
// The name of the graph is locked too, so that no SetDependencies changes edges. A submission locks
// what its jobs depend on, so once all jobs of the set are locked no dependent is added to them.
type cascade struct {
	*unit
	id    job.ID
	limit int
	set   map[int64]bool
}

func (c *cascade) run() (removed []*job.Job, err error) {
	if err := c.tx.LockName("graph:" + c.id.JobType); err != nil {
		return nil, err
	}
	found, err := c.tx.Load(store.Selector{IDs: []job.ID{c.id}, Bodies: store.NoBodies})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errJobNotFound(c.id)
	}
	root := found[0].Seq
	if err := c.collect(root); err != nil {
		return nil, err
	}
	seqs := slices.Sorted(maps.Keys(c.set))
	locked, err := c.lockBySeq(seqs)
	if err != nil {
		return nil, err
	}
	if err := ensureNoRecordedEnds(slices.Collect(maps.Values(locked))); err != nil {
		return nil, err
	}
	if err := c.checkLocked(locked, root); err != nil {
		return nil, err
	}
	c.setChangedJob(locked[root])
	for _, seq := range slices.Backward(seqs) {
		before := *locked[seq]
		removed = append(removed, &before)
		if err := c.transition(locked[seq], job.Removed); err != nil {
			return nil, err
		}
	}
	return removed, nil
}

// collect finds the jobs of the set, wave after wave.
func (c *cascade) collect(root int64) error {
	c.set = map[int64]bool{root: true}
	for wave := []int64{root}; len(wave) > 0; {
		edges, err := c.tx.Edges(store.EdgeSelector{To: wave, Limit: maxEdgesPerJob * c.limit})
		if err != nil {
			return err
		}
		wave = nil
		for _, e := range edges {
			if !c.set[e.Dependent] {
				c.set[e.Dependent] = true
				wave = append(wave, e.Dependent)
			}
		}
		if len(c.set) > c.limit || len(edges) == maxEdgesPerJob*c.limit {
			return c.refuse(fmt.Sprintf("more than %d jobs depend on it", c.limit-1))
		}
	}
	return nil
}

// checkLocked refuses a set that has a leased job, and begins again where the set has changed
// before it was locked.
func (c *cascade) checkLocked(locked map[int64]*job.Job, root int64) error {
	if len(locked) != len(c.set) {
		return errConcurrentChange // one was removed meanwhile
	}
	before := len(c.set)
	if err := c.collect(root); err != nil {
		return err
	}
	if len(c.set) != before {
		return errConcurrentChange
	}
	for _, seq := range slices.Sorted(maps.Keys(locked)) {
		j := locked[seq]
		if j.Phase == job.Leased {
			return c.refuse(fmt.Sprintf("job %q is %s", j.ID.Key, stateName(j.State)))
		}
	}
	return nil
}

func (c *cascade) refuse(why string) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.cascade", ID: c.id, Msg: why}
}
