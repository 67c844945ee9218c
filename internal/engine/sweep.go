package engine

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The sweeps find what happens by time alone: leases that expire and jobs that become due. They run
// on every node (package maintenance) and inside of claims; rows that another transaction has
// locked are passed over, so sweeps do not wait for each other.

// sweepBatch is how many jobs one sweep takes in one transaction.
const sweepBatch = 500

// SweepInterval is how often leases and due times are checked when nothing asks for it earlier:
// lost work is ready again within its lease and this interval.
const SweepInterval = time.Second

// DueHorizon is how far NextDue looks ahead. It is more than the time from one Refresh to the next,
// so that the sweep knows of what becomes due in between before it is due. Refresh looks further
// ahead by the time for which it may look at nothing.
const DueHorizon = 2 * SweepInterval

// Expire ends runs whose lease has expired, up to a batch of them, and returns how many. Several
// nodes may do it at once: each run is ended once.
func (e *Engine) Expire(ctx context.Context) (n int, err error) {
	if e.guard.takeJumpBack() {
		if err := e.shortenLeases(ctx); err != nil {
			e.guard.restoreJumpBack()
			return 0, err
		}
	}
	err = e.update(ctx, func(u *unit) error { n, err = u.expire(sweepBatch); return err })
	return n, err
}

// Promote makes up to a batch of jobs that are due ready and returns how many.
func (e *Engine) Promote(ctx context.Context) (n int, err error) {
	err = e.update(ctx, func(u *unit) error { n, err = u.promoteDue(sweepBatch); return err })
	return n, err
}

// sweep is Expire and Promote within a transaction.
func (u *unit) sweep(batch int) (int, error) {
	expired, err := u.expire(batch)
	if err != nil {
		return 0, err
	}
	due, err := u.promoteDue(batch)
	return expired + due, err
}

