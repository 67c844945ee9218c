package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule/calendar"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

const (
	// maxPerRun is how many times one run processes. It is below keepTicks, so that a run that is
	// repeated finds the ticks of the one before in the ring.
	maxPerRun = 50
	// maxCatchUp is how many times that have passed in a downtime CatchUpAll submits.
	maxCatchUp = 1000
	// downtime is how late a time must be for the ones that have passed to be those of a downtime
	// (G-AD-16). It is also how long a time is tried (SC-006).
	downtime = time.Minute
	// The pauses between two tries grow with how long it has been tried.
	minRetry, maxRetry = time.Second, 10 * time.Second
)

// run is one run of the job of a schedule.
type run struct {
	*Schedules
	*Schedule
	calendar *calendar.Calendar
	now      time.Time    // when the run was claimed, by the store's clock
	ticks    []job.Record // to be stored with the outcome
	earlier  *job.Job     // of state.Earlier, nil if it is gone
	loaded   int64        // the number of which earlier was loaded
}

// Handle implements worker.Handler: it processes the times of a schedule that have passed.
func (s *Schedules) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	again := engine.Outcome{On: job.Released, Delay: minRetry}
	one, err := decode(t.Job)
	if err != nil {
		s.Log.Error("a schedule cannot be read and is left alone", "schedule", t.Job.ID.Key,
			telemetry.ErrorMessage, err)
		return engine.Outcome{On: job.Released, DueAt: never}
	}
	r := &run{Schedules: s, Schedule: one, now: t.Job.StartedAt}
	if r.calendar, err = one.calendar(one.CreatedAt); err != nil {
		s.Log.Error("a schedule has no times and is left alone", "schedule", one.Name,
			telemetry.ErrorMessage, err)
		return engine.Outcome{On: job.Released, DueAt: never}
	}
	if err := r.recover(ctx); err != nil {
		return again
	}
	err = r.process(ctx)
	refused, isRefused := errors.AsType[*refusedError](err)
	switch {
	case errors.Is(err, errStale) || ctx.Err() != nil:
		return again // it is not written, or changes nothing: the next run recovers
	case isRefused:
		return r.outcome(r.retryAt(refused))
	case err != nil: // the store was asked in vain
		return r.outcome(r.now.Add(minRetry))
	}
	return r.outcome(r.wakeAt(r.calendar, r.now))
}

// outcome is that of a run which is due again at a time.
func (r *run) outcome(wake time.Time) engine.Outcome {
	return engine.Outcome{On: job.Released, DueAt: wake, Progress: r.state.encode(),
		Records: r.ticks}
}

// recover takes over the ticks of a run that ended before its outcome was written.
func (r *run) recover(ctx context.Context) error {
	return r.Engine.ViewRecords(ctx, func(records engine.RecordReader) error {
		for {
			t, err := readTick(records, r.Name, r.state.Count)
			if err != nil || t == nil {
				return err
			}
			r.done(t)
		}
	})
}

// done brings the state up to date with a tick.
func (r *run) done(t *Tick) {
	s := &r.state
	s.Count, s.Latest = t.Count+1, t
	if t.Time.After(s.Last) {
		s.Last = t.Time
	}
	if t.Job != 0 {
		s.Earlier = t.Job
	}
	if t.Time.Equal(s.Queued) {
		s.Queued = time.Time{}
	}
	s.Failing, s.Since, s.Error = nil, time.Time{}, ""
}

// process processes the time that is queued, if the one before it is settled, and with those that
// have passed. An error is that of the time that is tried again.
func (r *run) process(ctx context.Context) error {
	if queued := r.state.Queued; !queued.IsZero() {
		busy, err := r.isBusy(ctx)
		if err != nil {
			return err
		}
		if !busy || r.Overlap != Queue {
			if err := r.submit(ctx, Tick{Time: queued}); err != nil {
				return err
			}
		}
	}
	times, passed := r.due()
	if len(times) == 0 && passed > 0 {
		r.add(Tick{Time: r.lastPassed(), Outcome: Missed, Passed: passed - 1,
			Error: "it passed in a downtime or a pause"})
	}
	for _, at := range times {
		if err := r.processOne(ctx, Tick{Time: at, Passed: passed}); err != nil {
			return err
		}
		passed = 0
	}
	return nil
}

// lastPassed returns the latest time that is due.
func (r *run) lastPassed() time.Time {
	all := r.passed()
	return all[len(all)-1]
}

// passed returns the times that are due and were not processed, or the latest of them.
func (r *run) passed() []time.Time {
	all := r.calendar.Last(r.state.Last, r.now, maxCatchUp+1)
	for len(all) > 0 && r.dueAt(r.Name, all[len(all)-1]).After(r.now) {
		all = all[:len(all)-1]
	}
	return all
}

// due returns the times that this run has to process, the earliest first, and how many more have
// passed that it does not process.
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
	if len(all) == 0 { // those of the jitter: the first one is due, and the latest ones are not
		return []time.Time{first}, 0
	}
	keep := map[CatchUp]int{CatchUpLast: 1, CatchUpAll: maxCatchUp}[r.CatchUp]
	over := max(0, len(all)-keep)
	return all[over:min(len(all), over+maxPerRun)], over
}

// processOne processes one time, by what holds for overlaps.
func (r *run) processOne(ctx context.Context, t Tick) error {
	if f := r.state.Failing; f != nil && f.Time.Equal(t.Time) {
		t.Passed = f.Passed
	}
	busy, err := r.isBusy(ctx)
	if err != nil {
		return err
	}
	switch waits := !r.state.Queued.IsZero(); {
	case waits || (busy && r.Overlap == Skip):
		t.Outcome, t.Error = Skipped, "the job of an earlier time was not settled"
		r.add(t)
		return nil
	case busy && r.Overlap == Queue:
		r.state.Queued, r.state.Last = t.Time, t.Time
		return nil
	case busy && r.Overlap == Replace:
		if err := r.cancelEarlier(ctx); err != nil {
			return &refusedError{t, err.Error()}
		}
	}
	return r.submit(ctx, t)
}

// isBusy reports whether the job of the latest time that has one is not settled.
func (r *run) isBusy(ctx context.Context) (bool, error) {
	number := r.state.Earlier
	if number == 0 || r.Overlap == Allow {
		return false, nil
	}
	if r.loaded != number {
		found, err := r.Engine.GetWithoutBodies(ctx, []int64{number})
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

// cancelEarlier cancels the job of an earlier time. One that its contract cannot cancel, or that
// has just ended, is left as it is.
func (r *run) cancelEarlier(ctx context.Context) error {
	o := contract.OperatorOf(r.Contracts, r.earlier.ID.Contract)
	if o == nil {
		return nil
	}
	_, err := o.Act(ctx, contract.ActionCancel, r.earlier)
	if _, refused := errors.AsType[*contract.NotAllowed](err); refused ||
		job.IsKind(err, job.Conflict) || job.IsKind(err, job.NotFound) {
		return nil
	}
	return err
}

// add adds a tick without a job, to be stored with the outcome.
func (r *run) add(t Tick) {
	t.Count, t.At = r.state.Count, r.now
	t.Lateness = max(0, r.now.Sub(r.dueAt(r.Name, t.Time)))
	r.ticks = append(r.ticks, t.record(r.Name))
	r.done(&t)
}
