package bulk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

// An operation is carried out batch after batch. step does one of them and then says how long to
// wait, for a rate or for canaries; an operation that waits for long gives its job back, so that it
// holds no worker:
//
//	load ─▶ count, once ─▶ batch ─▶ act: the actions with their marks ─▶ commit ─▶ wait
//	                        ▲                                              │
//	                        └───────────────── cursor ◀────────────────────┘
//
// Two nodes may work on one operation, as the lease of its job ends while one of them is slow. Both
// then act on the same items, and the marks let each action happen once; the one that commits
// second finds a cursor that is not its own, and stops.

const (
	// maxBatch bounds the items between two writes of the progress: a page, so that none is read
	// twice. maxConcurrentItems of that is done at the same time.
	maxBatch           = PageSize
	maxConcurrentItems = 8
	// pause is how long an operation waits for its canaries before it looks again, and for a store
	// or queue that takes nothing at the moment.
	pause = time.Second
)

var (
	// errAlreadyDone undoes an action that was carried out already, and errStopped one of an
	// operation that does not run any longer.
	errAlreadyDone = errors.New("bulk: it was done already")
	errStopped     = errors.New("bulk: the operation does not run any longer")
)

// Handle implements worker.Handler: it carries out an operation until it is done, or has to wait.
func (b *Bulk) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
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
	o, done, err := b.load(ctx, id)
	waits := o != nil && o.State == Paused && o.Reason == ReasonCanary
	switch {
	case err != nil:
		return 0, err
	case o.State != Running && !waits:
		return 0, errStopped
	case !b.serves(o):
		return pause, b.setReason(ctx, o, reasonUnserved+strings.Join(o.contractNames(), ", "))
	case waits:
		return b.watchCanaries(ctx, o)
	case o.Reason != "":
		return 0, b.setReason(ctx, o, "")
	case !o.Counted:
		return 0, b.count(ctx, o)
	}
	size := o.batchSize(len(done))
	switch {
	case size == 0 && len(done) > 0:
		return b.commit(ctx, o, nil, nextUnknown)
	case size == 0:
		return 0, b.end(ctx, o)
	}
	items, next, err := b.batch(ctx, o, size, done)
	if err != nil {
		return 0, err
	}
	results, err := b.act(ctx, o, items)
	if errors.Is(err, errStopped) {
		return 0, b.countCanceled(ctx, o, results)
	}
	if err != nil {
		return 0, err
	}
	wait, err = b.commit(ctx, o, results, next)
	if errors.Is(err, errStopped) {
		return 0, b.countCanceled(ctx, o, results)
	}
	return wait, err
}

// setReason says why a running operation waits; "" when it does not.
func (b *Bulk) setReason(ctx context.Context, o *Operation, reason string) error {
	if o.Reason == reason || o.State != Running {
		return nil
	}
	return b.update(ctx, o.ID, func(_ engine.RecordWriter, now *Operation) error {
		if now.State == Running {
			now.Reason = reason
		}
		return nil
	})
}

// serves reports whether this node serves all job types that an operation is about. One that does
// not would find none of their jobs; it leaves the operation to another node.
func (b *Bulk) serves(o *Operation) bool {
	served := map[string]bool{}
	for _, c := range b.Contracts {
		for i := range c.JobTypes {
			served[c.JobTypes[i].Name] = true
		}
	}
	return !slices.ContainsFunc(o.jobTypes(), func(name string) bool { return !served[name] })
}

// load reads an operation and what was done in its present batch.
func (b *Bulk) load(ctx context.Context, id string) (o *Operation, done map[int64]bool,
	err error) {
	err = b.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		if o, err = read(r, id); err != nil {
			return err
		}
		if o == nil {
			return errNone
		}
		records, err := markedIn(r, id)
		if err != nil {
			return err
		}
		marks, err := decodeMarks(records)
		done = map[int64]bool{}
		for _, m := range marks {
			done[m.Number] = true
		}
		return err
	})
	return o, done, err
}

