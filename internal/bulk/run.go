package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

const (
	// maxBatch bounds what is done between two writes of the progress: a page, so that none is read
	// twice. atOnce of that is done at the same time.
	maxBatch = PageSize
	atOnce   = 8
	// pause is how long an operation waits for its canaries before it looks again, and for a store
	// or queue that takes nothing at the moment.
	pause = time.Second
)

var (
	// errTaken undoes what was done already, and errStopped what an operation that does not run
	// any longer would do.
	errTaken   = errors.New("bulk: it was done already")
	errStopped = errors.New("bulk: the operation does not run any longer")
)

// Handle implements worker.Handler: it carries out an operation until it is over, or has to wait.
func (b *Bulk) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	id := t.Job.ID.Key
	for ctx.Err() == nil {
		wait, err := b.step(ctx, id)
		switch {
		case errors.Is(err, errStopped), job.IsKind(err, job.NotFound):
			return engine.Outcome{} // its job has moved on, so no outcome counts
		case err != nil && ctx.Err() == nil:
			b.Log.Warn("a bulk operation cannot go on now", telemetry.JobID, id,
				telemetry.ErrorMessage, err)
			return engine.Outcome{On: job.Released, Delay: pause}
		case wait > 0:
			return engine.Outcome{On: job.Released, Delay: wait}
		}
	}
	return engine.Outcome{On: job.Released}
}

// step does one batch, and returns how long to wait then. The error is errStopped where the
// operation has ended or is paused.
func (b *Bulk) step(ctx context.Context, id string) (wait time.Duration, err error) {
	o, pending, err := b.load(ctx, id)
	switch {
	case err != nil:
		return 0, err
	case o.State == Paused && o.Reason == ReasonCanary:
		return b.watchCanaries(ctx, o)
	case o.State != Running:
		return 0, errStopped
	case !o.Counted:
		return 0, b.count(ctx, o)
	}
	size := o.batchSize(pending)
	switch {
	case size == 0 && pending > 0:
		return b.commit(ctx, o, nil, nextUnknown)
	case size == 0:
		return 0, b.end(ctx, o)
	}
	items, next, err := b.batch(ctx, o, size)
	if err != nil {
		return 0, err
	}
	results, err := b.act(ctx, o, items)
	if err != nil {
		return 0, err
	}
	return b.commit(ctx, o, results, next)
}

// load reads an operation and how many marks of its present batch there are.
func (b *Bulk) load(ctx context.Context, id string) (o *Operation, pending int, err error) {
	err = b.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		if o, err = read(r, id); err != nil {
			return err
		}
		if o == nil {
			return errNone
		}
		marks, err := markedIn(r, id)
		pending = len(marks)
		return err
	})
	return o, pending, err
}

// count stores how many match before the first is changed.
func (b *Bulk) count(ctx context.Context, o *Operation) error {
	total := int64(0)
	if err := b.each(ctx, o, func(*item) error {
		if total == MaxCounted {
			return errEnough
		}
		total++
		return nil
	}); err != nil {
		return err
	}
	return b.update(ctx, o.ID, func(_ engine.RecordWriter, now *Operation) error {
		if !now.Counted {
			now.Total, now.Counted = total, true
		}
		return nil
	})
}

// batchSize is how many the next batch may do: no more than the limit, the canary and the rate
// leave. pending were done of the batch before, which a node that was lost has not counted: where
// they are all that it might do, it is 0.
func (o *Operation) batchSize(pending int) int {
	size, gone := maxBatch, int(o.Done)+pending
	if o.Limit > 0 {
		size = min(size, max(0, o.Limit-gone))
	}
	if o.Canary > 0 && !o.Settled {
		size = min(size, max(0, o.Canary-gone))
	}
	if o.Rate > 0 {
		size = min(size, max(1, o.Rate/4))
	}
	return size
}

// batch returns up to size items of the next page, and the number behind which the batch after it
// begins; 0 at the end.
func (b *Bulk) batch(ctx context.Context, o *Operation, size int) ([]item, int64, error) {
	items, next, err := b.find(ctx, o, o.Cursor)
	if err != nil || len(items) <= size {
		return items, next, err
	}
	return items[:size], items[size-1].number, nil
}

// result is what came of an item: nil is done, or was done before.
type result struct {
	item
	err error
}

