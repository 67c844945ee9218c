package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// unit is the work of one transaction: it moves jobs in memory, gathers what
// follows from that, and flush writes all of it in sets.
type unit struct {
	e         *Engine
	tx        store.Tx
	now       time.Time     // when the transaction began
	startedAt time.Duration // the same by the monotonic clock
	settings  *queueSettings

	saves    set // moved
	edits    set // changed while they stayed in their state
	rewrites set // changed in more than what moves change
	deletes  set
	bodies   [job.Parts]set

	events       []pendingEvent
	composed     int // of events whose message bodies are made
	deadLetters  []pendingDeadLetter
	finished     []finishedJob
	counts       map[queueKey]*job.QueueCount // changes that are not written
	storedCounts map[string][]job.QueueCount  // what the store said, by contract
	// leased and not written, for whoever selects again
	leasedNow map[queueKey]map[int64]bool
	exhausted map[queueKey]bool // queues found to have nothing to hand out
	// a look brought less than it could, as bodies are large
	truncatedBySize bool

	// what parents are to hear of their children, beside how they settle
	parentUpdates map[int64]*parentUpdate

	becameReady map[queueKey]int // jobs that became ready
	freedSlots  map[string]bool  // contracts with a limit under which a run ended
	sweepSoon   bool             // a job is due before the next regular sweep
	outboxDirty map[string]bool  // contracts that have messages
	moved       map[string][]Moved
}

type queueKey struct{ contract, queue string }

// pendingEvent is an event whose job may get its number only when it is stored.
type pendingEvent struct {
	job      *job.Job
	event    job.Event
	snapshot *job.Job // as it was right after the change, if a message tells more of it
	body     []byte   // of the message
	// moveIndex is one more than where u.moved has the same change, 0 where it has not.
	moveIndex int
}

type pendingDeadLetter struct {
	job *job.Job
	on  job.Cause
}

// finishedJob is a job that entered (+1) or left (-1) a settled state.
type finishedJob struct {
	job     *job.Job
	success bool
	sign    int
}

func newUnit(e *Engine, tx store.Tx) *unit {
	return &unit{e: e, tx: tx, now: tx.Now(), startedAt: e.guard.monotonic(),
		counts:       map[queueKey]*job.QueueCount{},
		storedCounts: map[string][]job.QueueCount{}, leasedNow: map[queueKey]map[int64]bool{},
		exhausted:   map[queueKey]bool{},
		becameReady: map[queueKey]int{}, freedSlots: map[string]bool{}}
}

// set holds jobs once each, in the order they came.
type set struct {
	jobs []*job.Job
	by   map[int64]*job.Job
}

func (s *set) add(j *job.Job) {
	if s.by == nil {
		s.by = map[int64]*job.Job{}
	}
	if s.by[j.Seq] == nil {
		s.by[j.Seq] = j
		s.jobs = append(s.jobs, j)
	}
}

// mustHoldOnly panics where the set holds another copy of the job: two in one transaction
// would undo each other's changes. That is a defect of the engine.
func (s *set) mustHoldOnly(j *job.Job) {
	if held := s.by[j.Seq]; held != nil && held != j {
		panic(fmt.Sprintf("engine: two copies of job %d in one transaction", j.Seq))
	}
}

// without returns the jobs that are in none of the others.
func (s *set) without(others ...*set) (left []*job.Job) {
	for _, j := range s.jobs {
		if !slices.ContainsFunc(others, func(o *set) bool { return o.by[j.Seq] != nil }) {
			left = append(left, j)
		}
	}
	return left
}

// move lets on happen to a job that is locked or was just inserted in this
// transaction. This is the only place a state changes. After a Conflict the job
// is as it was.
func (u *unit) move(j *job.Job, on job.Cause) error { return u.moveWith(j, on, "", 0) }

