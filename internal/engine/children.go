package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// ChildrenChange is a change of the children of a job that are in some states.
type ChildrenChange struct {
	Parent job.ID
	States []job.State // of the children that are changed
	On     job.Cause
	// Edit changes a child, as the edit of Change does, but gets it without its bodies. It may be
	// nil.
	Edit    func(j *job.Job, now time.Time) error
	Failure []byte // of the children, and of the parent; nil leaves what they have
	Reason  string // for the history
}

// childrenBatch is how many children one transaction changes.
const childrenBatch = 500

// ChangeChildren applies a cause to children of a job and returns the job after that. More than
// childrenBatch of them are changed in several transactions, so after an error some may be changed:
// a repeated call changes the rest. A run of a child is lost, and what its worker sends is refused.
// The hooks of the context are about the parent, and run with the first of them.
//
// Errors: NotFound, Conflict where no child is in one of the states, that of Edit, and those of the
// store.
func (e *Engine) ChangeChildren(ctx context.Context, c ChildrenChange) (after *job.Job, err error) {
	if _, err := e.jobType(c.Parent.JobType); err != nil {
		return nil, err
	}
	for last := int64(0); ; {
		var batch childrenUnit
		err := e.update(ctx, func(u *unit) error {
			batch = childrenUnit{unit: u, change: &c, last: last}
			return batch.run()
		})
		if err != nil {
			return nil, err
		}
		if batch.parent != nil {
			after = batch.parent
		}
		if last = batch.last; batch.isLast {
			break
		}
	}
	if after == nil {
		return e.refuseChildren(ctx, &c)
	}
	return after, nil
}

// refuseChildren returns the error of a change for which no child is in one of the states.
func (e *Engine) refuseChildren(ctx context.Context, c *ChildrenChange) (*job.Job, error) {
	p, err := e.Get(ctx, c.Parent)
	if err != nil {
		return nil, err
	}
	return nil, &job.Error{Kind: job.Conflict, Op: "engine.children", ID: c.Parent,
		Msg: fmt.Sprintf("the job is %s and has no %s children", stateName(p.State), c.States[0]),
		Err: &StateError{*p}}
}

// childrenUnit is one transaction of ChangeChildren. It locks children before their parent, as
// those do that finish one.
type childrenUnit struct {
	*unit
	change *ChildrenChange
	last   int64    // the number of the last child that was looked at
	isLast bool     // there are no more behind it
	parent *job.Job // nil where no child was changed
}

func (c *childrenUnit) run() error {
	children, parent, err := c.lockChildren()
	if err != nil {
		return err
	}
	for _, j := range children {
		if err := c.changeChild(j); err != nil {
			return err
		}
	}
	if len(children) == 0 {
		return nil
	}
	locked, err := c.lock([]int64{parent})
	if err != nil || len(locked) == 0 {
		return err
	}
	c.parent = locked[0]
	c.setChangedJob(c.parent)
	c.edit(c.parent)
	return c.flushJobs() // the parent follows its children
}

// lockChildren locks the next children that are in one of the states, and returns them with the
// number of their parent.
func (c *childrenUnit) lockChildren() (children []*job.Job, parent int64, err error) {
	found, err := c.tx.Load(store.Selector{IDs: []job.ID{c.change.Parent}, Bodies: store.NoBodies})
	if err != nil {
		return nil, 0, err
	}
	if len(found) == 0 {
		return nil, 0, errJobNotFound(c.change.Parent)
	}
	parent = found[0].Seq
	page, err := c.tx.List(store.Filter{Parent: parent, States: c.change.States, After: c.last,
		WithoutBodies: true, Limit: childrenBatch})
	if err != nil {
		return nil, 0, err
	}
	c.isLast = page.Next == 0
	seqs := make([]int64, len(page.Jobs))
	for i, j := range page.Jobs {
		seqs[i], c.last = j.Seq, j.Seq
	}
	locked, err := c.lockChanged(store.Selector{Seqs: seqs, Lock: true})
	for _, j := range locked {
		if slices.Contains(c.change.States, j.State) { // else it has moved on meanwhile
			children = append(children, j)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	// One call carries out all ends that were recorded.
	return children, parent, ensureNoRecordedEnds(children)
}

func (c *childrenUnit) changeChild(j *job.Job) error {
	if c.change.Edit != nil {
		if err := c.applyDraft(j, c.change.Edit); err != nil {
			return err
		}
	}
	if err := c.transitionWith(j, c.change.On, c.change.Reason, 0); err != nil {
		return err
	}
	if c.change.Failure != nil {
		c.setBody(j, job.Failure, c.change.Failure)
		c.parentUpdate(j.Parent).failure = c.change.Failure
	}
	return nil
}
