package engine

import (
	"context"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// errNoDeadLetter is the error of an ID that no dead letter of the contract has.
var errNoDeadLetter = &job.Error{Kind: job.NotFound, Op: "dead_letter",
	Msg: "there is no such dead letter"}

// DeadLetter returns the dead letter of a contract with an ID.
func (e *Engine) DeadLetter(ctx context.Context, contract string, id int64) (l job.DeadLetter,
	err error) {
	err = e.view(ctx, func(r reader) error { l, err = oneDeadLetter(r, contract, id); return err })
	return l, err
}

// DiscardDeadLetter deletes a dead letter. What fn writes is stored with it or not at all. Of
// several calls for one letter one deletes it.
func (e *Engine) DiscardDeadLetter(ctx context.Context, contract string, id int64,
	fn func(RecordWriter, *job.DeadLetter) error) error {
	return e.update(ctx, func(u *unit) error {
		if err := u.tx.LockName("dead_letters"); err != nil {
			return err
		}
		l, err := oneDeadLetter(u.tx, contract, id)
		if err != nil {
			return err
		}
		if err := u.tx.Apply(store.Changes{DeleteDeadLetters: []int64{id}}); err != nil {
			return err
		}
		return fn(recordChange{recordView{u.tx}, u.tx}, &l)
	})
}

// oneDeadLetter reads a dead letter: it is the first one above the ID before.
func oneDeadLetter(r store.Reader, contract string, id int64) (l job.DeadLetter, err error) {
	found, err := r.DeadLetters(contract, id-1, 1)
	if err != nil {
		return l, err
	}
	if len(found) == 0 || found[0].ID != id {
		return l, errNoDeadLetter
	}
	return found[0], nil
}
