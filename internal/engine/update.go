package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// maxEndAttempts is how often one update carries out recorded ends that it meets.
const maxEndAttempts = 5

// update runs fn in a transaction, writes what it gathered, and notifies those concerned once it
// is on stable storage. Recorded ends that fn meets are carried out first.
func (e *Engine) update(ctx context.Context, fn func(*unit) error) error {
	for range maxEndAttempts {
		err := e.updateOnce(ctx, fn)
		recorded, found := errors.AsType[*recordedEndsError](err)
		if !found {
			return err
		}
		if err := e.carryOutEndsOf(ctx, recorded.seqs); err != nil {
			return err
		}
	}
	return errEndPending()
}

// writeTimeout bounds a transaction that serves many callers: none of them ends it by leaving.
const writeTimeout = 30 * time.Second

// updateGroup is update for a group of callers. How long it took decides about the depth.
func (e *Engine) updateGroup(d *depth, fn func(*unit) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	var u *unit
	err := e.update(ctx, func(last *unit) error {
		u = last
		return fn(u)
	})
	if err != nil {
		return err
	}
	if u.hasWritten { // a commit of nothing waits for no disk
		d.observe(u.flushedAt-u.startedAt, e.guard.monotonic()-u.flushedAt)
	}
	return nil
}

// updateOnce is update without regard to recorded ends.
func (e *Engine) updateOnce(ctx context.Context, fn func(*unit) error) error {
	var u *unit
	extra := hook(ctx)
	waiting := e.guard.begin()
	defer e.guard.end(waiting)
	err := e.store.Update(ctx, func(tx store.Tx) error {
		u = newUnit(e, tx) // a new one each time fn runs
		e.observeClock(ctx, u, waiting)
		e.guard.end(waiting)
		if err := e.loadSettings(u); err != nil {
			return err
		}
		if err := e.loadSubscriptions(u); err != nil {
			return err
		}
		if err := u.lockFinishing(extra); err != nil {
			return err
		}
		if err := u.lockRequest(extra.inboxSubmission()); err != nil {
			return err
		}
		if err := fn(u); err != nil {
			return err
		}
		if err := u.runHooks(extra); err != nil {
			return err
		}
		return u.flush()
	})
	if err != nil {
		if u == nil && job.IsKind(err, job.Unavailable) { // the transaction did not begin
			e.guard.noteRefused(waiting)
		}
		return err
	}
	extra.markUsed(u)
	e.latencies.observe(e.guard.monotonic() - u.startedAt)
	e.notifyCommitted(u)
	return nil
}

// observeClock shows the guard the store's clock and logs what that reveals.
func (e *Engine) observeClock(ctx context.Context, u *unit, waiting *waitingUpdate) {
	message, by := e.guard.observe(u.now, waiting.since, e.guard.monotonic())
	e.logClock(ctx, message, by)
}

func (e *Engine) logClock(ctx context.Context, message string, by time.Duration) {
	if message == "" {
		return
	}
	level := slog.LevelWarn
	if message == messageStoreUnavailable { // the store logs that itself
		level = slog.LevelDebug
	}
	e.log.Log(ctx, level, message, "by", by)
}

// notifyCommitted wakes claims that wait for what the unit made ready, signals sweep and
// publishers, and reports the transitions.
func (e *Engine) notifyCommitted(u *unit) {
	var hashes []job.QueueHash
	for q, n := range u.after.becameReady {
		hash := job.QueueHashOf(q.jobType, q.queue)
		e.hub.wake(hash, n)
		e.hub.wake(anyQueueHash(q.jobType), n)
		hashes = append(hashes, hash, anyQueueHash(q.jobType))
	}
	for jobType := range u.after.releasedSlots {
		e.hub.wake(slotsHash(jobType), wakeAll)
		hashes = append(hashes, slotsHash(jobType))
	}
	for jobType := range u.after.outboxDirty {
		e.signalPublishers(jobType)
		if !e.isPublishing(jobType, u.now) {
			hashes = append(hashes, outboxHash(jobType))
		}
	}
	if len(hashes) > 0 {
		e.store.Notify(hashes)
	}
	for key, next := range u.after.nextStarts {
		after := next.at.Sub(u.now)
		if after > 0 {
			after = max(1, after-(e.guard.monotonic()-u.startedAt))
		}
		e.startWakeups.note(e.hub, key, next, after)
	}
	if u.after.sweepDue {
		signal(e.hub.dueChanged)
	}
	e.reportEnds(u.after.carriedOut, u.after.staleEnds)
	e.workers.note(u.after.workers)
	e.activities.note(u.after.activity)
	for name, transitions := range u.after.transitioned {
		e.jobTypes[name].OnTransitions(transitions)
	}
}
