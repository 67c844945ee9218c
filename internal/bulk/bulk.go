package bulk

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// Name is the job type of the jobs that are operations.
const Name = "bulk"

// The states of such a job.
const (
	queued   job.State = "queued"
	running  job.State = "running"
	paused   job.State = "paused"
	done     job.State = "done"
	canceled job.State = "canceled"
)

// machine is the life of the job of an operation. FailedForGood pauses it and Retried resumes it.
var machine = job.MustMachine(map[job.State]job.Phase{queued: job.Ready, running: job.Leased,
	paused: job.Done, done: job.Done, canceled: job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: queued},
	{From: queued, On: job.Claimed, To: running},
	{From: running, On: job.Released, To: queued},
	{From: running, On: job.Expired, To: queued},
	{From: running, On: job.Succeeded, To: done},
	{From: queued, On: job.FailedForGood, To: paused},
	{From: running, On: job.FailedForGood, To: paused},
	{From: paused, On: job.Retried, To: queued},
	{From: queued, On: job.Canceled, To: canceled},
	{From: running, On: job.Canceled, To: canceled},
	{From: paused, On: job.Canceled, To: canceled},
})

// lease is how long an operation stays with a node that is silent.
const lease = 15 * time.Second

// Config configures the operations of a node. Engine, Log, Random and Elapsed are required.
type Config struct {
	Engine    *engine.Engine
	Log       *slog.Logger
	Random    func() [16]byte
	Elapsed   func() time.Duration // a monotonic clock
	Contracts []*contract.Contract // whose jobs the operations are about
	// Ended, if not nil, writes records in the transaction in which an operation ends.
	Ended func(engine.RecordWriter, *Operation) error
}

// Bulk starts and shows operations, and carries them out.
type Bulk struct{ Config }

// New makes the operations of a node, and registers their jobs with the engine.
func New(c Config) (*Bulk, error) {
	if c.Engine == nil || c.Log == nil || c.Random == nil || c.Elapsed == nil {
		return nil, errors.New("bulk: Engine, Log, Random and Elapsed are required")
	}
	err := c.Engine.Register(engine.JobType{Name: Name, Machine: machine, Retention: retention})
	return &Bulk{c}, err
}

// Run carries out operations until ctx ends.
func (b *Bulk) Run(ctx context.Context) {
	const maxOperations = 4
	worker.MustNew(worker.Config{Engine: b.Engine, JobType: Name, Name: Name, Slots: maxOperations,
		HeartbeatInterval: lease / 3, Handler: b, Log: b.Log,
		OnPanic: func(*worker.ClaimedJob, any) engine.Outcome {
			return engine.Outcome{On: job.Released, Delay: time.Minute}
		}}).Run(ctx, time.Second)
}

func jobID(id string) job.ID { return job.ID{JobType: Name, Key: id} }

// newID returns an id. Those of later times sort first, as the keys of records do.
func (b *Bulk) newID(now time.Time) string {
	random := b.Random()
	return fmt.Sprintf("%016x", math.MaxInt64-now.UnixMicro()) + hex.EncodeToString(random[:4])
}

// Start stores an operation, which then goes on in the background. record writes records in the
// same transaction; it may be nil.
func (b *Bulk) Start(ctx context.Context, now time.Time, r Request,
	record func(engine.RecordWriter, *Operation) error) (*Operation, error) {
	o := &Operation{ID: b.newID(now), Request: r, State: Running, Cursor: r.After}
	_, err := b.Engine.Submit(engine.WithTxFunc(ctx,
		func(w engine.RecordWriter, _, _ *job.Job) error {
			o.StartedAt = w.Now()
			if err := o.write(w); err != nil || record == nil {
				return err
			}
			return record(w, o)
		}), engine.Unique, []engine.Submission{{Job: job.Job{ID: jobID(o.ID), Queue: r.Action,
		Lease: lease}}})
	return o, err
}

// errNone answers an id that no operation has.
var errNone = &job.Error{Kind: job.NotFound, Op: "bulk", Msg: "there is no such bulk operation"}

// Get returns an operation.
func (b *Bulk) Get(ctx context.Context, id string) (o *Operation, err error) {
	err = b.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		o, err = read(r, id)
		switch {
		case err != nil:
			return err
		case o == nil:
			return errNone
		}
		return o.addPending(r)
	})
	return o, err
}

