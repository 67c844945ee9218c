package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// FinishFunc returns the outcome of a run that ends with a submission. It gets the first job that
// the submission has stored and the time of the transaction. It may run more than once and must
// have no other effects.
type FinishFunc func(made *job.Job, now time.Time) Outcome

// WithFinish returns a context with which the next Submit also ends a run of another job. Its
// transaction locks that job, as every verb does that ends the run or takes the job from it, so one
// of them comes first: where the run is not current any longer, nothing is stored, and the error is
// RunLost. Jobs and outcome are stored together or not at all. After an error of which it is not
// known whether anything was stored, the run is lost or goes on: Finish finds out.
//
// Later verbs with the context do not end the run, nor does a submission that stores nothing.
// Submissions that end different runs share a transaction, but not with others.
func WithFinish(ctx context.Context, run Run, fn FinishFunc) context.Context {
	return context.WithValue(ctx, txHookKey{}, &txHook{run: run, finish: fn})
}

// finisher returns the hook, of those that are attached to a change, that ends a run, or nil.
func (h *txHook) finisher() *txHook {
	for h != nil && h.finish == nil {
		h = h.previous
	}
	return h
}

// finishesRun reports whether the change with the hook ends a run.
func (h *txHook) finishesRun() bool { return h.finisher() != nil }

// lockFinishing locks the job whose run a change ends. RunLost where the run is not current.
func (u *unit) lockFinishing(h *txHook) error {
	if h = h.finisher(); h == nil {
		return nil
	}
	jobs, err := u.lockBySeq([]int64{h.run.Run.Seq()})
	if err != nil {
		return err
	}
	u.finishing, err = currentRun(jobs, h.run)
	return err
}

// lockFinishingAll locks the jobs whose runs the calls of a group end, and returns the calls that
// may go on. The others have got RunLost.
func (u *unit) lockFinishingAll(group []*ticket[submitCall]) ([]*ticket[submitCall], error) {
	var seqs []int64
	for _, t := range group {
		if h := t.call.hook; h.finishesRun() {
			seqs = append(seqs, h.run.Run.Seq())
		}
	}
	if len(seqs) == 0 {
		return group, nil
	}
	jobs, err := u.lockSelected(store.Selector{Seqs: seqs, Lock: true, NoLockTimeout: true})
	if err != nil {
		return nil, err
	}
	accepted := make([]*ticket[submitCall], 0, len(group))
	for _, t := range group {
		t.call.finishing, t.err = nil, nil
		if h := t.call.hook; h.finishesRun() {
			t.call.finishing, t.err = currentRun(jobs, h.run)
		}
		if t.err != nil {
			continue
		}
		accepted = append(accepted, t)
	}
	return accepted, nil
}

// finishRuns ends the runs of the calls of a group that have stored their jobs.
func (u *unit) finishRuns(group []*ticket[submitCall]) error {
	for _, t := range group {
		c := &t.call
		if c.finishing == nil || t.err != nil {
			continue
		}
		if err := u.finishByHook(c.hook, c.finishing, c.result.Jobs[0]); err != nil {
			return err
		}
	}
	return nil
}

// finishByHook ends the run of a job by the outcome that goes with the job that was made.
func (u *unit) finishByHook(h *txHook, j, made *job.Job) error {
	return u.finishRun(j, h.finish(made, u.now))
}

// markFinished notes which calls of a group, which is committed, have ended their runs.
func markFinished(group []*ticket[submitCall]) {
	for _, t := range group {
		if t.err != nil || t.call.finishing == nil {
			continue
		}
		t.call.hook.used.Store(true)
	}
}
