package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A dead letter is open until it is replayed. A queue counts its open ones, so every change of a
// dead letter is made under one lock, which is taken after those of jobs:
//
//	a job is given up    an open dead letter, in the transaction of the transition
//	the job is retried   its open dead letter was replayed, as the same job
//	ReplayDeadLetter     the dead letter was replayed, as the job that the contract makes
//	the job is deleted   its dead letters go with it (G-AD-06)
//	DiscardDeadLetter, retention    the dead letter goes alone

var (
	// ErrNoDeadLetter is the error of an ID that no dead letter of the job type has.
	ErrNoDeadLetter = &job.Error{Kind: job.NotFound, Op: "dead_letter",
		Msg: "there is no such dead letter"}
	// ErrReplayed is the Conflict of a second replay that does not say that it is one.
	ErrReplayed = errors.New("the dead letter was replayed already; again: true replays it once " +
		"more")
)

// DeadLetters returns lists of dead letters, as they were at one moment.
func (e *Engine) DeadLetters(ctx context.Context,
	of ...store.DeadLetterSelector) (lists [][]job.DeadLetter, err error) {
	err = e.view(ctx, func(r reader) error {
		lists = make([][]job.DeadLetter, len(of))
		for i, s := range of {
			if lists[i], err = r.DeadLetters(s); err != nil {
				return err
			}
		}
		return nil
	})
	return lists, err
}

// DeadLettersOf returns the dead letters of jobs, also of those that are gone, by the number of the
// job and oldest first.
func (e *Engine) DeadLettersOf(ctx context.Context, seqs []int64) (
	deadLetters map[int64][]job.DeadLetter, err error) {
	deadLetters = map[int64][]job.DeadLetter{}
	if len(seqs) == 0 {
		return deadLetters, nil
	}
	err = e.view(ctx, func(r reader) error {
		all, err := r.DeadLetters(store.DeadLetterSelector{Jobs: seqs})
		clear(deadLetters)
		for _, l := range all {
			deadLetters[l.Job.Seq] = append(deadLetters[l.Job.Seq], l)
		}
		return err
	})
	return deadLetters, err
}

// WithOpenDeadLetters returns which of the jobs have an open dead letter.
func (e *Engine) WithOpenDeadLetters(ctx context.Context, jobs []*job.Job) (map[int64]bool, error) {
	var done []int64
	for _, j := range jobs {
		if j.Phase == job.Done {
			done = append(done, j.Seq)
		}
	}
	if len(done) == 0 {
		return nil, nil
	}
	dead := map[int64]bool{}
	err := e.view(ctx, func(r reader) error {
		open, err := r.DeadLetters(store.DeadLetterSelector{Jobs: done, Open: true})
		clear(dead)
		for _, l := range open {
			dead[l.Job.Seq] = true
		}
		return err
	})
	return dead, err
}

// DeadLettersByID returns those of the dead letters that exist, by ID, of whatever job type.
func (e *Engine) DeadLettersByID(ctx context.Context, ids ...int64) (deadLetters []job.DeadLetter,
	err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	err = e.view(ctx, func(r reader) error {
		deadLetters, err = r.DeadLetters(store.DeadLetterSelector{IDs: ids})
		return err
	})
	return deadLetters, err
}

// Replay is a replay of a dead letter.
type Replay struct {
	DeadLetter *job.DeadLetter
	// Do is how the contract replays the job: with one change, of the job that runs then.
	Do    func(ctx context.Context, dead *job.Job) (*job.Job, error)
	Again bool // also where it was replayed before
	// Record writes records in the transaction, with the dead letter before and after. It may be
	// nil.
	Record func(w RecordWriter, before, after *job.DeadLetter) error
}

// ReplayDeadLetter replays a dead letter and notes in the transaction of the change that it was, so
// both are stored or neither is. The hooks of the context are written with them. It returns the job
// that runs then.
//
// Errors: a Conflict that wraps ErrReplayed, NotFound where the dead letter is gone, and those of
// Do and Record.
func (e *Engine) ReplayDeadLetter(ctx context.Context, r Replay) (*job.Job, error) {
	if err := r.check(r.DeadLetter); err != nil {
		return nil, err
	}
	return r.Do(WithTxFunc(ctx, func(w RecordWriter, _, made *job.Job) error {
		u := w.unit()
		u.writes.replays = append(u.writes.replays, func() error {
			return u.markReplay(&r, made.Seq)
		})
		return nil
	}), &r.DeadLetter.Job)
}