// moveWith is move with a reason for the history and with how long the job waits
// until it may be claimed again; 0 leaves that to the contract.
func (u *unit) moveWith(j *job.Job, on job.Cause, reason string, delay time.Duration) error {
	c := u.e.contracts[j.ID.Contract]
	mv, ok := c.Machine.Next(j.State, on)
	if !ok {
		return &job.Error{Kind: job.Conflict, Op: "engine." + string(on), ID: j.ID,
			Msg: fmt.Sprintf("the job is %s, which allows no %s", stateName(j.State), on)}
	}
	if c.countAttempt(j, mv) {
		mv, _ = c.Machine.Next(j.State, on.ForGood()) // the machine has it: it was validated
	}
	from, was, run, since := j.State, j.Phase, j.Run, j.UpdatedAt
	u.applyMove(c, j, mv, delay)
	u.recordEffects(c, j, mv, was)
	u.record(c, j, run, since, job.Event{Cause: mv.On, Prev: from, Next: mv.To, At: j.UpdatedAt,
		Reason: reason})
	if mv.To == job.StateNone {
		u.deletes.add(j)
	} else {
		u.save(j)
	}
	return nil
}

// countAttempt counts a move where it counts, and reports whether that used up the runs
// that the job may have or lose.
func (c *Contract) countAttempt(j *job.Job, mv job.Move) bool {
	if mv.CountsFailed {
		j.FailedAttempts++
	}
	if mv.CountsLost {
		j.LostAttempts++
	}
	return (mv.CountsFailed && j.MaxAttempts > 0 && j.FailedAttempts >= j.MaxAttempts) ||
		(mv.CountsLost && c.MaxLostAttempts > 0 && j.LostAttempts >= c.MaxLostAttempts)
}

// save marks a job to be written.
func (u *unit) save(j *job.Job) {
	u.saves.mustHoldOnly(j)
	u.edits.mustHoldOnly(j)
	u.saves.add(j)
}

func stateName(s job.State) string {
	if s == job.StateNone {
		return "gone"
	}
	return string(s)
}