// count stores how many match before the first is changed.
func (b *Bulk) count(ctx context.Context, o *Operation) error {
	total := int64(0)
	if _, err := b.each(ctx, o, JobPage{WithoutBodies: !o.searchesTexts()}, func(*item) error {
		if total == MaxCounted {
			return errNoMoreNeeded
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

// batchSize is the number of items of the next batch: no more than the limit, the canary and the
// rate allow. pending items are done and not counted yet, as their node was lost or the store took
// no write. The size is 0 if no others are allowed.
func (o *Operation) batchSize(pending int) int {
	size, gone := max(1, maxBatch-pending), int(o.Done)+pending
	if o.Limit > 0 {
		size = min(size, max(0, o.Limit-gone))
	}
	if o.Canary > 0 && !o.CanariesDone {
		size = min(size, max(0, o.Canary-gone))
	}
	if o.Rate > 0 {
		size = min(size, max(1, o.Rate/4))
	}
	return size
}

// batch returns up to size items of the next page that are not done, and the number behind which
// the batch after it begins; 0 at the end.
func (b *Bulk) batch(ctx context.Context, o *Operation, size int,
	done map[int64]bool) ([]item, int64, error) {
	page, err := b.find(ctx, o, o.Cursor, JobPage{MaxTime: maxPageTime})
	left := slices.DeleteFunc(page.all, func(it item) bool { return done[it.number] })
	if err != nil || len(left) <= size {
		return left, page.next, err
	}
	return left[:size], left[size-1].number, nil
}

// result is what came of an item; without an error it was done.
type result struct {
	item
	err error
}

// act does the action to all items. The error says that it has to be tried again or, with
// errStopped and what came of the items, that the operation does not run any longer.
func (b *Bulk) act(ctx context.Context, o *Operation, items []item) ([]result, error) {
	results := b.actOnEach
	if o.replaysDeliveries() {
		results = b.replayDeliveries
	}
	all := results(ctx, o, items)
	for _, r := range all {
		switch job.KindOf(r.err) {
		case job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout, job.Full:
			return nil, r.err
		}
		if errors.Is(r.err, errStopped) {
			return all, r.err
		}
	}
	return all, nil
}

// actOnEach does the action to all items, several at a time. Dead letters of deliveries are
// replayed one after another, so that each waits for the one before it of the same job.
func (b *Bulk) actOnEach(ctx context.Context, o *Operation, items []item) []result {
	results := make([]result, len(items))
	var all sync.WaitGroup
	free := make(chan int, maxConcurrentItems)
	for slot := range maxConcurrentItems {
		free <- slot
	}
	for _, sequence := range sequencesOf(items) {
		slot := <-free
		all.Go(func() {
			defer func() { free <- slot }()
			for _, i := range sequence {
				results[i] = result{items[i], b.actOn(ctx, o, &items[i], slot)}
			}
		})
	}
	all.Wait()
	return results
}

// actOn does the action to one item, with a mark. Actions that run at the same time have different
// slots, below maxConcurrentItems.
func (b *Bulk) actOn(ctx context.Context, o *Operation, it *item, slot int) error {
	if it.changed {
		return errChanged
	}
	isMarked := false
	ctx = engine.WithTxFunc(ctx, func(w engine.RecordWriter, _, after *job.Job) error {
		isMarked = true
		return b.mark(w, o, it.number, after.Seq, slot)
	})
	var err error
	if it.deadLetter != nil {
		operator := b.operatorOf(it.deadLetter.Job.ID.JobType)
		if operator.Replay == nil {
			return errChanged
		}
		_, err = b.Engine.ReplayDeadLetter(ctx, engine.Replay{DeadLetter: it.deadLetter,
			Do: operator.Replay})
	} else {
		_, err = b.operatorOf(it.job.ID.JobType).Act(ctx, b.Engine, o.Action, it.job)
	}
	switch {
	case err != nil:
		return err
	case !isMarked:
		return errChanged
	}
	return nil
}

// errChanged is the error of an item that has changed since the operation began, or of which the
// action changes nothing.
var errChanged = &job.Error{Kind: job.Conflict, Op: "bulk", Msg: "it has changed meanwhile"}

// nextUnknown is the end of a batch that a lost node has carried out completely: the batch ends
// behind its last mark.
const nextUnknown = -1

// commit counts a batch, deletes its marks and moves the cursor behind it, in one transaction.
// Marks beyond it are left to the batch that comes to them: something before them may not be done.
// It returns how long to wait then. At the end of what matches it ends the operation.
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
		if next > 0 {
			isBeyond := func(r job.Record) bool { return r.Key > markKey(o.ID, next) }
			marks = slices.DeleteFunc(marks, isBeyond)
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

// countCanceled counts what an operation that was canceled meanwhile has failed to do of its last
// batch, or has skipped. The cancel has counted what was done. It returns errStopped.
func (b *Bulk) countCanceled(ctx context.Context, o *Operation, results []result) error {
	ctx = context.WithoutCancel(ctx) // the run of a canceled operation is done
	err := b.update(ctx, o.ID, func(_ engine.RecordWriter, now *Operation) error {
		if now.Cursor != o.Cursor || now.State != Canceled {
			return errStopped
		}
		for _, r := range results {
			now.Cursor = max(now.Cursor, r.number) // so that it is counted once
			now.add(&r)
		}
		return nil
	})
	return cmp.Or(err, errStopped)
}

// countMarks counts what was done and deletes the marks. It returns their numbers.
func (o *Operation) countMarks(w engine.RecordWriter,
	records []job.Record) (map[int64]bool, error) {
	done := map[int64]bool{}
	marks, err := decodeMarks(records)
	if len(marks) == 0 || err != nil {
		return done, err
	}
	keys := make([]string, len(marks))
	for i, m := range marks {
		keys[i], done[m.Number] = records[i].Key, true
		if o.Canary > 0 && !o.CanariesDone {
			o.Canaries = append(o.Canaries, m.Job)
		}
	}
	o.Done += int64(len(marks))
	return done, w.DeleteRecords(markKind, keys...)
}

// add counts what has no mark.
func (o *Operation) add(r *result) {
	var refused *contract.NotAllowed
	switch {
	case r.err == nil, errors.Is(r.err, errAlreadyDone), errors.Is(r.err, errStopped):
		// It was done, in a batch that is done or that a cancel has counted; or it was not tried.
	case errors.As(r.err, &refused), job.IsKind(r.err, job.Conflict),
		job.IsKind(r.err, job.NotFound):
		o.Skipped++
	case r.job != nil:
		o.addProblem(Problem{Number: r.job.Seq, Error: r.err.Error()})
	default:
		o.addProblem(Problem{Number: r.number, Error: r.err.Error()})
	}
}

// waitsForCanaries reports whether the operation has to wait until the jobs of its canaries have
// ended.
func (o *Operation) waitsForCanaries(isEnd bool) bool {
	return o.hasCanaries() && !o.CanariesDone && !isEnd
}

// hasCanaries reports whether the actions on all canaries are done, or one of them has failed.
func (o *Operation) hasCanaries() bool {
	return o.Canary > 0 && (o.Done >= int64(o.Canary) || o.Failed > 0)
}

// watchCanaries goes on when all canaries are done and have gone well, and pauses the operation
// when one has failed.
func (b *Bulk) watchCanaries(ctx context.Context, o *Operation) (wait time.Duration, err error) {
	done, failed, err := b.canariesDone(ctx, o)
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
	case !done:
		return pause, nil
	}
	return 0, b.update(ctx, o.ID, func(_ engine.RecordWriter, now *Operation) error {
		if now.State == Paused && now.Reason == ReasonCanary {
			now.State, now.Reason, now.CanariesDone, now.Canaries = Running, "", true, nil
		}
		return nil
	})
}

// canariesDone reports whether all canaries are done, and the first that failed, or whose action
// did. A job that is gone without a dead letter has ended well; a cancel is well when the job is
// done.
func (b *Bulk) canariesDone(ctx context.Context, o *Operation) (all bool, failed int64, err error) {
	if len(o.Errors) > 0 {
		return false, o.Errors[0].Number, nil
	}
	found, err := b.Engine.GetBySeqs(ctx, o.Canaries, store.DefinitionOnly)
	if err != nil {
		return false, 0, err
	}
	deadLetters, err := b.Engine.DeadLettersOf(ctx, o.Canaries)
	if err != nil {
		return false, 0, err
	}
	for _, seq := range o.Canaries {
		for _, l := range deadLetters[seq] {
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
		case o.Action != contract.ActionCancel && !b.Engine.HasSucceeded(j):
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

// skipUnseen counts as skipped what matched at the beginning and was not found any more: it was
// deleted, or has changed so that it does not match.
func (o *Operation) skipUnseen() {
	isAll := o.Total < MaxCounted && (o.Limit == 0 || o.Done < int64(o.Limit))
	if isAll {
		o.Skipped = max(o.Skipped, o.Total-o.Done-o.Failed)
	}
}
