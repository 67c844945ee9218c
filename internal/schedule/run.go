package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule/calendar"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

const (
	// maxPerRun bounds the times that one run processes without submitting a job. It is less than
	// maxTicks, so that each of their ticks has a place of its own in the ring.
	maxPerRun = 50
	// maxCatchUp bounds the times of a downtime whose jobs CatchUpAll submits.
	maxCatchUp = 1000
	// downtime is the lateness from which on a schedule counts as having been down, so that its
	// CatchUp applies (G-AD-16). A time that is refused is tried again for as long (SC-006).
	downtime = time.Minute
	// minRetry and maxRetry bound the pauses between two tries of a time. They grow with the time
	// since the first try.
	minRetry, maxRetry = time.Second, 10 * time.Second
)

// run is one run of the job of a schedule.
type run struct {
	*Schedules
	*Schedule
	id       engine.Run
	calendar *calendar.Calendar
	now      time.Time    // when the run was claimed, by the store's clock
	ticks    []job.Record // to be stored with the outcome
	missed   []engine.FeedEvent
	earlier  *job.Job // the job state.Earlier, nil if it was not loaded or is deleted
	loaded   int64    // the number for which earlier was loaded last
}

// Handle implements worker.Handler. It processes the times of a schedule that have passed, up to
// the first that submits a job. The submission ends the run in its transaction, so the outcome that
// Handle returns has an effect only if the contract had stored the job before.
func (s *Schedules) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	one, err := decode(t.Job)
	if err != nil {
		s.Log.Error("a schedule cannot be read and is left alone", "schedule", t.Job.ID.Key,
			telemetry.ErrorMessage, err)
		return engine.Outcome{On: job.Released, DueAt: never}
	}
	r := &run{Schedules: s, Schedule: one, id: engine.Run{ID: t.Job.ID, Run: t.Job.Run},
		now: t.Job.StartedAt}
	if r.calendar, err = one.calendar(one.CreatedAt); err != nil {
		s.Log.Error("a schedule has no times and is left alone", "schedule", one.Name,
			telemetry.ErrorMessage, err)
		return engine.Outcome{On: job.Released, DueAt: never}
	}
	err = r.process(ctx)
	refused, isRefused := errors.AsType[*refusedError](err)
	switch {
	case job.IsKind(err, job.RunLost) || ctx.Err() != nil:
		return engine.Outcome{On: job.Released} // what was not submitted, the next run processes
	case isRefused:
		return r.outcome(r.retryAt(refused))
	case err != nil: // the store could not answer
		return r.outcome(r.now.Add(minRetry))
	}
	return r.outcome(r.wakeAt(r.calendar, r.now))
}

// outcome returns the outcome of the run, after which the schedule is due at a time.
func (r *run) outcome(wake time.Time) engine.Outcome {
	records := slices.Concat(r.ticks, r.updateIndex())
	o := engine.Outcome{On: job.Released, Progress: r.state.encode(), Records: records,
		Published: r.missed}
	if wake.After(r.now) {
		o.DueAt = wake
	} // else it stays due
	return o
}

// add adds a tick, which is stored with the outcome.
func (r *run) add(t Tick, at time.Time) {
	t.Count, t.At = r.state.Count, at
	t.Lateness = max(0, at.Sub(r.dueAt(r.Name, t.Time)))
	r.ticks = append(r.ticks, t.record(r.Name))
	if t.Outcome == Missed {
		r.missed = append(r.missed, r.missedEvent(&t))
	}
	r.state.done(&t)
}

// missedEvent returns the event of a time that was missed (WH-002).
func (r *run) missedEvent(t *Tick) engine.FeedEvent {
	return engine.FeedEvent{Type: MissedEvent, JobType: r.Contract, Subject: "schedule " + r.Name,
		Data: struct {
			Schedule string    `json:"schedule"`
			Contract string    `json:"contract"`
			Time     time.Time `json:"time"`
			Passed   int       `json:"passed"`
			Error    string    `json:"error"`
		}{r.Name, r.Contract, t.Time.UTC(), t.Passed, t.Error}}
}

// copy returns a copy of the run, to which ticks can be added without a change of the run.
func (r *run) copy() *run {
	c, s := *r, *r.Schedule
	c.Schedule, c.ticks, c.missed = &s, slices.Clip(r.ticks), slices.Clip(r.missed)
	return &c
}

// process processes the queued time if the job before it is done. Otherwise it processes the time
// that was refused and those that have passed, up to the first that submits a job. Its error is
// that of a time which will be tried again.
func (r *run) process(ctx context.Context) error {
	if err := r.cancelReplaced(ctx); err != nil || r.Paused {
		return err
	}
	if queued := r.state.Queued; !queued.IsZero() {
		busy, err := r.isBusy(ctx)
		if err != nil {
			return err
		}
		if !busy || r.Overlap != Queue {
			return r.submit(ctx, Tick{Time: queued})
		}
	}
	if submits, err := r.processFailing(ctx); err != nil || submits {
		return err
	}
	times, passed := r.due()
	if len(times) == 0 && passed > 0 {
		r.add(Tick{Time: r.lastPassed(), Outcome: Missed, Passed: passed - 1,
			Error: "it passed in a downtime or a pause"}, r.now)
	}
	for _, at := range times {
		submits, err := r.processOne(ctx, Tick{Time: at, Passed: passed})
		if err != nil || submits {
			return err
		}
		passed = 0
	}
	return nil
}

