package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/worker"
)

// Config configures the schedules of a node. Settings is optional.
type Config struct {
	Engine *engine.Engine // has JobType registered
	Log    *slog.Logger
	// Contracts are the contracts of the node: it runs the schedules that submit to them.
	Contracts []*contract.Contract
	// Settings are the schedules that the settings define. Run removes those that settings have
	// defined before and that are not among them.
	Settings Settings
}

// Schedules keeps schedules and runs them. Its methods are safe for concurrent use.
type Schedules struct{ Config }

// New checks the config. An error is a mistake in this program.
func New(c Config) (*Schedules, error) {
	if c.Engine == nil || c.Log == nil {
		return nil, errors.New("schedule: Engine and Log are required")
	}
	return &Schedules{Config: c}, nil
}

// JobType describes the jobs of schedules to the engine.
func (s *Schedules) JobType() engine.JobType {
	return engine.JobType{Name: Name, Machine: machine}
}

const (
	// slots is how many schedules a node processes at once: the claims, submissions and ends of so
	// many are a few transactions.
	slots = 500
	// lease is how long the run of a node that was killed holds up its schedule. It is below
	// downtime, so that a kill is none.
	lease = 10 * time.Second
)

// Run applies the settings and runs schedules until ctx ends.
func (s *Schedules) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.applySettings(ctx) })
	// The contracts to which this node submits are the queues of the schedules that it takes.
	if queues := contract.Submitters(s.Contracts); len(queues) > 0 {
		pool := worker.MustNew(worker.Config{Engine: s.Engine, JobType: Name, Queues: queues,
			Name: Name, Slots: slots, HeartbeatInterval: lease / 3, Handler: s, Log: s.Log,
			OnPanic: func(*worker.ClaimedJob, any) engine.Outcome {
				return engine.Outcome{On: job.Released, Delay: maxRetry}
			}})
		wg.Go(func() { pool.Run(ctx, lease/2) })
	}
	wg.Wait()
}

// The index has a record of each schedule, by which schedules are listed by name. Its owner is
// attentionOwner while the schedule needs attention, and else empty: the few are found among many.
const (
	indexKind      = "schedule"
	attentionOwner = "in need"
)

// RecordFunc writes records in the transaction of a change. before is nil for a new schedule, and
// after for one that is removed.
type RecordFunc func(w engine.RecordWriter, before, after *Schedule) error

func idOf(name string) job.ID { return job.ID{JobType: Name, Key: name} }

var errNone = &job.Error{Kind: job.NotFound, Op: "schedule", Msg: "there is no such schedule"}

// errFromSettings refuses to change what the settings define (SC-007).
var errFromSettings = &job.Error{Kind: job.Conflict, Op: "schedule",
	Msg: "the settings define this schedule; it can be paused here, and changed there"}

// Get returns a schedule; NotFound if there is none.
func (s *Schedules) Get(ctx context.Context, name string) (*Schedule, error) {
	j, err := s.Engine.Get(ctx, idOf(name))
	switch {
	case job.IsKind(err, job.NotFound):
		return nil, errNone
	case err != nil:
		return nil, err
	}
	return decode(j)
}

// Now returns the time of the store.
func (s *Schedules) Now(ctx context.Context) (time.Time, error) {
	return s.Engine.StoreTime(ctx)
}

// List returns the first limit schedules with a name above after, by name. There are fewer only
// where no more follow, also if some are removed meanwhile.
func (s *Schedules) List(ctx context.Context, after string, limit int) ([]*Schedule, error) {
	var all []*Schedule
	for len(all) < limit {
		left := limit - len(all)
		ids, err := s.ids(ctx, func(r engine.RecordReader) ([]job.Record, error) {
			return r.AllRecords(indexKind, after, left)
		})
		if err != nil {
			return nil, err
		}
		found, err := s.getAll(ctx, ids)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if len(ids) < left {
			break
		}
		after = ids[len(ids)-1].Key
	}
	return all, nil
}

// NeedingAttention returns the first limit schedules that need attention, by name (CO-002). It
// reads no others.
func (s *Schedules) NeedingAttention(ctx context.Context, limit int) ([]*Schedule, error) {
	ids, err := s.ids(ctx, func(r engine.RecordReader) ([]job.Record, error) {
		return r.Records(indexKind, attentionOwner, "", limit)
	})
	if err != nil {
		return nil, err
	}
	return s.getAll(ctx, ids)
}

// ids returns the identities of the schedules whose records of the index are read.
func (s *Schedules) ids(ctx context.Context,
	read func(engine.RecordReader) ([]job.Record, error)) (ids []job.ID, err error) {
	err = s.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		ids = nil
		records, err := read(r)
		for i := range records {
			ids = append(ids, idOf(records[i].Key))
		}
		return err
	})
	return ids, err
}

// getAll returns those of some schedules that are there, by name.
func (s *Schedules) getAll(ctx context.Context, ids []job.ID) (all []*Schedule, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	jobs, err := s.Engine.GetByIDs(ctx, ids, store.AllBodies)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		one, err := decode(j)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *Schedule) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Ticks returns the ticks that are kept of a schedule, the latest first (SC-006).
func (s *Schedules) Ticks(ctx context.Context, name string) (ticks []Tick, err error) {
	if _, err := s.Get(ctx, name); err != nil {
		return nil, err
	}
	err = s.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		ticks = nil
		records, err := r.Records(tickKind, name, "", maxTicks)
		for i := range records {
			t, err := decodeTick(&records[i])
			if err != nil {
				return err
			}
			ticks = append(ticks, *t)
		}
		return err
	})
	slices.SortFunc(ticks, func(a, b Tick) int { return cmp.Compare(b.Count, a.Count) })
	return ticks, err
}