// act does the action to all items. The error says that it has to be tried again.
func (b *Bulk) act(ctx context.Context, o *Operation, items []item) ([]result, error) {
	results := make([]result, len(items))
	var all sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, it := range items {
		results[i] = result{item: it}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			results[i].err = b.actOn(ctx, o, &it)
		})
	}
	all.Wait()
	for _, r := range results {
		switch job.KindOf(r.err) {
		case job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout, job.Full:
			return nil, r.err
		}
		if errors.Is(r.err, errStopped) {
			return nil, r.err
		}
	}
	return results, nil
}

// actOn does the action to one item, with a mark.
func (b *Bulk) actOn(ctx context.Context, o *Operation, it *item) error {
	if it.changed {
		return errChanged
	}
	if it.letter != nil {
		_, err := b.Engine.ReplayDeadLetter(ctx, engine.Replay{Letter: it.letter,
			Do: contract.OperatorOf(b.Contracts, it.letter.Job.ID.Contract).Replay,
			Record: func(w engine.RecordWriter, _, after *job.DeadLetter) error {
				return b.mark(w, o, it.number, after.ReplayedAs)
			}})
		return err
	}
	operator := contract.OperatorOf(b.Contracts, it.job.ID.Contract)
	if operator == nil {
		return errChanged
	}
	_, err := operator.Act(engine.Attach(ctx,
		func(w engine.RecordWriter, _, after *job.Job) error {
			return b.mark(w, o, it.number, after.Seq)
		}), o.Action, it.job)
	return err
}

// errChanged is the error of an item that has changed since the operation began.
var errChanged = &job.Error{Kind: job.Conflict, Op: "bulk", Msg: "it has changed meanwhile"}

// mark writes the mark of what was done in its transaction. It is undone where there is a mark, or
// the batch or the operation is over. One that does the same at the same time waits for the end of
// this transaction, and then sees its mark, or the cursor behind it.
func (b *Bulk) mark(w engine.RecordWriter, o *Operation, number, made int64) error {
	key := markKey(o.ID, number)
	if err := w.Lock(key); err != nil {
		return err
	}
	there, err := w.Record(markKind, key)
	if err != nil {
		return err
	}
	now, err := read(w, o.ID)
	switch {
	case err != nil:
		return err
	case now == nil || now.State != Running:
		return errStopped
	case there != nil || now.Cursor >= number:
		return errTaken
	}
	body, err := json.Marshal(mark{number, made})
	if err != nil {
		return err
	}
	return w.UpsertRecords(job.Record{Kind: markKind, Key: key, Owner: o.ID, Body: body,
		ExpiresAt: w.Now().Add(retention)})
}

// nextUnknown is the next of a batch of which all was done by a node that was lost: it ends behind
// the last mark.
const nextUnknown = -1