// applyMove puts a job into the state a move leads to, with all that its phase
// means. It changes nothing but the job. The times of its moves grow strictly,
// whatever the clock does.
func (u *unit) applyMove(c *Contract, j *job.Job, mv job.Move, delay time.Duration) {
	ran := j.Phase == job.Leased
	j.State, j.Phase, j.UpdatedAt = mv.To, c.Machine.Phase(mv.To),
		later(u.now, j.UpdatedAt.Add(time.Microsecond))
	if delay == 0 && mv.CountsFailed && c.RetryDelay != nil && j.Phase != job.Done {
		delay = c.RetryDelay(j)
	}
	delayed := delay > 0 && j.Phase != job.Done
	if delayed {
		j.DueAt = u.now.Add(delay)
	}
	// A run that ended without a delay needs no second look at its due time: it
	// had come before, whatever the clock says now.
	again := ran && !delayed && (mv.On == job.Failed || mv.On == job.Expired ||
		mv.On == job.Released)
	if j.Phase == job.Ready && j.DueAt.After(u.now) && !again {
		j.Phase = job.Waiting // claimable by its state, but not yet
	}
	if j.Phase != job.Leased {
		j.Run, j.LeaseUntil, j.Worker = job.RunID{}, time.Time{}, ""
	}
	if mv.On == job.Claimed || mv.On == job.Started {
		j.StartedAt = j.UpdatedAt
	}
	if mv.On == job.Retried {
		j.LostAttempts = 0
	}
	j.FinishedAt = time.Time{}
	if j.Phase == job.Done {
		j.FinishedAt = j.UpdatedAt
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// recordEffects draws the consequences of a job having made a move from a phase:
// counters, parents and dependents, dead letters, who is to be woken.
func (u *unit) recordEffects(c *Contract, j *job.Job, mv job.Move, was job.Phase) {
	stored := mv.From != job.StateNone
	if stored {
		u.count(j, mv.From, was, -1)
	}
	if j.State != job.StateNone {
		u.count(j, j.State, j.Phase, +1)
	}
	if before, now := stored && was == job.Done, j.Phase == job.Done; now && !before {
		good := mv.On == job.Succeeded || (j.State != job.StateNone && c.Machine.IsSuccess(j.State))
		u.finished = append(u.finished, finishedJob{j, good, +1})
	} else if before && !now {
		u.finished = append(u.finished, finishedJob{j, c.Machine.IsSuccess(mv.From), -1})
	}
	if mv.DeadLetter {
		u.deadLetters = append(u.deadLetters, pendingDeadLetter{j, mv.On})
	}
	if was == job.Leased && j.Phase != job.Leased {
		u.slotFreed(queueKeyOf(j))
	}
	if j.Phase == job.Ready && (was != job.Ready || !stored) {
		u.becameReady[queueKeyOf(j)]++
	}
	if j.Phase == job.Waiting && j.OpenDeps == 0 && j.DueAt.Before(u.now.Add(SweepInterval)) {
		u.sweepSoon = true
	}
}

// slotFreed lets whoever waits look again when a run under a limit ended: that of the contract
// concerns all of its queues, that of a queue is like a job there that became ready.
func (u *unit) slotFreed(key queueKey) {
	if u.e.contracts[key.contract].MaxRunning > 0 {
		u.freedSlots[key.contract] = true
	}
	if u.settings.of(key).MaxRunning > 0 {
		u.becameReady[key]++
	}
}

func queueKeyOf(j *job.Job) queueKey { return queueKey{j.ID.Contract, j.Queue} }

func (u *unit) count(j *job.Job, s job.State, p job.Phase, n int64) {
	key := queueKeyOf(j)
	c := u.counts[key]
	if c == nil {
		c = &job.QueueCount{Contract: key.contract, Queue: key.queue}
		u.counts[key] = c
	}
	switch p {
	case job.Waiting:
		if u.e.contracts[key.contract].Machine.Phase(s) == job.Ready {
			c.Delayed += n
		} else {
			c.Waiting += n
		}
	case job.Ready:
		c.Ready += n
	case job.Leased:
		c.Leased += n
	}
}

// record keeps the event where the state's name changed, and tells the
// contract of every move.
func (u *unit) record(c *Contract, j *job.Job, run job.RunID, since time.Time, ev job.Event) {
	if !j.Run.IsZero() {
		run = j.Run
	}
	ev.Run = run
	reported := c.Moved != nil && slices.Contains(c.MovedOn, ev.Cause)
	if (c.History || c.Publish) && ev.Prev != ev.Next {
		p := pendingEvent{job: j, event: ev}
		if c.Publish && c.Body != nil {
			then := *j
			p.snapshot = &then
		}
		if reported {
			p.moveIndex = len(u.moved[c.Name]) + 1
		}
		u.events = append(u.events, p)
	}
	if reported {
		if u.moved == nil {
			u.moved = map[string][]Moved{}
		}
		u.moved[c.Name] = append(u.moved[c.Name],
			Moved{Job: *j, On: ev.Cause, From: ev.Prev, To: ev.Next, At: ev.At, Since: since,
				Reason: ev.Reason})
	}
}

// edit marks a job whose own members were changed beside its state.
func (u *unit) edit(j *job.Job) {
	j.UpdatedAt = later(u.now, j.UpdatedAt)
	u.saves.mustHoldOnly(j)
	u.edits.mustHoldOnly(j)
	u.edits.add(j)
}

// setBody changes one body of a job.
func (u *unit) setBody(j *job.Job, p job.Part, data []byte) {
	*j.Body(p) = data
	u.bodies[p].add(j)
}

// setQueue puts a job into another queue; the move that follows writes it. Who
// waits there for jobs looks again, as does who waits for the slot it had here.
func (u *unit) setQueue(j *job.Job, queue string) {
	u.count(j, j.State, j.Phase, -1)
	if j.Phase == job.Leased {
		u.slotFreed(queueKeyOf(j))
	}
	j.Queue = queue
	u.count(j, j.State, j.Phase, +1)
	if j.Phase == job.Ready {
		u.becameReady[queueKeyOf(j)]++
	}
	u.rewrites.add(j)
}