// addPending counts what was done in the present batch.
func (o *Operation) addPending(r engine.RecordReader) error {
	if o.State == Done {
		return nil
	}
	marks, err := markedIn(r, o.ID)
	o.Done += int64(len(marks))
	return err
}

// List returns up to limit operations behind the id after, the newest first.
func (b *Bulk) List(ctx context.Context, after string, limit int) (all []*Operation, err error) {
	err = b.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		all = nil
		records, err := r.Records(operationKind, "", after, limit)
		for i := range records {
			o, err := decode(&records[i])
			if err != nil {
				return err
			}
			if err := o.addPending(r); err != nil {
				return err
			}
			all = append(all, o)
		}
		return err
	})
	return all, err
}

// Change is what an operator does to an operation.
type Change string

// The changes.
const (
	Pause  Change = "pause"
	Resume Change = "resume"
	Cancel Change = "cancel"
)

// Change pauses, resumes or cancels an operation and returns it with its new state. An operation
// that waits for its canaries is paused already; resume accepts them as they are. Change waits for
// actions that are being carried out, and what the present batch has done is counted. It is a
// Conflict if the state does not allow the change. record writes records in the same transaction
// and gets the state before.
func (b *Bulk) Change(ctx context.Context, id string, what Change,
	record func(w engine.RecordWriter, before string, o *Operation) error) (*Operation, error) {
	now, err := b.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	waits := now.State == Paused && now.Reason == ReasonCanary
	allowed := !now.IsFinished() && (what != Pause || now.State == Running || waits) &&
		(what != Resume || now.State == Paused)
	if !allowed {
		return nil, &job.Error{Kind: job.Conflict, Op: "bulk",
			Msg: "the bulk operation is " + now.State + ", which allows no " + string(what)}
	}
	change := func(w engine.RecordWriter, o *Operation) error {
		if err := waitForActions(w, id); err != nil {
			return err
		}
		before := o.State
		o.State, o.Reason = Paused, ReasonOperator
		if what == Resume {
			o.State, o.Reason = Running, ""
			o.CanariesDone = o.CanariesDone || o.hasCanaries()
		}
		if what == Cancel {
			o.State, o.Reason, o.EndedAt = Canceled, "", w.Now()
			if err := o.countBatch(w); err != nil {
				return err
			}
		}
		if record == nil {
			return nil
		}
		return record(w, before, o)
	}
	if waits && what == Resume {
		err = b.update(ctx, id, change)
	} else {
		err = b.move(ctx, id, map[Change]job.Cause{Pause: job.FailedForGood, Resume: job.Retried,
			Cancel: job.Canceled}[what], change)
	}
	if err != nil {
		return nil, err
	}
	return b.Get(ctx, id)
}

// waitForActions waits for the actions that are about to commit. Later actions find the new state
// of the operation and stop.
func waitForActions(w engine.RecordWriter, id string) error {
	for slot := range maxConcurrentItems {
		if err := w.Lock(slotLock(id, slot)); err != nil {
			return err
		}
	}
	return nil
}

// countBatch counts what the present batch of an operation that ends has done.
func (o *Operation) countBatch(w engine.RecordWriter) error {
	marks, err := markedIn(w, o.ID)
	if err != nil {
		return err
	}
	_, err = o.countMarks(w, marks)
	o.Canaries = nil
	return err
}

// update changes the record of an operation.
func (b *Bulk) update(ctx context.Context, id string,
	change func(engine.RecordWriter, *Operation) error) error {
	return b.Engine.ChangeRecords(ctx, "bulk:"+id, func(w engine.RecordWriter) error {
		return changeRecord(w, id, change)
	})
}

// move applies a cause to the job of an operation and changes the record of the operation in the
// same transaction.
func (b *Bulk) move(ctx context.Context, id string, on job.Cause,
	change func(engine.RecordWriter, *Operation) error) error {
	_, err := b.Engine.Change(engine.WithTxFunc(ctx, func(w engine.RecordWriter, _,
		_ *job.Job) error {
		if err := w.Lock("bulk:" + id); err != nil {
			return err
		}
		return changeRecord(w, id, change)
	}), jobID(id), on, nil)
	return err
}

// changeRecord reads, changes and writes the record of an operation, whose lock is held.
func changeRecord(w engine.RecordWriter, id string,
	change func(engine.RecordWriter, *Operation) error) error {
	o, err := read(w, id)
	if err != nil {
		return err
	}
	if o == nil {
		return errNone
	}
	if err := change(w, o); err != nil {
		return err
	}
	return o.write(w)
}