// MarkReplayed marks the open dead letters of jobs as replayed by the change whose writer is w,
// which makes the jobs that replay them. copies has the identities of these by those of the jobs.
func MarkReplayed(w RecordWriter, copies map[job.ID]job.ID) {
	u := w.unit()
	u.writes.replays = append(u.writes.replays, func() error { return u.markCopies(copies) })
}

// markCopies marks the dead letters of MarkReplayed. A dead letter that the change has marked
// already, as it is the replay of that, stays as it is.
func (u *unit) markCopies(copies map[job.ID]job.ID) error {
	if err := u.tx.LockName(deadLettersLock); err != nil {
		return err
	}
	ids := slices.AppendSeq(slices.Collect(maps.Keys(copies)), maps.Values(copies))
	jobs, err := u.tx.Load(store.Selector{IDs: ids, Bodies: store.NoBodies})
	if err != nil {
		return err
	}
	numbers := map[job.ID]int64{}
	for _, j := range jobs {
		numbers[j.ID] = j.Seq
	}
	as, originals := map[int64]int64{}, make([]int64, 0, len(copies))
	for original, made := range copies {
		as[numbers[original]] = numbers[made]
		originals = append(originals, numbers[original])
	}
	deadLetters, err := u.tx.DeadLetters(store.DeadLetterSelector{Jobs: originals})
	if err != nil {
		return err
	}
	marked := map[int64]bool{}
	for i := range u.writes.UpdateDeadLetters {
		marked[u.writes.UpdateDeadLetters[i].ID] = true
	}
	for i := range deadLetters {
		if l := &deadLetters[i]; l.IsOpen() && !marked[l.ID] {
			u.markReplayed(l, as[l.Job.Seq])
		}
	}
	return nil
}

// markReplay marks the dead letter of a replay, which has made a job.
func (u *unit) markReplay(r *Replay, as int64) error {
	if err := u.tx.LockName(deadLettersLock); err != nil {
		return err
	}
	before, err := oneDeadLetter(u.tx, r.DeadLetter.Job.ID.JobType, r.DeadLetter.ID)
	if err != nil {
		return err
	}
	if err := r.check(&before); err != nil {
		return err
	}
	after := before
	u.markReplayed(&after, as)
	if r.Record == nil {
		return nil
	}
	return r.Record(u.records(), &before, &after)
}

// markReplayed marks a dead letter that is replayed as a job.
func (u *unit) markReplayed(l *job.DeadLetter, as int64) {
	if l.IsOpen() {
		u.countOf(queueKeyOf(&l.Job)).Dead--
	}
	l.ReplayedAt, l.ReplayedAs = u.now, as
	u.writes.UpdateDeadLetters = append(u.writes.UpdateDeadLetters, *l)
}

// check refuses a second replay.
func (r *Replay) check(l *job.DeadLetter) error {
	if l.IsOpen() || r.Again {
		return nil
	}
	return &job.Error{Kind: job.Conflict, Op: "dead_letter", Msg: ErrReplayed.Error(),
		Err: ErrReplayed}
}

// DiscardDeadLetter deletes a dead letter. What fn writes is stored with it or not at all. Of
// several calls for one dead letter one deletes it.
func (e *Engine) DiscardDeadLetter(ctx context.Context, jobType string, id int64,
	fn func(RecordWriter, *job.DeadLetter) error) error {
	return e.update(ctx, func(u *unit) error {
		if err := u.tx.LockName(deadLettersLock); err != nil {
			return err
		}
		l, err := oneDeadLetter(u.tx, jobType, id)
		if err != nil {
			return err
		}
		u.deleteDeadLetters([]job.DeadLetter{l})
		return fn(u.records(), &l)
	})
}

// oneDeadLetter reads a dead letter of a job type.
func oneDeadLetter(r store.Reader, jobType string, id int64) (l job.DeadLetter, err error) {
	found, err := r.DeadLetters(store.DeadLetterSelector{IDs: []int64{id}})
	if err != nil {
		return l, err
	}
	if len(found) == 0 || found[0].Job.ID.JobType != jobType {
		return l, ErrNoDeadLetter
	}
	return found[0], nil
}

