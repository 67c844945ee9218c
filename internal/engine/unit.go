package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// unit is the work of one transaction. Its verbs change jobs in memory and collect the effects;
// flush writes all of them in sets, and notifyCommitted acts on it after the commit. See doc.go.
type unit struct {
	e             *Engine
	tx            store.Tx
	now           time.Time     // when the transaction began
	startedAt     time.Duration // the same by the monotonic clock
	flushedAt     time.Duration // when flush had written everything, by the monotonic clock
	hasWritten    bool          // whether any job was inserted, updated or deleted
	settings      *queueSettings
	subscriptions Subscriptions // of the feed; nil is one without subscriptions
	changedJob    changedJob
	finishing     *job.Job   // whose run the change ends, see WithFinish
	inserted      []*job.Job // by the last insert; those that existed have no Seq
	counts        queueCounts
	rateWindows   map[queueKey]*rateWindow // of the queues with a rate whose limits are locked

	writes    pendingWrites
	relatives pendingRelatives
	claims    claimState
	after     afterCommit
}

// pendingWrites is what flush writes.
type pendingWrites struct {
	store.Changes               // of jobs; flush adds what follows from events and counts
	jobs          map[int64]int // the index of a job in Update, by its number

	events      []pendingEvent
	composed    int // how many of the events have the bodies of their messages
	deadLetters []pendingDeadLetter
	replays     []func() error // each marks a dead letter as replayed
	retried     []*job.Job     // jobs that were retried: so are their dead letters replayed
	gone        []int64        // jobs that were deleted, whose dead letters go with them
}

// pendingRelatives are the effects of the changed jobs on their parents and dependents.
type pendingRelatives struct {
	finished      []finishedJob
	parentUpdates map[int64]*parentUpdate // changes that do not follow from finished children
}

// queueCounts are the counts of queues: what the transaction changes, not yet written, and what
// the store answered, by job type.
type queueCounts struct {
	changed map[queueKey]*job.QueueCount
	stored  map[string][]job.QueueCount
}

// claimState is what the claims of the transaction have found since the last write.
type claimState struct {
	leased    map[queueKey]map[int64]bool // leased and not written: a select finds them again
	exhausted map[queueKey]bool           // queues that have no more ready jobs
	// truncatedBySize says that a select returned fewer jobs than there are, as bodies are large.
	truncatedBySize bool
}

// afterCommit is what happens when the transaction is on stable storage.
type afterCommit struct {
	becameReady   map[queueKey]int // the number of jobs that became ready
	releasedSlots map[string]bool  // job types with a limit under which a run ended
	nextStarts    map[queueKey]nextStarts
	sweepDue      bool                      // a job is due before the next regular sweep
	outboxDirty   map[string]bool           // job types with messages to publish
	transitioned  map[string][]Transitioned // the transitions to report, by job type
	workers       []workerReport            // who has sent something about a run
	activity      []queueActivity
	carriedOut    []carriedOutEnd // of the recorded ends
	staleEnds     []job.RunID     // that are removed, as their run is not the current one
}

type queueKey struct{ jobType, queue string }

func queueKeyOf(j *job.Job) queueKey { return queueKey{j.ID.JobType, j.Queue} }

// pendingEvent is an event that is not written. A new job gets its number only when it is stored.
type pendingEvent struct {
	job      *job.Job
	event    job.Event
	isStored bool     // in the history, or in a message of the contract
	isWanted bool     // a subscription of the feed selects it
	snapshot *job.Job // the job right after the change, where a message has a body
	// hasBodies says that the snapshot came with all bodies that messages read: a new job has them,
	// and a claim reads them for the worker.
	hasBodies bool
	body      []byte // of the message of the contract
	feedBody  []byte // of the message of the feed
	// transitionIndex is one more than the index in afterCommit.transitioned of the same change, 0
	// for none.
	transitionIndex int
}

type pendingDeadLetter struct {
	job *job.Job
	on  job.Cause
}

// finishedJob is a job that entered (+1) or left (-1) a finished state.
type finishedJob struct {
	job     *job.Job
	success bool
	sign    int
}

func newUnit(e *Engine, tx store.Tx) *unit {
	return &unit{
		e:         e,
		tx:        tx,
		now:       tx.Now(),
		startedAt: e.guard.monotonic(),
	}
}

// put sets an entry of a map, which it makes for the first one: most transactions need few of the
// maps of a unit.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// becameReady records that a job of a queue became ready.
func (u *unit) becameReady(key queueKey) {
	put(&u.after.becameReady, key, u.after.becameReady[key]+1)
}

