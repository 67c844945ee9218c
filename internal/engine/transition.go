package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// A transition is the only way in which a stored job changes its state:
//
//	machine.Next     is the transition legal? If not: Conflict
//	countAttempt     does it use up the last attempt? Then the ForGood form of the cause
//	applyTransition  sets the members of the job that its new state and phase decide
//	recordEffects    counters, parents, dependents, dead letters, claims to wake
//	record           the event of the history, the message of the outbox, JobType.OnTransitions
//
// Nothing of that is written yet: flush does it, see write.go.

// StateError is wrapped by the Conflict of a change that the state of a job does not allow.
type StateError struct{ Job job.Job }

// Error is not part of the message of the Conflict, which names the state and the cause.
func (e *StateError) Error() string { return "its state does not allow it" }

// transition applies a cause to a job that is locked or was just inserted in this transaction.
// After a Conflict the job is as it was.
func (u *unit) transition(j *job.Job, on job.Cause) error { return u.transitionWith(j, on, "", 0) }

// transitionWith is transition with a reason for the history and with how long the job waits
// until it may be claimed again; 0 leaves that to its retry policy. A job with a recorded end is
// not moved, see recorded_ends.go.
func (u *unit) transitionWith(j *job.Job, on job.Cause, reason string, delay time.Duration) error {
	if j.End != nil {
		return &recordedEndsError{[]int64{j.Seq}}
	}
	t := u.e.jobTypes[j.ID.JobType]
	tr, ok := t.Machine.Next(j.State, on)
	if !ok {
		return &job.Error{Kind: job.Conflict, Op: "engine." + string(on), ID: j.ID,
			Msg: fmt.Sprintf("the job is %s, in which it cannot be %s", stateName(j.State), on),
			Err: &StateError{*j}}
	}
	if t.countAttempt(j, tr) {
		tr, _ = t.Machine.Next(j.State, on.ForGood()) // the machine has it: it was validated
	}
	from, was, run, since := j.State, j.Phase, j.Run, j.UpdatedAt
	if was == job.Leased {
		u.noteFinished(j, j.Worker, tr.On)
	}
	u.applyTransition(t, j, tr, delay)
	u.countActivity(j, tr.On, was, since)
	u.recordEffects(t, j, tr, was)
	u.record(t, j, run, since, job.Event{Cause: tr.On, Prev: from, Next: tr.To, At: j.UpdatedAt,
		Reason: reason})
	if tr.To == job.StateNone {
		u.delete(j)
	} else {
		u.save(j)
	}
	return nil
}

// countAttempt counts an attempt that failed or was lost, and reports whether it was the last
// that the job may have.
func (t *JobType) countAttempt(j *job.Job, tr job.Transition) bool {
	if tr.CountsFailed {
		j.FailedAttempts++
	}
	if tr.CountsLost {
		j.LostAttempts++
	}
	return (tr.CountsFailed && j.MaxAttempts > 0 && j.FailedAttempts >= j.MaxAttempts) ||
		(tr.CountsLost && t.MaxLostAttempts > 0 && j.LostAttempts >= t.MaxLostAttempts)
}

func stateName(s job.State) string {
	if s == job.StateNone {
		return "gone"
	}
	return string(s)
}

// applyTransition puts a job into the state a transition leads to and sets what the state's phase
// decides. It changes nothing but the job. The times of a job's transitions grow strictly,
// whatever the clock does.
func (u *unit) applyTransition(t *JobType, j *job.Job, tr job.Transition, delay time.Duration) {
	wasLeased := j.Phase == job.Leased
	j.State, j.Phase = tr.To, t.Machine.Phase(tr.To)
	j.UpdatedAt = later(u.now, j.UpdatedAt.Add(time.Microsecond))
	delayed := u.applyDelay(j, tr, delay)
	// A job whose run ended without a delay was due before that run, so it is ready again even if
	// the clock has been set back since.
	returned := wasLeased && !delayed && (tr.On == job.Failed || tr.On == job.Expired ||
		tr.On == job.Released)
	if j.Phase == job.Ready && j.DueAt.After(u.now) && !returned {
		j.Phase = job.Waiting // claimable by its state, but not yet
	}
	if j.Phase != job.Leased {
		j.Run, j.LeaseUntil = job.RunID{}, time.Time{}
	}
	if tr.On == job.Claimed || tr.On == job.Started {
		j.StartedAt = j.UpdatedAt
	}
	if tr.On == job.Retried {
		j.LostAttempts = 0
	}
	j.FinishedAt = time.Time{}
	if j.Phase == job.Done {
		j.FinishedAt = j.UpdatedAt
	}
}