// deadLettersLock is the name that changes of stored dead letters lock.
const deadLettersLock = "dead_letters"

// addDeadLetters stores the dead letters of jobs that were given up.
func (u *unit) addDeadLetters() error {
	w := &u.writes
	jobs := make([]*job.Job, len(w.deadLetters))
	for i, p := range w.deadLetters {
		copied := *p.job
		jobs[i] = &copied
	}
	if err := u.fillBodies(jobs); err != nil {
		return err
	}
	for i, p := range w.deadLetters {
		l := job.DeadLetter{Job: *jobs[i], Cause: p.on, CreatedAt: p.job.UpdatedAt}
		if l.IsJobStored() {
			l.Job.Payload, l.Job.Progress, l.Job.Result = nil, nil, nil
		}
		w.DeadLetters = append(w.DeadLetters, l)
		u.countOf(queueKeyOf(p.job)).Dead++
	}
	w.deadLetters = nil
	return nil
}

// updateDeadLetters marks the dead letters that the transaction replays, and lets those of jobs
// follow the jobs that were retried or deleted.
func (u *unit) updateDeadLetters() error {
	w := &u.writes
	replayed := map[int64]bool{}
	for _, mark := range w.replays {
		if err := mark(); err != nil {
			return err
		}
	}
	for i := range w.UpdateDeadLetters {
		replayed[w.UpdateDeadLetters[i].ID] = true
	}
	retried, seqs := map[int64]bool{}, w.gone
	for _, j := range w.retried {
		retried[j.Seq] = true
		seqs = append(seqs, j.Seq)
	}
	w.replays, w.retried, w.gone = nil, nil, nil
	deadLetters, err := u.lockDeadLetters(seqs)
	for i := range deadLetters {
		switch l := &deadLetters[i]; {
		case !retried[l.Job.Seq]:
			u.deleteDeadLetters(deadLetters[i : i+1])
		case l.IsOpen() && !replayed[l.ID]:
			u.markReplayed(l, l.Job.Seq)
		}
	}
	return err
}

// lockDeadLetters returns the dead letters of jobs that the transaction has locked. None of them
// changes until it ends.
func (u *unit) lockDeadLetters(seqs []int64) ([]job.DeadLetter, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	s := store.DeadLetterSelector{Jobs: seqs}
	deadLetters, err := u.tx.DeadLetters(s)
	if err != nil || len(deadLetters) == 0 {
		return nil, err
	}
	if err := u.tx.LockName(deadLettersLock); err != nil {
		return nil, err
	}
	return u.tx.DeadLetters(s)
}

// deleteDeadLetters deletes dead letters.
func (u *unit) deleteDeadLetters(deadLetters []job.DeadLetter) {
	for i := range deadLetters {
		u.writes.DeleteDeadLetters = append(u.writes.DeleteDeadLetters, deadLetters[i].ID)
		if deadLetters[i].IsOpen() {
			u.countOf(queueKeyOf(&deadLetters[i].Job)).Dead--
		}
	}
}

// pruneDeadLetters deletes dead letters that are past the retention of their job type, and marks
// those of an older schema, which are then counted and grouped. It returns how many there were.
func (u *unit) pruneDeadLetters(t *JobType) (n int, err error) {
	if !t.leavesDeadLetters {
		return 0, nil
	}
	if err := u.tx.LockName(deadLettersLock); err != nil {
		return 0, err
	}
	unmarked, err := u.tx.DeadLetters(store.DeadLetterSelector{JobType: t.Name,
		WithoutFingerprint: true, Limit: u.e.pruneBatch()})
	if err != nil {
		return 0, err
	}
	for i := range unmarked {
		u.countOf(queueKeyOf(&unmarked[i].Job)).Dead++
	}
	u.writes.UpdateDeadLetters = append(u.writes.UpdateDeadLetters, unmarked...)
	if t.DeadLetterRetention <= 0 || len(unmarked) > 0 {
		return len(unmarked), nil
	}
	old, err := u.tx.DeadLetters(store.DeadLetterSelector{JobType: t.Name,
		Before: u.now.Add(-t.DeadLetterRetention), Limit: u.e.pruneBatch()})
	u.deleteDeadLetters(old)
	return len(old), err
}