// update marks fields of a job to be written. A second copy of a job in one transaction would undo
// the changes of the first: that is a defect of the engine.
func (w *pendingWrites) update(j *job.Job, fields store.Fields) {
	at, known := w.jobs[j.Seq]
	if !known {
		if w.jobs == nil {
			w.jobs = map[int64]int{}
		}
		w.jobs[j.Seq] = len(w.Update)
		w.Update = append(w.Update, store.JobUpdate{Job: j, Fields: fields})
		return
	}
	if w.Update[at].Job != j {
		panic(fmt.Sprintf("engine: two copies of job %d in one transaction", j.Seq))
	}
	w.Update[at].Fields |= fields
}

// changed returns a job that this transaction has changed, with the fields; Job is nil for another.
func (w *pendingWrites) changed(seq int64) store.JobUpdate {
	if at, ok := w.jobs[seq]; ok {
		return w.Update[at]
	}
	return store.JobUpdate{}
}

// save marks a job whose state has changed to be written.
func (u *unit) save(j *job.Job) { u.writes.update(j, store.StateFields) }

// edit marks a job to be written in which only members of store.LeaseFields have changed, and sets
// its UpdatedAt.
func (u *unit) edit(j *job.Job) {
	j.UpdatedAt = later(u.now, j.UpdatedAt)
	u.writes.update(j, store.LeaseFields)
}

// updateAll marks a job to be written with all of its fields, where a transition would write those
// of its state alone.
func (u *unit) updateAll(j *job.Job) { u.writes.update(j, store.AllFields) }

// setBody changes one body of a job.
func (u *unit) setBody(j *job.Job, p job.Body, data []byte) {
	*j.Body(p) = data
	u.writes.update(j, store.BodyField(p))
}

// delete marks a job to be deleted.
func (u *unit) delete(j *job.Job) {
	u.writes.update(j, 0) // a lock later in the transaction returns this job, not the stored one
	u.writes.Delete = append(u.writes.Delete, j)
	if u.e.jobTypes[j.ID.JobType].keepsDeadJobs {
		u.writes.gone = append(u.writes.gone, j.Seq)
	}
}

// setQueue puts a job into another queue; the transition that follows writes it. Claims that wait
// for jobs of the new queue wake, as do those that wait for the slot it had in the old one.
func (u *unit) setQueue(j *job.Job, queue string) {
	u.count(j, j.State, j.Phase, -1)
	if j.Phase == job.Leased {
		u.slotReleased(queueKeyOf(j))
	}
	j.Queue = queue
	u.count(j, j.State, j.Phase, +1)
	if j.Phase == job.Ready {
		u.becameReady(queueKeyOf(j))
	}
	u.updateAll(j)
}

// countOf returns what the transaction changes in the counts of a queue.
func (u *unit) countOf(key queueKey) *job.QueueCount {
	c := u.counts.changed[key]
	if c == nil {
		c = &job.QueueCount{JobType: key.jobType, Queue: key.queue}
		put(&u.counts.changed, key, c)
	}
	return c
}

// count adds n to the number of jobs that the queue of j has in a state and phase.
func (u *unit) count(j *job.Job, s job.State, p job.Phase, n int64) {
	key := queueKeyOf(j)
	c := u.countOf(key)
	switch p {
	case job.Waiting:
		if u.e.jobTypes[key.jobType].Machine.Phase(s) == job.Ready {
			c.Delayed += n
		} else {
			c.Waiting += n
		}
	case job.Ready:
		c.Ready += n
	case job.Leased:
		c.Leased += n
	case job.Done:
		c.Done += n
	}
}

// currentCounts returns the counts of a job type with the changes of this transaction. They are
// read from the store once in a transaction, so a caller that needs exact counts takes its lock
// before the first call.
func (u *unit) currentCounts(jobType string) ([]job.QueueCount, error) {
	stored, known := u.counts.stored[jobType]
	if !known {
		var err error
		if stored, err = u.tx.Counts(store.QueueSelector{JobType: jobType}); err != nil {
			return nil, err
		}
		put(&u.counts.stored, jobType, stored)
	}
	all := slices.Clone(stored)
	for key, c := range u.counts.changed {
		if key.jobType != jobType {
			continue
		}
		at := slices.IndexFunc(all, func(q job.QueueCount) bool { return q.Queue == key.queue })
		if at < 0 {
			all = append(all, *c)
			continue
		}
		all[at] = all[at].Plus(*c)
	}
	return all, nil
}