// processFailing tries the time that was refused again, unless that has gone on for a minute, and
// reports whether it submits. It comes before the times of a downtime, so that CatchUp does not
// leave it out.
func (r *run) processFailing(ctx context.Context) (submits bool, err error) {
	f := r.state.Failing
	if f == nil || !f.Time.After(r.state.Last) {
		return false, nil // it is the queued time, which process submits
	}
	if r.now.Sub(r.state.Since) >= downtime {
		r.miss(*f, r.state.Error)
		return false, nil
	}
	return r.processOne(ctx, *f)
}

// lastPassed returns the latest time that is due.
func (r *run) lastPassed() time.Time {
	all := r.passed()
	return all[len(all)-1]
}

// passed returns the latest maxCatchUp+1 of the times that are due and were not processed.
func (r *run) passed() []time.Time {
	all := r.calendar.Last(r.state.Last, r.now, maxCatchUp+1)
	for len(all) > 0 && r.dueAt(r.Name, all[len(all)-1]).After(r.now) {
		all = all[:len(all)-1]
	}
	return all
}

// due returns the times that this run has to process, the earliest first, and how many other times
// have passed, which are not processed.
func (r *run) due() (times []time.Time, passed int) {
	first, ok := r.calendar.Next(r.state.Last)
	if !ok || r.dueAt(r.Name, first).After(r.now) {
		return nil, 0
	}
	if r.now.Sub(r.dueAt(r.Name, first)) < downtime {
		for at := first; ok && len(times) < maxPerRun && !r.dueAt(r.Name, at).After(r.now); {
			times = append(times, at)
			at, ok = r.calendar.Next(at)
		}
		return times, 0
	}
	all := r.passed()
	if len(all) == 0 { // by their jitter, the first one is due and the latest ones are not
		return []time.Time{first}, 0
	}
	keep := map[CatchUp]int{CatchUpLast: 1, CatchUpAll: maxCatchUp}[r.CatchUp]
	surplus := max(0, len(all)-keep)
	return all[surplus:min(len(all), surplus+maxPerRun)], surplus
}

// processOne processes one time by the Overlap of the schedule, and reports whether the time
// submits a job.
func (r *run) processOne(ctx context.Context, t Tick) (submits bool, err error) {
	busy, err := r.isBusy(ctx)
	if err != nil {
		return false, err
	}
	switch waits := !r.state.Queued.IsZero(); {
	case waits || (busy && r.Overlap == Skip):
		t.Outcome, t.Error = Skipped, "the job of an earlier time was not done"
		r.add(t, r.now)
		return false, nil
	case busy && r.Overlap == Queue:
		r.state.Queued, r.state.Last = t.Time, t.Time
		r.state.clearFailure()
		return false, nil
	}
	return true, r.submit(ctx, t)
}

// isBusy reports whether the job that was submitted last is not done, and counts for Overlap.
func (r *run) isBusy(ctx context.Context) (bool, error) {
	number := r.state.Earlier
	if number == 0 || r.Overlap == Allow {
		return false, nil
	}
	if r.loaded != number {
		found, err := r.Engine.GetBySeqs(ctx, []int64{number}, store.DefinitionOnly)
		if err != nil {
			return false, err
		}
		r.earlier, r.loaded = nil, number
		if len(found) > 0 {
			r.earlier = found[0]
		}
	}
	return r.earlier != nil && r.earlier.Phase != job.Done, nil
}

// cancelReplaced cancels the job that a later one has replaced. It runs after the later one was
// submitted, so that no job is canceled without a replacement. A job that is done, or that its
// contract cannot cancel, stays as it is.
func (r *run) cancelReplaced(ctx context.Context) error {
	if r.state.Replaced == 0 {
		return nil
	}
	found, err := r.Engine.GetBySeqs(ctx, []int64{r.state.Replaced}, store.DefinitionOnly)
	if err != nil {
		return err
	}
	for _, j := range found {
		o := contract.OperatorOf(r.Contracts, j.ID.JobType)
		_, err := o.Act(ctx, r.Engine, contract.ActionCancel, j)
		_, refused := errors.AsType[*contract.NotAllowed](err)
		switch {
		case err == nil:
		case refused, job.IsKind(err, job.Conflict), job.IsKind(err, job.NotFound):
		case job.IsKind(err, job.Unavailable) || ctx.Err() != nil:
			return err
		default: // trying it again would hold up the schedule
			r.Log.Error("a schedule could not cancel the job that it has replaced",
				"schedule", r.Name, telemetry.ErrorMessage, err)
		}
	}
	r.state.Replaced = 0
	return nil
}