func (u *unit) expire(batch int) (int, error) {
	expired, err := u.tx.LockExpired(u.e.guard.lastJump(), batch)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, j := range expired {
		if u.e.jobTypes[j.ID.JobType] == nil {
			continue // another node serves it
		}
		if j.End != nil {
			continue // it has ended in time
		}
		n++
		if err := u.expireRun(j); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// expireRun ends a run whose worker was silent.
func (u *unit) expireRun(j *job.Job) error {
	lost := u.e.jobTypes[j.ID.JobType].LostFailure
	if lost != nil {
		u.setBody(j, job.Failure, lost)
	}
	if err := u.transition(j, job.Expired); err != nil {
		return err
	}
	if j.Parent != 0 && lost != nil && j.Phase == job.Done {
		u.parentUpdate(j.Parent).failure = lost
	}
	return nil
}

func (u *unit) promoteDue(batch int) (int, error) {
	b := backpressure{unit: u, available: map[string]int64{}}
	for {
		due, err := u.tx.LockDue(batch, b.states)
		if err != nil {
			return 0, err
		}
		known := len(b.states)
		n, err := b.promoteAll(due)
		// Behind a batch that was postponed as a whole there may be jobs of other states.
		if err != nil || n > 0 || len(due) < batch || len(b.states) == known {
			return n, err
		}
	}
}

// backpressure postpones jobs that are due where their job type has reached its MaxQueueSize. The
// next sweep tries them again.
type backpressure struct {
	*unit
	available map[string]int64 // how many more ready jobs a job type may have
	states    []string         // that are postponed, in the form of store.Tx.LockDue
}

func (b *backpressure) promoteAll(due []*job.Job) (n int, err error) {
	for _, j := range due {
		if b.e.jobTypes[j.ID.JobType] == nil {
			continue // another node serves it
		}
		waits, err := b.mustWait(j)
		if err != nil {
			return 0, err
		}
		if waits {
			continue
		}
		n++
		if err := b.promote(j); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// mustWait reports whether a job has to wait for its job type to have fewer ready jobs, and counts
// it as ready if it has not.
func (b *backpressure) mustWait(j *job.Job) (bool, error) {
	name := j.ID.JobType
	if b.e.jobTypes[name].MaxQueueSize <= 0 || !b.e.countsWhenDue(j) {
		return false, nil
	}
	left, known := b.available[name]
	if !known {
		var err error
		if left, err = b.availableQueueSize(name); err != nil {
			return false, err
		}
	}
	b.available[name] = left - 1
	if left > 0 {
		return false, nil
	}
	if state := name + " " + string(j.State); !slices.Contains(b.states, state) {
		b.states = append(b.states, state)
	}
	return true, nil
}

// countsWhenDue reports whether a job begins to count towards the MaxQueueSize when it is due: one
// that waits for a retry counts already.
func (e *Engine) countsWhenDue(j *job.Job) bool {
	return e.jobTypes[j.ID.JobType].Machine.Phase(j.State) != job.Ready
}

// promote makes a job ready that waited for nothing but its time: by a transition where its machine
// has one, else only by a change of phase.
func (u *unit) promote(j *job.Job) error {
	t := u.e.jobTypes[j.ID.JobType]
	for _, on := range []job.Cause{job.Due, job.Satisfied} {
		if u.allows(j, on) {
			return u.transition(j, on)
		}
	}
	was := j.Phase
	j.Phase = t.Machine.Phase(j.State) // Ready, where a state has no such transition
	u.recordEffects(t, j, job.Transition{From: j.State, On: job.Due, To: j.State}, was)
	u.save(j)
	return nil
}

// shortenLeases is for a clock that has jumped back: a lease from before would last for the length
// of the jump, so it is shortened to end when a lease that is given now would end.
func (e *Engine) shortenLeases(ctx context.Context) error {
	for after := int64(0); ; {
		leased, err := e.List(ctx, store.Filter{Phases: []job.Phase{job.Leased}, After: after,
			Limit: sweepBatch})
		if err != nil || len(leased) == 0 {
			return err
		}
		after = leased[len(leased)-1].Seq
		if err := e.update(ctx, func(u *unit) error {
			return u.shortenLeases(leased)
		}); err != nil {
			return err
		}
	}
}

func (u *unit) shortenLeases(leased []*job.Job) error {
	seqs := make([]int64, len(leased))
	for i, j := range leased {
		seqs[i] = j.Seq
	}
	locked, err := u.tx.Load(store.Selector{Seqs: seqs, Lock: true, LeaseOnly: true})
	for _, j := range locked {
		if latest := u.now.Add(j.Lease); j.Phase == job.Leased && j.LeaseUntil.After(latest) {
			j.LeaseUntil = latest
			u.writes.update(j, store.LeaseFields)
		}
	}
	return err
}

// NextDue returns how long it is until the next waiting job is due and until the next lease ends,
// each DueHorizon at most. After a jump back of the clock it is time for Expire at once.
func (e *Engine) NextDue(ctx context.Context) (due, lease time.Duration, err error) {
	before := e.guard.monotonic()
	err = e.view(ctx, func(r reader) error {
		next, err := e.nextDue(ctx, r, before, DueHorizon)
		due, lease = untilDue(r.Now(), next.Waiting), untilDue(r.Now(), next.Lease)
		return err
	})
	if e.guard.jumpedBack() {
		lease = 0
	}
	return due, lease, err
}

// nextDue reads which times come within a horizon, and signals that ends of runs are recorded. It
// shows the guard the store's clock, as an idle node makes no updates; before is a reading of the
// monotonic clock before the view began.
func (e *Engine) nextDue(ctx context.Context, r reader, before, horizon time.Duration) (store.Due,
	error) {
	message, by := e.guard.observeView(r.Now(), before, e.guard.monotonic())
	e.logClock(ctx, message, by)
	next, err := r.NextDue(r.Now().Add(horizon))
	if next.RecordedEnds {
		signal(e.hub.endsRecorded)
	}
	return next, err
}

// untilDue returns the time from now to at, within 0 and DueHorizon; the zero time is never.
func untilDue(now, at time.Time) time.Duration {
	if at.IsZero() {
		return DueHorizon
	}
	return max(0, min(DueHorizon, at.Sub(now)))
}

// DueChanged receives when a job may be due earlier than NextDue returned, or when Refresh finds
// something due within DueHorizon.
func (e *Engine) DueChanged() <-chan struct{} { return e.hub.dueChanged }