// Check refuses a definition that is wrong, or whose request its contract refuses (SC-002). One of
// the settings may have ended: it stays in them when its last time has passed.
func (s *Schedules) Check(ctx context.Context, one *Schedule, now time.Time) error {
	if err := one.Validate(); err != nil {
		return err
	}
	if !one.FromSettings && !one.comesAfter(now) {
		return invalid("ends_at must come after the next time of the schedule")
	}
	request := one.request(one.key(now)) // as at its times
	o, err := contract.SubmitterOf(s.Contracts, one.Contract, &request)
	if err != nil {
		return err
	}
	if o.Check == nil {
		return nil
	}
	return explain(o, o.Check(ctx, request))
}

// Create stores a schedule. Conflict if there is one with the name, Invalid if it is wrong.
func (s *Schedules) Create(ctx context.Context, made Schedule,
	record RecordFunc) (*Schedule, error) {
	if !ValidName(made.Name) {
		return nil, invalid("name must have " + ValidNames)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Check(ctx, &made, now); err != nil {
		return nil, err
	}
	made.CreatedAt, made.state.Last = now, now
	j := job.Job{ID: idOf(made.Name), Lease: lease}
	if err := made.encodeTo(&j, now); err != nil {
		return nil, err
	}
	ctx = engine.WithTxFunc(ctx, func(w engine.RecordWriter, _, after *job.Job) error {
		stored := made
		stored.Number = after.Seq
		err := errors.Join(
			w.DeleteRecords(tickKind, tickKeys(made.Name)...), // of one before, under this name
			w.UpsertRecords(job.Record{Kind: indexKind, Key: made.Name}))
		if err != nil || record == nil {
			return err
		}
		return record(w, nil, &stored)
	})
	stored, err := s.Engine.Submit(ctx, engine.Unique, []engine.Submission{{Job: j}})
	switch {
	case job.IsKind(err, job.Conflict):
		return nil, &job.Error{Kind: job.Conflict, Op: "schedule.create",
			Msg: "there is a schedule of this name", Err: err}
	case err != nil:
		return nil, err
	}
	return decode(stored.Jobs[0])
}

// Change lets edit change the definition of a schedule, or whether it is paused.
func (s *Schedules) Change(ctx context.Context, name string, edit func(*Schedule) error,
	record RecordFunc) (*Schedule, error) {
	// The contract may read the store for its check, so it comes before the transaction.
	one, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	was := one.Definition
	if err := edit(one); err != nil {
		return nil, err
	}
	if !one.Definition.Equal(&was) {
		if err := s.Check(ctx, one, now); err != nil {
			return nil, err
		}
	}
	var before, after *Schedule
	var indexed []job.Record
	ctx = engine.WithTxFunc(ctx, func(w engine.RecordWriter, _, _ *job.Job) error {
		err := w.UpsertRecords(indexed...)
		if err != nil || record == nil {
			return err
		}
		return record(w, before, after)
	})
	changed, err := s.Engine.Change(ctx, idOf(name), job.Retried,
		func(j *job.Job, now time.Time) (err error) {
			if before, err = decode(j); err != nil {
				return err
			}
			changed := *before
			after = &changed
			if err := edit(after); err != nil {
				return err
			}
			if !after.sameTimes(&before.Definition) {
				after.state.Last = now // times of the past are none of the new ones
				after.state.clearFailure()
			}
			indexed = after.updateIndex()
			return after.encodeTo(j, now)
		})
	if job.IsKind(err, job.NotFound) {
		return nil, errNone
	}
	if err != nil {
		return nil, err
	}
	return decode(changed)
}

// Edit is Change for a client: what the settings define is a Conflict.
func (s *Schedules) Edit(ctx context.Context, name string, edit func(*Schedule) error,
	record RecordFunc) (*Schedule, error) {
	return s.Change(ctx, name, func(one *Schedule) error {
		if one.FromSettings {
			return errFromSettings
		}
		return edit(one)
	}, record)
}

// Pause pauses or resumes a schedule.
func (s *Schedules) Pause(ctx context.Context, name string, paused bool,
	record RecordFunc) (*Schedule, error) {
	return s.Change(ctx, name, func(one *Schedule) error {
		one.Paused = paused
		return nil
	}, record)
}

// Remove removes a schedule. fromSettings says whose it may be; Conflict for another one's.
func (s *Schedules) Remove(ctx context.Context, name string, fromSettings bool,
	record RecordFunc) error {
	var before *Schedule
	ctx = engine.WithTxFunc(ctx, func(w engine.RecordWriter, _, _ *job.Job) error {
		err := errors.Join(w.DeleteRecords(tickKind, tickKeys(name)...),
			w.DeleteRecords(indexKind, name))
		if err != nil || record == nil {
			return err
		}
		return record(w, before, nil)
	})
	_, err := s.Engine.Change(ctx, idOf(name), job.Removed,
		func(j *job.Job, _ time.Time) (err error) {
			if before, err = decode(j); err != nil {
				return err
			}
			if before.FromSettings != fromSettings {
				return errFromSettings
			}
			return nil
		})
	if job.IsKind(err, job.NotFound) {
		return errNone
	}
	return err
}

// SubmitNow submits the job of a schedule once, besides its times. The hooks of the context are
// written with the job.
func (s *Schedules) SubmitNow(ctx context.Context, name string) (*job.Job, error) {
	one, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	request := one.request("")
	o, err := contract.SubmitterOf(s.Contracts, one.Contract, &request)
	if err != nil {
		return nil, err
	}
	j, err := o.Submit(ctx, request)
	if err != nil {
		return nil, explain(o, err)
	}
	return j, nil
}