// commit counts a batch, deletes its marks and moves the cursor behind it, in one transaction. It
// returns how long to wait then. At the end of what matches it ends the operation.
func (b *Bulk) commit(ctx context.Context, o *Operation, results []result,
	next int64) (wait time.Duration, err error) {
	var after *Operation
	acted := 0
	err = b.update(ctx, o.ID, func(w engine.RecordWriter, now *Operation) error {
		if now.Cursor != o.Cursor || now.State != Running {
			return errStopped
		}
		after = now
		marks, err := markedIn(w, o.ID)
		if err != nil {
			return err
		}
		done, err := now.countMarks(w, marks)
		if err != nil {
			return err
		}
		for number := range done {
			now.Cursor = max(now.Cursor, number)
		}
		for _, r := range results {
			if now.Cursor = max(now.Cursor, r.number); !done[r.number] {
				now.add(&r)
			}
		}
		acted, now.Cursor = len(marks), max(now.Cursor, next)
		if now.waitsForCanaries(next == 0) {
			now.State, now.Reason = Paused, ReasonCanary
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, err
	case after.State == Paused:
		return pause, nil
	case next == 0:
		return 0, b.end(ctx, after)
	case o.Rate > 0 && acted > 0:
		return time.Duration(acted) * time.Second / time.Duration(o.Rate), nil
	}
	return 0, nil
}

// countMarks counts what was done and deletes the marks. It returns their numbers.
func (o *Operation) countMarks(w engine.RecordWriter, marks []job.Record) (map[int64]bool, error) {
	done := map[int64]bool{}
	if len(marks) == 0 {
		return done, nil
	}
	keys := make([]string, len(marks))
	for i := range marks {
		var m mark
		if err := json.Unmarshal(marks[i].Body, &m); err != nil {
			return nil, &job.Error{Op: "bulk", Msg: "a stored mark cannot be read", Err: err}
		}
		keys[i], done[m.Number] = marks[i].Key, true
		if o.Canary > 0 && !o.Settled {
			o.Canaries = append(o.Canaries, m.Job)
		}
	}
	o.Done += int64(len(marks))
	return done, w.DeleteRecords(markKind, keys...)
}

// add counts what has no mark. What changed nothing has no error either, and is skipped.
func (o *Operation) add(r *result) {
	var refused *contract.NotAllowed
	switch {
	case errors.Is(r.err, errTaken): // in a batch that is over
	case r.err == nil, errors.As(r.err, &refused), job.IsKind(r.err, job.Conflict),
		job.IsKind(r.err, job.NotFound):
		o.Skipped++
	default:
		o.addProblem(Problem{Number: r.number, Error: r.err.Error()})
	}
}

// waitsForCanaries reports whether all canaries have gone, so that they have to settle first.
func (o *Operation) waitsForCanaries(isEnd bool) bool {
	return o.Canary > 0 && !o.Settled && !isEnd && o.Done >= int64(o.Canary)
}

// watchCanaries goes on when all canaries have settled well, and pauses the operation when one has
// failed.
func (b *Bulk) watchCanaries(ctx context.Context, o *Operation) (wait time.Duration, err error) {
	settled, failed, err := b.settled(ctx, o)
	switch {
	case err != nil:
		return 0, err
	case failed > 0:
		if err := b.move(ctx, o.ID, job.FailedForGood,
			func(_ engine.RecordWriter, now *Operation) error {
				now.State, now.Reason = Paused, reasonFailed+strconv.FormatInt(failed, 10)
				return nil
			}); err != nil {
			return 0, err
		}
		return 0, errStopped
	case !settled:
		return pause, nil
	}
	return 0, b.update(ctx, o.ID, func(_ engine.RecordWriter, now *Operation) error {
		if now.State == Paused && now.Reason == ReasonCanary {
			now.State, now.Reason, now.Settled, now.Canaries = Running, "", true, nil
		}
		return nil
	})
}

// settled reports whether all canaries have settled, and the first that failed. A job that is gone
// without a dead letter has ended well; a cancel is well when the job is over.
func (b *Bulk) settled(ctx context.Context, o *Operation) (all bool, failed int64, err error) {
	found, err := b.Engine.GetWithoutBodies(ctx, o.Canaries)
	if err != nil {
		return false, 0, err
	}
	letters, err := b.Engine.DeadLettersOf(ctx, o.Canaries)
	if err != nil {
		return false, 0, err
	}
	for _, seq := range o.Canaries {
		for _, l := range letters[seq] {
			if l.IsOpen() && l.CreatedAt.After(o.StartedAt) {
				return false, seq, nil
			}
		}
	}
	all = true
	for _, j := range found {
		switch {
		case j.Phase != job.Done:
			all = false
		case o.Action != contract.ActionCancel && !b.Engine.Succeeded(j):
			return false, j.Seq, nil
		}
	}
	return all, 0, nil
}

// end ends an operation that has gone through all.
func (b *Bulk) end(ctx context.Context, o *Operation) error {
	err := b.move(ctx, o.ID, job.Succeeded, func(w engine.RecordWriter, now *Operation) error {
		now.State, now.EndedAt, now.Canaries = Done, w.Now(), nil
		now.skipUnseen()
		if b.Ended == nil {
			return nil
		}
		return b.Ended(w, now)
	})
	if err != nil {
		return err
	}
	return errStopped
}

// skipUnseen counts as skipped what matched at the beginning and was not come across: it was
// deleted meanwhile, or does not match any longer.
func (o *Operation) skipUnseen() {
	isAll := o.Total < MaxCounted && (o.Limit == 0 || o.Done < int64(o.Limit))
	if isAll {
		o.Skipped = max(o.Skipped, o.Total-o.Done-o.Failed)
	}
}