// applyDelay sets when a job is due after a transition that delays it, and reports whether it does.
// A delay of 0 leaves it to the job's retry policy, which counts the failure of the transition
// already.
func (u *unit) applyDelay(j *job.Job, tr job.Transition, delay time.Duration) bool {
	if j.Phase == job.Done {
		return false
	}
	if delay == 0 && tr.CountsFailed && !tr.Immediate {
		delay = j.Retry.Delay(j.FailedAttempts)
	}
	if delay <= 0 {
		return false
	}
	j.DueAt = u.now.Add(delay)
	return true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// recordEffects records what follows when a transition takes a job out of a phase: changes of
// counters, updates of its parent and dependents, a dead letter, and which claims wake.
func (u *unit) recordEffects(t *JobType, j *job.Job, tr job.Transition, was job.Phase) {
	stored := tr.From != job.StateNone
	if stored {
		u.count(j, tr.From, was, -1)
	}
	if j.State != job.StateNone {
		u.count(j, j.State, j.Phase, +1)
	}
	u.recordFinished(t, j, tr, stored && was == job.Done)
	if tr.DeadLetter {
		u.writes.deadLetters = append(u.writes.deadLetters, pendingDeadLetter{j, tr.On})
	}
	if tr.On == job.Retried && t.keepsDeadJobs {
		u.writes.retried = append(u.writes.retried, j)
	}
	if was == job.Leased && j.Phase != job.Leased {
		u.slotReleased(queueKeyOf(j))
	}
	if j.Phase == job.Ready && (was != job.Ready || !stored) {
		u.becameReady(queueKeyOf(j))
	}
	if j.Phase == job.Waiting && j.OpenDeps == 0 && j.DueAt.Before(u.now.Add(SweepInterval)) {
		u.after.sweepDue = true
	}
}

// recordFinished records that a job has entered or left a finished state.
func (u *unit) recordFinished(t *JobType, j *job.Job, tr job.Transition, wasDone bool) {
	isDone := j.Phase == job.Done
	if wasDone == isDone {
		return
	}
	f := finishedJob{job: j, success: t.Machine.IsSuccess(tr.From), sign: -1}
	if isDone {
		f.success = tr.On == job.Succeeded ||
			(j.State != job.StateNone && t.Machine.IsSuccess(j.State))
		f.sign = +1
	}
	u.relatives.finished = append(u.relatives.finished, f)
}

// slotReleased wakes waiting claims where a run under a limit ended: a slot of the job type
// concerns all of its queues, that of a queue is like a job there that became ready.
func (u *unit) slotReleased(key queueKey) {
	if u.e.jobTypes[key.jobType].MaxRunning > 0 {
		put(&u.after.releasedSlots, key.jobType, true)
	}
	if u.settings.of(key).MaxRunning > 0 {
		u.becameReady(key)
	}
}

// record keeps the event of a transition where the state's name changed, adds it to the feed where
// a subscription wants it, and reports the transition to the contract where that asked for its
// cause.
func (u *unit) record(t *JobType, j *job.Job, run job.RunID, since time.Time, ev job.Event) {
	if !j.Run.IsZero() {
		run = j.Run
	}
	ev.Run = run
	reported := t.OnTransitions != nil && slices.Contains(t.ReportedCauses, ev.Cause)
	wanted, readsBodies := u.isWanted(j, ev)
	p := pendingEvent{job: j, event: ev, isWanted: wanted,
		isStored: (t.History || t.Publish) && ev.Prev != ev.Next}
	writes := p.isStored && t.hasMessageBody()
	p.hasBodies = ev.Cause == job.Claimed || (!readsBodies && !writes)
	if p.isStored || p.isWanted {
		if p.isWanted || t.hasMessageBody() {
			snapshot := *j
			p.snapshot = &snapshot
		}
		if reported {
			p.transitionIndex = len(u.after.transitioned[t.Name]) + 1
		}
		u.writes.events = append(u.writes.events, p)
	}
	if reported {
		transitioned := append(u.after.transitioned[t.Name], Transitioned{
			Job:    *j,
			On:     ev.Cause,
			From:   ev.Prev,
			To:     ev.Next,
			At:     ev.At,
			Since:  since,
			Reason: ev.Reason,
		})
		put(&u.after.transitioned, t.Name, transitioned)
	}
}
