package engine

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// sweepBatch is how many jobs one sweep takes in one transaction.
const sweepBatch = 500

// SweepInterval is how often leases and due times are looked at when nothing asks
// for it earlier: lost work comes back within its lease and this.
const SweepInterval = time.Second

// Expire ends runs whose lease is over, up to a batch of them, and reports how
// many. Several nodes may do it at once: each run is ended once.
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

// Promote lets up to a batch of jobs whose time has come become ready and
// reports how many.
func (e *Engine) Promote(ctx context.Context) (n int, err error) {
	err = e.update(ctx, func(u *unit) error { n, err = u.promoteDue(sweepBatch); return err })
	return n, err
}

// sweep does both within a transaction.
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
		if u.e.contracts[j.ID.Contract] == nil {
			continue // another node serves it
		}
		n++
		if err := u.expireRun(j); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// expireRun ends a run that nobody has ended.
func (u *unit) expireRun(j *job.Job) error {
	lost := u.e.contracts[j.ID.Contract].LostFailure
	if lost != nil {
		u.setBody(j, job.Failure, lost)
	}
	if err := u.move(j, job.Expired); err != nil {
		return err
	}
	if j.Parent != 0 && lost != nil && j.Phase == job.Done {
		u.parentUpdate(j.Parent).failure = lost
	}
	return nil
}

func (u *unit) promoteDue(batch int) (int, error) {
	for h := (backpressure{unit: u, available: map[string]int64{}}); ; {
		due, err := u.tx.LockDue(batch, h.states)
		if err != nil {
			return 0, err
		}
		known := len(h.states)
		n, err := h.promoteAll(due)
		// Where all of a batch is held back there may be others behind it.
		if err != nil || n > 0 || len(due) < batch || len(h.states) == known {
			return n, err
		}
	}
}

// backpressure is what a MaxQueueSize holds back of the jobs that are due: those are looked
// at again with the next sweep.
type backpressure struct {
	*unit
	available map[string]int64 // how many more a contract may have ready
	states    []string         // as store.Tx.LockDue takes them
}

func (h *backpressure) promoteAll(due []*job.Job) (n int, err error) {
	for _, j := range due {
		if h.e.contracts[j.ID.Contract] == nil {
			continue // another node serves it
		}
		if held, err := h.holdsBack(j); err != nil {
			return 0, err
		} else if held {
			continue
		}
		n++
		if err := h.promote(j); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// holdsBack reports whether there is no room for a job, and takes its place if there is.
func (h *backpressure) holdsBack(j *job.Job) (bool, error) {
	name := j.ID.Contract
	if h.e.contracts[name].MaxQueueSize <= 0 || !h.e.countsWhenDue(j) {
		return false, nil
	}
	left, asked := h.available[name]
	if !asked {
		var err error
		if left, err = h.unit.availableQueueSize(name); err != nil {
			return false, err
		}
	}
	h.available[name] = left - 1
	if left > 0 {
		return false, nil
	}
	if state := name + " " + string(j.State); !slices.Contains(h.states, state) {
		h.states = append(h.states, state)
	}
	return true, nil
}

// countsWhenDue reports whether a job that is due counts towards the MaxQueueSize only from
// then on: what waits to be tried again counts already.
func (e *Engine) countsWhenDue(j *job.Job) bool {
	return e.contracts[j.ID.Contract].Machine.Phase(j.State) != job.Ready
}

// promote lets the time of a job that waits for nothing else come: a move where
// its machine knows one, else only a change of phase.
func (u *unit) promote(j *job.Job) error {
	c := u.e.contracts[j.ID.Contract]
	for _, on := range []job.Cause{job.Due, job.Satisfied} {
		if _, ok := c.Machine.Next(j.State, on); ok {
			return u.move(j, on)
		}
	}
	was := j.Phase
	j.Phase = c.Machine.Phase(j.State) // ready: what has no move above is claimable by its state
	u.recordEffects(c, j, job.Move{From: j.State, On: job.Due, To: j.State}, was)
	u.save(j)
	return nil
}

// shortenLeases is for a clock that has jumped back: what it granted before would
// last for the length of the jump, so it ends where it would have ended had it
// been granted now.
func (e *Engine) shortenLeases(ctx context.Context) error {
	for after := int64(0); ; {
		var leased []*job.Job
		if err := e.view(ctx, func(r reader) (err error) {
			leased, err = r.List(store.Filter{Phases: []job.Phase{job.Leased}, After: after,
				Limit: sweepBatch})
			return err
		}); err != nil || len(leased) == 0 {
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
	locked, err := u.tx.LockBySeq(seqs)
	for _, j := range locked {
		if latest := u.now.Add(j.Lease); j.Phase == job.Leased && j.LeaseUntil.After(latest) {
			j.LeaseUntil = latest
			u.save(j)
		}
	}
	return err
}

// NextDue reports how long it is until the next waiting job is due, SweepInterval
// at most.
func (e *Engine) NextDue(ctx context.Context) (time.Duration, error) {
	next := SweepInterval
	err := e.view(ctx, func(r reader) error {
		due, _, err := r.NextDue()
		if err == nil && !due.IsZero() {
			next = max(0, min(next, due.Sub(r.Now())))
		}
		return err
	})
	return next, err
}

// DueChanged tells when a job may be due earlier than NextDue said.
func (e *Engine) DueChanged() <-chan struct{} { return e.hub.dueChanged }
